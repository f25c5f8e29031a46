//! The edge's policy without a runtime. A forwarded request satisfies every vector that an edge may forward.

use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use weir_base::headers::{EDGE as EDGE_HEADER, EDGE_SIGNATURE};
use weir_base::shared_data::LocalData;
use weir_base::stamp::Stamp;
use weir_edge::edge::{EdgeSetup, to_http};
use weir_edge::store::MemoryStore;
use weir_edge::{Decision, Edge};
use weir_engine::event::PlainRequest;

use super::feeds::{EDGE_SECRET, config, feeds, keys};
use crate::host::{answered, went_on};
use crate::hosts::engine::{request_headers, text};
use crate::text::escape;
use crate::vector::{Headers, Outcome, Step, Vector};

/// The header to which an edge appends the client's address.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The policy's outcome of each step of a vector; `None` if edges have no such filter.
///
/// # Errors
/// The edge refuses its configuration, or forwards a request without an assertion.
pub fn replay(vector: &Vector) -> Result<Option<Vec<Outcome>>> {
    let Some(config) = config(vector) else {
        return Ok(None);
    };
    let secrets = vector.secrets.clone();
    let setup = EdgeSetup {
        variable: Box::new(move |name| match name == EDGE_SECRET.0 {
            true => Some(EDGE_SECRET.1.into()),
            false => secrets.get(name).map(|secret| secret.clone().into_bytes()),
        }),
        seed: 7,
        data: Rc::new(LocalData::default()),
        counts_exactly: false,
    };
    let store = Rc::new(MemoryStore::default());
    let edge = Edge::new(config.to_string().as_bytes(), setup, store);
    let mut edge = edge.map_err(|error| anyhow!("the configuration is refused: {error}"))?;
    let outcome = |step: &Step| {
        let feeds = feeds(vector, step.at_ms)?;
        while let Some((feed, path)) = edge.due(step.at_ms) {
            let text = feeds.get(&path).map_or("", String::as_str);
            let status = if text.is_empty() { 503 } else { 200 };
            // A feed that is not newer is refused.
            let _ = edge.take(feed, status, text.as_bytes(), step.at_ms);
        }
        step_of(&mut edge, vector, step)
    };
    vector
        .steps
        .iter()
        .map(outcome)
        .collect::<Result<_>>()
        .map(Some)
}

fn step_of(edge: &mut Edge<Rc<MemoryStore>>, vector: &Vector, step: &Step) -> Result<Outcome> {
    let headers = request_headers(&step.request)?;
    let request = PlainRequest {
        headers: weir_engine::Headers::new(&headers),
        peer_address: step.request.from.clone().into_bytes(),
        now_ms: step.at_ms,
    };
    let outcome = match edge.decide(&request) {
        Decision::Answer(answer) => {
            let (status, headers, body) = to_http(&answer);
            answered(status, pairs(&headers), &body)
        }
        Decision::Forward(observed) => sent_on(vector, step, pairs(&observed))?,
    };
    Ok(outcome.to_method(&step.request.method).sorted())
}

fn pairs(headers: &[(String, Vec<u8>)]) -> Headers {
    headers
        .iter()
        .map(|(name, value)| (name.clone(), escape(value)))
        .collect()
}

/// The outcome of a request that the gateway received with these headers. It must have a valid edge assertion, which is
/// then removed.
///
/// # Errors
/// The assertion is missing or invalid.
pub fn sent_on(vector: &Vector, step: &Step, mut headers: Headers) -> Result<Outcome> {
    let find = |name: &str| {
        let mut found = headers.iter().filter(|(existing, _)| existing == name);
        let value = found.next().map(|(_, value)| value.clone());
        value.filter(|_| found.next().is_none())
    };
    let value = find(EDGE_HEADER).context("sent on without one stamp")?;
    let signature = find(EDGE_SIGNATURE).context("sent on without one signature")?;
    let request = &step.request;
    let requested = (request.method.as_str(), request.path.as_str());
    let stamp = Stamp::verify(&keys()?, &value, &signature, requested, step.at_ms);
    let stamp = stamp.context("sent on with a stamp that does not count")?;
    let client = request
        .from
        .rsplit_once(':')
        .map_or("", |(address, _)| address);
    anyhow::ensure!(stamp.client == client, "stamped for {}", stamp.client);
    let sent = text(&request_headers(request)?);
    let is_forwarded = |(name, _): &&(String, String)| name == FORWARDED_FOR;
    let before: Vec<&str> = sent
        .iter()
        .filter(is_forwarded)
        .map(|(_, value)| value.as_str())
        .collect();
    let before = (!before.is_empty()).then(|| before.join(","));
    let all: Vec<&str> = before.as_deref().into_iter().chain([client]).collect();
    let forwarded = find(FORWARDED_FOR).unwrap_or_default();
    anyhow::ensure!(forwarded == all.join(", "), "forwarded for {forwarded}");
    let is_edges = |name: &str| [EDGE_HEADER, EDGE_SIGNATURE, FORWARDED_FOR].contains(&name);
    headers.retain(|(name, _)| !is_edges(name));
    headers.extend(sent.iter().filter(is_forwarded).cloned());
    headers.extend(
        sent.iter()
            .filter(|(name, _)| name.starts_with(':'))
            .cloned(),
    );
    let origin = vector.origin_answer(&request.path);
    let actual = origin.headers.clone();
    Ok(went_on(&sent, headers, &origin, actual))
}
