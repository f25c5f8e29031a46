//! The processing of one request: due feeds, the edge's decision, and its effects.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_edge::Decision;
use weir_edge::host::{
    FEED_TIMEOUT_MS, FEEDS_MAX, FORWARDED_HOST, Incoming, OF_CONNECTION, Upstreams, answered,
    misconfigured, no_gateway,
};
use weir_edge::knowledge::Feed;
use weir_engine::Answer;
use weir_engine::event::PlainRequest;
use wstd::http::body::Bytes;
use wstd::http::{Body, Client, Error, HeaderMap, Request, Response, StatusCode, Uri};

use crate::settings::Settings;

thread_local! {
    /// Created by the first request, and kept for the instance's lifetime.
    static SETTINGS: RefCell<Option<Settings>> = const { RefCell::new(None) };
}

/// Serves a request; errors become responses.
pub(crate) async fn serve(request: Request<Body>) -> Response<Body> {
    let upstreams = match upstreams() {
        Ok(upstreams) => upstreams,
        Err(problem) => {
            eprintln!("weir: {problem}");
            return sent(&misconfigured(), "GET");
        }
    };
    read_feeds(&upstreams).await;
    let engine_request = engine_request(&request, &upstreams);
    let (parts, body) = request.into_parts();
    let decision = with_edge(|settings| settings.edge.decide(&engine_request));
    match decision {
        Some(Decision::Answer(answer)) => sent(&answer, parts.method.as_str()),
        Some(Decision::Forward(headers)) => {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            let host = engine_request.headers.get(":authority").unwrap_or_default();
            let to = format!("{}{path}", upstreams.gateway);
            let received = forward(&to, parts.method, headers, &host, body).await;
            received.unwrap_or_else(|error| {
                eprintln!("weir: no answer from the gateway: {error:#}");
                sent(&no_gateway(), "GET")
            })
        }
        None => sent(&misconfigured(), "GET"),
    }
}

/// The servers behind the edge. The first call reads the environment.
fn upstreams() -> Result<Upstreams, String> {
    SETTINGS.with_borrow_mut(|settings| {
        if settings.is_none() {
            *settings = Some(Settings::read()?);
        }
        let read = settings.as_ref().map(|settings| settings.upstreams.clone());
        read.ok_or_else(String::new)
    })
}

fn with_edge<T>(act: impl FnOnce(&mut Settings) -> T) -> Option<T> {
    SETTINGS.with_borrow_mut(|settings| settings.as_mut().map(act))
}

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

// --- feeds

/// Requests due feeds. If the origin does not answer, the existing data stays until it expires.
async fn read_feeds(upstreams: &Upstreams) {
    for _ in 0..FEEDS_MAX {
        let Some(Some((feed, path))) = with_edge(|settings| settings.edge.due(now_ms())) else {
            return;
        };
        if let Err(error) = read_feed(upstreams, feed, &path).await {
            eprintln!("weir: {path}: {error:#}");
        }
    }
}

async fn read_feed(upstreams: &Upstreams, feed: Feed, path: &str) -> Result<(), Error> {
    let mut response = feed_client().send(feed_request(upstreams, path)?).await?;
    let status = response.status().as_u16();
    let text = response.body_mut().bytes_contents().await?;
    let accepted = with_edge(|settings| settings.edge.take(feed, status, &text, now_ms()));
    Ok(accepted.transpose().map(drop)?)
}

fn feed_client() -> Client {
    let mut client = Client::new();
    let timeout = Duration::from_millis(FEED_TIMEOUT_MS);
    client.set_connect_timeout(timeout);
    client.set_first_byte_timeout(timeout);
    client
}

fn feed_request(upstreams: &Upstreams, path: &str) -> Result<Request<Body>, Error> {
    let signed = with_edge(|settings| settings.edge.stamp("GET", path, "", now_ms()));
    let mut request = Request::get(format!("{}{path}", upstreams.origin));
    if let Some(signed) = signed {
        request = request
            .header(weir_edge::EDGE, signed.value)
            .header(weir_edge::EDGE_SIGNATURE, signed.signature);
    }
    Ok(request.body(Body::empty())?)
}

// --- a request

/// The request for engines.
fn engine_request(request: &Request<Body>, upstreams: &Upstreams) -> PlainRequest {
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let incoming = Incoming {
        method: request.method().as_str(),
        path,
        authority: uri
            .authority()
            .map(|authority| authority.as_str().as_bytes()),
        client: None,
        client_header: upstreams.client_header.as_deref(),
        now_ms: now_ms(),
    };
    let headers = request.headers().iter();
    incoming.request(headers.map(|(name, value)| (name.as_str(), value.as_bytes())))
}

async fn forward(
    to: &str,
    method: wstd::http::Method,
    headers: Vec<(String, Vec<u8>)>,
    host: &[u8],
    body: Body,
) -> Result<Response<Body>, Error> {
    let mut request = Request::builder().method(method).uri(to.parse::<Uri>()?);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request = request.header(FORWARDED_HOST, host);
    let mut response = Client::new().send(request.body(body)?).await?;
    for name in OF_CONNECTION {
        response.headers_mut().remove(name);
    }
    Ok(response)
}

// --- answers

fn sent(answer: &Answer, method: &str) -> Response<Body> {
    let (status, headers, body) = answered(answer, method);
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    add(&headers, response.headers_mut());
    response
}

fn add(from: &[(String, Vec<u8>)], to: &mut HeaderMap) {
    for (name, value) in from {
        let name = wstd::http::HeaderName::from_bytes(name.as_bytes());
        let value = wstd::http::HeaderValue::from_bytes(value);
        // Engines only write valid headers.
        if let (Ok(name), Ok(value)) = (name, value) {
            to.append(name, value);
        }
    }
}
