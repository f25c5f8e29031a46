//! The processing of one request: due feeds, the edge's decision, and its effects.

use fastly::http::{Method, StatusCode};
use fastly::{Body, Request, Response};
use weir_edge::edge::Pairs;
use weir_edge::host::{
    FEEDS_MAX, FORWARDED_HOST, Incoming, OF_CONNECTION, answered, misconfigured, no_gateway,
};
use weir_edge::knowledge::Feed;
use weir_edge::{Decision, Edge};
use weir_engine::event::PlainRequest;
use weir_engine::{Answer, Request as _};

use crate::client::{address, is_clients, is_of_suite, now_ms};
use crate::settings;
use crate::store::Cached;

/// The service's backends.
const ORIGIN: &str = "origin";
const GATEWAY: &str = "gateway";

/// A placeholder for a backend that overrides the host.
const SOMEWHERE: &str = "http://weir.invalid";

/// Serves a request; errors become responses. A page of links takes many writes to the KV store, so it is read after
/// the response.
pub(crate) fn serve(request: Request) {
    let mut edge = match settings::edge(&request) {
        Ok(edge) => edge,
        Err(problem) => {
            eprintln!("weir: {problem}");
            return sent(&misconfigured(), "GET").send_to_client();
        }
    };
    let (now_ms, of_suite) = (now_ms(&request), is_of_suite(&request));
    read_feeds(&mut edge, &[Feed::SoldOut, Feed::Domains], now_ms);
    if of_suite {
        read_feeds(&mut edge, &[Feed::Links], now_ms);
    }
    answer(&mut edge, request, now_ms).send_to_client();
    if !of_suite {
        read_feeds(&mut edge, &[Feed::Links], now_ms);
    }
}

fn answer(edge: &mut Edge<Cached>, request: Request, now_ms: u64) -> Response {
    let engine_request = engine_request(&request, now_ms);
    match edge.decide(&engine_request) {
        Decision::Answer(answer) => sent(&answer, request.get_method_str()),
        Decision::Forward(headers) => {
            forward(request, &engine_request, &headers).unwrap_or_else(|error| {
                eprintln!("weir: no answer from the gateway: {error}");
                sent(&no_gateway(), "GET")
            })
        }
    }
}

// --- feeds

/// Requests due feeds among these. If the origin does not answer, the existing data stays until it expires. The backend
/// sets the timeout.
fn read_feeds(edge: &mut Edge<Cached>, feeds: &[Feed], now_ms: u64) {
    for feed in feeds {
        for _ in 0..FEEDS_MAX {
            let Some(path) = edge.due_of(*feed, now_ms) else {
                break;
            };
            if let Err(error) = read_feed(edge, *feed, &path, now_ms) {
                eprintln!("weir: {path}: {error}");
            }
        }
    }
}

fn read_feed(
    edge: &mut Edge<Cached>,
    feed: Feed,
    path: &str,
    now_ms: u64,
) -> Result<(), fastly::Error> {
    let signed = edge.stamp("GET", path, "", now_ms);
    let mut response = Request::new(Method::GET, format!("{SOMEWHERE}{path}"))
        .with_pass(true)
        .with_header(weir_edge::EDGE, signed.value)
        .with_header(weir_edge::EDGE_SIGNATURE, signed.signature)
        .send(ORIGIN)?;
    let status = response.get_status().as_u16();
    let text = response.take_body_bytes();
    Ok(edge.take(feed, status, &text, now_ms)?)
}

// --- a request

/// The path of a request, with its query.
fn path(request: &Request) -> String {
    let url = request.get_url();
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

/// The request for engines.
fn engine_request(request: &Request, now_ms: u64) -> PlainRequest {
    let incoming = Incoming {
        method: request.get_method_str(),
        path: &path(request),
        authority: None,
        client: Some(&address(request)),
        client_header: None,
        now_ms,
    };
    let headers: Vec<(&str, &[u8])> = request
        .get_headers()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .filter(|(name, _)| is_clients(name))
        .collect();
    incoming.request(headers.into_iter())
}

/// A request for the gateway must bypass the cache.
fn forward(
    mut request: Request,
    engine_request: &PlainRequest,
    headers: &Pairs,
) -> Result<Response, fastly::Error> {
    let host = engine_request
        .header(":authority")
        .unwrap_or_default()
        .into_owned();
    let url = request.get_url_str().to_owned();
    let mut to_gateway = Request::new(request.get_method().clone(), url).with_pass(true);
    for (name, value) in headers {
        to_gateway.append_header(name.as_str(), value.as_slice());
    }
    to_gateway.set_header(FORWARDED_HOST, host.as_slice());
    if let Some(body) = request.try_take_body() {
        to_gateway.set_body(body);
    }
    let mut response = to_gateway.send(GATEWAY)?;
    for name in OF_CONNECTION {
        response.remove_header(name);
    }
    Ok(response)
}

// --- answers

fn sent(answer: &Answer, method: &str) -> Response {
    let (status, headers, body) = answered(answer, method);
    let status = StatusCode::from_u16(status).unwrap_or_default();
    let mut response = Response::from_body(Body::from(body)).with_status(status);
    for (name, value) in headers {
        response.append_header(name.as_str(), value.as_slice());
    }
    response
}
