//! Edges that run as servers: `edge/fastly` in Viceroy, and `edge/cloudflare` in workerd.
//!
//! They are the shipped edges with the feature `conformance`. Configuration, clock, client and key namespace come with
//! each request, so that one server acts as a separate edge for each vector.

pub mod client;
pub mod world;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use weir_stack::edge::{self, Build, Server};

use self::client::{Ask, ClientResponse, send};
use self::world::World;
use super::wasi::feeds::{EDGE_SECRET, config, feeds};
use super::wasi::{cannot, policy};
use crate::host::{Host, Replay, answered};
use crate::text::unescape;
use crate::vector::{Headers, Outcome, Step, Vector};

/// The name of the Fastly host.
pub const FASTLY: &str = "fastly";
/// The name of the Cloudflare host.
pub const CLOUDFLARE: &str = "cloudflare";

/// Headers that servers and their clients add to every request.
const OF_SERVERS: [&str; 8] = [
    "accept-encoding",
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ew-via",
    "cf-worker",
    "host",
    "user-agent",
    "x-forwarded-host",
];

/// An edge that is a server.
pub struct EdgeServer {
    name: &'static str,
    server: Server,
    world: World,
    /// The number of replayed vectors: each has its own namespace.
    count: usize,
}

impl EdgeServer {
    /// Builds the edge and starts its runtime.
    ///
    /// # Errors
    /// It cannot be built, or its runtime is missing.
    pub fn start(name: &'static str) -> Result<Self> {
        let world = World::start()?;
        let server = match name {
            FASTLY => edge::fastly(Build::Conformance, world.address, &BTreeMap::new())?,
            _ => edge::cloudflare(Build::Conformance, &BTreeMap::new())?,
        };
        Ok(Self {
            name,
            server,
            world,
            count: 0,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    fn replay_one(&mut self, vector: &Vector) -> Result<Replay> {
        self.count += 1;
        let variables = serde_json::to_vec(&variables(vector, self.world.address)?)?;
        let space = format!("v{}", self.count);
        let mut outcomes = Vec::new();
        for step in &vector.steps {
            let mut ask = ask(step)?;
            let mut add = |name: &str, value: &[u8]| {
                ask.headers
                    .push((format!("x-conformance-{name}"), value.to_vec()));
            };
            add("variables", &variables);
            add("space", space.as_bytes());
            add("now-ms", step.at_ms.to_string().as_bytes());
            add("client", step.request.from.as_bytes());
            outcomes.push(self.step(vector, step, &ask)?);
        }
        Ok(Replay {
            outcomes,
            effect: BTreeMap::new(),
        })
    }

    fn step(&mut self, vector: &Vector, step: &Step, ask: &Ask) -> Result<Outcome> {
        let origin = vector.origin_answer(&step.request.path);
        {
            let mut traffic = self.world.traffic();
            traffic.feeds = feeds(vector, step.at_ms)?;
            traffic.gateway = Some((origin.status, origin.headers.clone(), String::new()));
            traffic.seen.clear();
        }
        let ClientResponse {
            status,
            headers,
            body,
        } = send(self.server.address, ask)?;
        self.server.check()?;
        let observed = self.world.traffic().seen.pop();
        let outcome = match observed {
            Some(mut observed) => {
                let sent = &step.request.headers;
                observed.retain(|(name, _)| is_edges(name, sent));
                policy::sent_on(vector, step, observed)?
            }
            None => answered(status, of_answer(headers), &body),
        };
        Ok(outcome.to_method(&step.request.method).sorted())
    }
}

/// Whether the edge added a header that the gateway received.
fn is_edges(name: &str, sent: &Headers) -> bool {
    let is_sent = sent.iter().any(|(existing, _)| existing == name);
    !name.starts_with(':') && (is_sent || !OF_SERVERS.contains(&name))
}

/// Removes headers that servers add to answers.
fn of_answer(mut headers: Headers) -> Headers {
    headers.retain(|(name, _)| name != "keep-alive" && name != "cf-ray");
    headers
}

/// The environment variables of the edge.
fn variables(vector: &Vector, world: SocketAddr) -> Result<BTreeMap<String, String>> {
    let config = config(vector).context("edges have no such filter")?;
    let mut all = BTreeMap::from([
        (EDGE_SECRET.0.to_owned(), EDGE_SECRET.1.to_owned()),
        ("WEIR_EDGE_CONFIG".to_owned(), config.to_string()),
        ("WEIR_EDGE_ORIGIN".to_owned(), format!("http://{world}")),
        ("WEIR_EDGE_GATEWAY".to_owned(), format!("http://{world}")),
    ]);
    // Excludes secrets that an edge must not have.
    let secrets = vector.secrets.iter();
    let secrets = secrets.filter(|(name, _)| *name != "WEIR_CLAIM_SECRET");
    all.extend(secrets.map(|(name, secret)| (name.clone(), secret.clone())));
    Ok(all)
}

fn ask(step: &Step) -> Result<Ask> {
    let request = &step.request;
    let header = |(name, value): &(String, String)| Ok((name.clone(), unescape(value)?));
    Ok(Ask {
        head: [
            request.method.clone().into_bytes(),
            unescape(&request.path)?,
            unescape(&request.host)?,
        ],
        headers: request.headers.iter().map(header).collect::<Result<_>>()?,
        body: unescape(&request.body)?,
    })
}

/// The reason why the platform's HTTP cannot pass a vector's request to an edge unchanged, if any.
fn cannot_in(name: &str, vector: &Vector) -> Option<&'static str> {
    let is_other = |step: &Step| {
        let headers = &step.request.headers;
        let went_on = matches!(step.expect, Outcome::WentOn { .. });
        let is_repeated = |(at, (name, _)): (usize, &(String, String))| {
            headers.iter().take(at).any(|(other, _)| other == name)
        };
        let is_bytes = |(_, value): &(String, String)| value.contains("\\x");
        went_on && (headers.iter().any(is_bytes) || headers.iter().enumerate().any(is_repeated))
    };
    if name == CLOUDFLARE && vector.steps.iter().any(is_other) {
        return Some("JavaScript's headers are text, and one of a name");
    }
    let mut paths = vector.steps.iter().map(|step| &step.request.path);
    let is_spelled = paths.any(|path| path.contains('\''));
    is_spelled.then_some("the platform's URLs spell ' as %27")
}

impl Host for EdgeServer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cannot(&self, vector: &Vector) -> Option<&'static str> {
        cannot(vector).or_else(|| cannot_in(self.name, vector))
    }

    fn claims(&self) -> bool {
        false
    }

    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>> {
        self.server.check()?;
        Ok(vectors
            .iter()
            .map(|vector| self.replay_one(vector))
            .collect())
    }
}
