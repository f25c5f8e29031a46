//! `edge/wasi` in `wasmtime-wasi-http`. It answers what an edge may answer, and forwards other requests to a gateway.

pub mod feeds;
pub mod policy;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_stack::edge;

use crate::host::{Host, Replay, answered};
use crate::text::{escape, unescape};
use crate::vector::{Headers, Outcome, Step, Vector};
use feeds::{EDGE_SECRET, config, feeds};

/// The name of this host.
pub const NAME: &str = "wasi";

/// The header in which the runtime passes the client's address.
const CLIENT: &str = "x-conformance-client";

/// The runtime, with the component.
pub struct Wasi {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Message {
    status: u16,
    headers: Headers,
    body: String,
}

#[derive(Deserialize)]
struct ReceivedRequest {
    headers: Headers,
}

#[derive(Deserialize)]
struct Done {
    got: Message,
    seen: Option<ReceivedRequest>,
}

impl Wasi {
    /// Builds component and runtime, and starts it.
    ///
    /// # Errors
    /// They cannot be built, for example without a compiler for the target.
    pub fn start() -> Result<Self> {
        let (component, host) = (edge::wasi_component()?, edge::wasi_host()?);
        let mut process = Command::new(host)
            .arg(component)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the runtime")?;
        let orders = process.stdin.take().context("no stdin")?;
        let answers = process.stdout.take().context("no stdout")?;
        Ok(Self {
            process,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Runs one order and returns its result.
    ///
    /// # Errors
    /// The runtime has ended, for example after a trap.
    pub fn order(&mut self, order: &Value) -> Result<Value> {
        writeln!(self.orders, "{order}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).context("the runtime has ended")?;
        match answer.get("error") {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    fn replay_one(&mut self, vector: &Vector) -> Result<Replay> {
        let config = config(vector).context("edges have no such filter")?;
        let mut env: BTreeMap<&str, String> = BTreeMap::from([
            (EDGE_SECRET.0, EDGE_SECRET.1.to_owned()),
            ("WEIR_EDGE_CONFIG", config.to_string()),
            ("WEIR_EDGE_ORIGIN", "http://origin.test".to_owned()),
            ("WEIR_EDGE_GATEWAY", "http://gateway.test".to_owned()),
            ("WEIR_EDGE_CLIENT_HEADER", CLIENT.to_owned()),
        ]);
        let secrets = vector.secrets.iter();
        // Excludes secrets that an edge must not have.
        let secrets = secrets.filter(|(name, _)| *name != "WEIR_CLAIM_SECRET");
        env.extend(secrets.map(|(name, secret)| (name.as_str(), secret.clone())));
        self.order(&json!({ "start": { "env": env, "folder": null } }))?;
        let steps = vector.steps.iter();
        let outcomes = steps.map(|step| self.step(vector, step));
        Ok(Replay {
            outcomes: outcomes.collect::<Result<_>>()?,
            effect: BTreeMap::new(),
        })
    }

    fn step(&mut self, vector: &Vector, step: &Step) -> Result<Outcome> {
        let done: Done = serde_json::from_value(self.order(&order(vector, step)?)?)?;
        let outcome = match done.seen {
            Some(observed) => {
                // The component passes the client's host to the gateway in a header; it becomes `:authority`.
                let mut headers = from_bytes(&observed.headers);
                headers.retain(|(name, _)| !["host", "x-forwarded-host"].contains(&name.as_str()));
                policy::sent_on(vector, step, headers)?
            }
            None => {
                let body = bytes(&done.got.body);
                answered(done.got.status, from_bytes(&done.got.headers), &body)
            }
        };
        Ok(outcome.to_method(&step.request.method).sorted())
    }
}

impl Drop for Wasi {
    /// Closing its input ends it, without waiting.
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A request, with the answers of the origin and the gateway.
fn order(vector: &Vector, step: &Step) -> Result<Value> {
    let request = &step.request;
    let mut headers = vec![(CLIENT.to_owned(), request.from.clone())];
    for (name, value) in &request.headers {
        headers.push((name.clone(), latin(&unescape(value)?)));
    }
    let body = unescape(&request.body)?;
    if !body.is_empty() {
        headers.push(("content-length".to_owned(), body.len().to_string()));
    }
    let feeds = feeds(vector, step.at_ms)?;
    let feeds = feeds
        .iter()
        .map(|(path, text)| (path, (200, latin(text.as_bytes()))));
    let feeds: BTreeMap<_, _> = feeds.collect();
    let origin = vector.origin_answer(&request.path);
    Ok(json!({ "ask": {
        "now_ms": step.at_ms,
        "method": request.method,
        "path": latin(&unescape(&request.path)?),
        "host": latin(&unescape(&request.host)?),
        "headers": headers,
        "body": latin(&body),
        "feeds": feeds,
        "gateway": { "status": origin.status, "headers": origin.headers, "body": "" },
    } }))
}

/// Encodes bytes for the runtime: one character per byte.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes(latin: &str) -> Vec<u8> {
    latin
        .chars()
        .map(|char| u8::try_from(char).unwrap_or(b'?'))
        .collect()
}

fn from_bytes(headers: &Headers) -> Headers {
    let pair = |(name, value): &(String, String)| (name.clone(), escape(&bytes(value)));
    headers.iter().map(pair).collect()
}

/// The reason why an edge's answer differs from a gateway's for a vector, if any.
pub(super) fn cannot(vector: &Vector) -> Option<&'static str> {
    match vector.engine.as_str() {
        "events" | "fitment" | "waiting-room" => return Some("edges have no such filter"),
        "ratelimit-headers" => return Some("edges add nothing to the gateway's responses"),
        _ => {}
    }
    if vector
        .steps
        .iter()
        .any(|step| step.polls > 0 || !step.stored.is_empty())
    {
        return Some("what changes between requests comes to edges by feeds");
    }
    if vector
        .steps
        .iter()
        .any(|step| !step.request.path.is_ascii() || step.request.path.contains('\\'))
    {
        return Some("the runtime's HTTP knows no such path");
    }
    let policy = match policy::replay(vector) {
        Ok(Some(outcomes)) => outcomes,
        Ok(None) => return Some("edges have no such filter"),
        Err(_) => return Some("edges refuse its configuration, as they have no Redis"),
    };
    let is_sent_on = |(step, received): (&Step, &Outcome)| {
        received != &step.expect && matches!(received, Outcome::WentOn { .. })
    };
    let is_sent_on = vector.steps.iter().zip(&policy).any(is_sent_on);
    (is_sent_on || !vector.effect.is_empty())
        .then_some("needs one place that counts: sent on to a gateway")
}

impl Host for Wasi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cannot(&self, vector: &Vector) -> Option<&'static str> {
        cannot(vector)
    }

    fn claims(&self) -> bool {
        false
    }

    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the runtime has ended: {status}");
        }
        Ok(vectors
            .iter()
            .map(|vector| self.replay_one(vector))
            .collect())
    }
}
