//! One connection, shared by people who use it in turn.

use super::tally::Tally;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_stack::http::{Connection, Method, Response};

/// The maximum number of exchanges per request, after which a client gives up.
const TRIES_MAX: u32 = 10;

/// A longer exchange counts as a broken connection.
pub(super) const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// The wait before a retry: after a broken connection, and the maximum, regardless of Retry-After.
const RETRY_AFTER_BREAK: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// A client's request, always a POST without a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoRequest<'a> {
    pub(super) path: &'a str,
    pub(super) user: &'a str,
    pub(super) token: Option<&'a str>,
    /// The waiting room pass, if any.
    pub(super) pass: Option<&'a str>,
    /// The label of a successful answer that has no verdict of the gate.
    pub(super) good: &'static str,
}

/// The address of a gateway or an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Host and port.
    pub(super) authority: Arc<str>,
    /// Whether it is an edge instead of a gateway.
    pub(super) is_edge: bool,
}

impl Endpoint {
    /// A gateway, by its URL.
    pub(super) fn gateway(url: &str) -> Self {
        Self {
            authority: url.trim_start_matches("http://").into(),
            is_edge: false,
        }
    }

    /// An edge, by its URL.
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

/// A header value that Envoy adds to each answer.
const BY_ENVOY: &str = "envoy";

/// Addresses for examples (RFC 2544), one per connection.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// The header in which Cloudflare passes the client's address to an edge. Here no platform is before the edge, so
/// clients set it.
const CLIENT_HEADER: &str = "cf-connecting-ip";

/// A connection to an endpoint that opens on demand.
pub(super) struct Line {
    endpoint: Endpoint,
    /// The client address sent to an edge.
    address: String,
    connection: Option<Connection>,
    pub(super) observed: Tally,
}

impl Line {
    /// Creates the connection with this number.
    pub(super) fn new(number: u32, endpoint: Endpoint) -> Result<Self> {
        Ok(Self {
            endpoint,
            address: Ipv4Addr::from_bits(NETWORK + number).to_string(),
            connection: None,
            observed: Tally::empty()?,
        })
    }

    /// Sends a person's request: retries after a broken connection, and while the answer says to retry. `None` after
    /// ten tries.
    pub(super) async fn ask(&mut self, ask: &DemoRequest<'_>) -> Option<Response> {
        for _ in 0..TRIES_MAX {
            let wait = match self.ask_once(ask).await {
                Some(answer) if matches!(answer.status, 429 | 503) => retry_after(&answer),
                Some(answer) => return Some(answer),
                None => RETRY_AFTER_BREAK,
            };
            tokio::time::sleep(wait).await;
        }
        self.observed.gave_up += 1;
        None
    }

    /// Sends a bot's request; `None` if the connection broke.
    pub(super) async fn ask_once(&mut self, ask: &DemoRequest<'_>) -> Option<Response> {
        self.observed.requests += 1;
        let started = Instant::now();
        match tokio::time::timeout(EXCHANGE_LIMIT, self.send(ask)).await {
            Ok(Ok(answer)) => {
                self.observed.count(&answer, ask.good, started.elapsed());
                if self.endpoint.is_edge {
                    let is_own = answer.header("server") != Some(BY_ENVOY);
                    self.observed.at_edge.count(is_own, &answer);
                }
                Some(answer)
            }
            _ => {
                self.connection = None;
                self.observed.broken += 1;
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

/// The wait that a 429 or 503 requests, limited.
fn retry_after(answer: &Response) -> Duration {
    let seconds = answer
        .header("retry-after")
        .and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1)).min(RETRY_AFTER_MAX)
}
