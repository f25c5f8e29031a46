//! One connection, and those who ask over it, one after another.

use super::tally::Tally;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_stack::http::{Connection, Method, Response};

/// Who asks gives up after this many exchanges.
const TRIES_MAX: u32 = 10;

/// An exchange that takes longer counts as a broken connection.
pub(super) const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// Waits before a retry: after a broken connection, and at most, whatever Retry-After says.
const RETRY_AFTER_BREAK: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// What somebody asks: always a POST without a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoRequest<'a> {
    pub(super) path: &'a str,
    pub(super) user: &'a str,
    pub(super) token: Option<&'a str>,
    /// What a waiting room gave before.
    pub(super) pass: Option<&'a str>,
    /// The word for a good answer, if it is not the gate's.
    pub(super) good: &'static str,
}

/// Where requests come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Its host and port.
    pub(super) authority: Arc<str>,
    /// Whether an edge is there, or a gateway.
    pub(super) is_edge: bool,
}

impl Endpoint {
    /// A gateway's, by its URL.
    pub(super) fn gateway(url: &str) -> Self {
        Self {
            authority: url.trim_start_matches("http://").into(),
            is_edge: false,
        }
    }

    /// An edge's.
    pub(super) fn edge(url: &str) -> Self {
        Self {
            is_edge: true,
            ..Self::gateway(url)
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.authority)
    }
}

/// What Envoy writes into each answer that comes from it or through it.
const BY_ENVOY: &str = "envoy";

/// Addresses for examples (RFC 2544), one a line.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// In which header Cloudflare tells an edge where a client is. Here nobody is in front of the edge, so clients do.
const CLIENT_HEADER: &str = "cf-connecting-ip";

/// A connection to a door that is opened when it is needed.
pub(super) struct Line {
    endpoint: Endpoint,
    /// Where its people are, if they go to an edge.
    address: String,
    connection: Option<Connection>,
    pub(super) seen: Tally,
}

impl Line {
    /// The line of this number.
    pub(super) fn new(number: u32, endpoint: Endpoint) -> Result<Self> {
        Ok(Self {
            endpoint,
            address: Ipv4Addr::from_bits(NETWORK + number).to_string(),
            connection: None,
            seen: Tally::empty()?,
        })
    }

    /// As a person asks: again after a broken connection, and as long as the answer says to come
    /// back. `None` after ten tries.
    pub(super) async fn ask(&mut self, ask: &DemoRequest<'_>) -> Option<Response> {
        for _ in 0..TRIES_MAX {
            let wait = match self.ask_once(ask).await {
                Some(answer) if matches!(answer.status, 429 | 503) => retry_after(&answer),
                Some(answer) => return Some(answer),
                None => RETRY_AFTER_BREAK,
            };
            tokio::time::sleep(wait).await;
        }
        self.seen.gave_up += 1;
        None
    }

    /// As a bot asks; `None` if the connection broke.
    pub(super) async fn ask_once(&mut self, ask: &DemoRequest<'_>) -> Option<Response> {
        self.seen.requests += 1;
        let started = Instant::now();
        match tokio::time::timeout(EXCHANGE_LIMIT, self.send(ask)).await {
            Ok(Ok(answer)) => {
                self.seen.count(&answer, ask.good, started.elapsed());
                if self.endpoint.is_edge {
                    let is_own = answer.header("server") != Some(BY_ENVOY);
                    self.seen.at_edge.count(is_own, &answer);
                }
                Some(answer)
            }
            _ => {
                self.connection = None;
                self.seen.broken += 1;
                None
            }
        }
    }

    async fn send(&mut self, ask: &DemoRequest<'_>) -> Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => Connection::open(&self.endpoint.authority).await?,
        };
        let mut headers = vec![("x-user-id", ask.user)];
        if self.endpoint.is_edge {
            headers.push((CLIENT_HEADER, &self.address));
        }
        headers.extend(
            ask.token
                .map(|token| (weir_base::headers::ORDER_TOKEN, token)),
        );
        headers.extend(ask.pass.map(|pass| (weir_base::headers::ROOM, pass)));
        let answer = connection
            .send(Method::POST, ask.path, &headers, "")
            .await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

/// What a 429 or 503 asks for, within reason.
fn retry_after(answer: &Response) -> Duration {
    let seconds = answer
        .header("retry-after")
        .and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(RETRY_AFTER_MAX)
}
