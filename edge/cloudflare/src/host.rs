//! The processing of one request: due feeds, the edge's decision, and its effects.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_edge::edge::{Pairs, Variable};
use weir_edge::host::{
    FEEDS_MAX, FORWARDED_HOST, Incoming, OF_CONNECTION, answered, misconfigured, no_gateway,
};
use weir_edge::knowledge::{Feed, PROGRESS_KEY};
use weir_edge::{Decision, FirstOutcome};
use weir_engine::event::PlainRequest;
use weir_engine::{Answer, Request as _};
use worker::{
    Context, Env, Fetch, Headers, Method, Request, RequestInit, RequestRedirect, Response,
    ResponseBuilder, Result,
};

use crate::client::{bytes, client_header, is_clients, now_ms, text};
use crate::front::Front;
use crate::settings::{Site, variables};
use crate::{limits, sell, shard};

/// The namespace of links, and of the object that fills it.
pub(crate) const LINKS: &str = "WEIR_LINKS";
const FEED: &str = "WEIR_FEED";

/// Maximum retries of a request after fetching a link: usually one is enough.
const FETCHES_MAX: usize = 2;

thread_local! {
    /// Created by the first request, and kept for the isolate's lifetime. Outside the conformance suite there is one.
    static SITES: RefCell<BTreeMap<String, Site>> = const { RefCell::new(BTreeMap::new()) };
}

/// Serves a request; errors become responses.
pub(crate) async fn serve(mut request: Request, env: &Env, context: &Context) -> Result<Response> {
    let space = space(&request);
    if let Err(problem) = open(&space, &request, env) {
        worker::console_error!("weir: {problem}");
        return sent(&misconfigured(), "GET");
    }
    if let Some(response) = shard::relayed(&space, &mut request, env).await? {
        return Ok(response);
    }
    let now_ms = now_ms(&request);
    let engine_request = engine_request(&request, now_ms)?;
    if let Some(refusal) = limits::refusal(&space, &request, &engine_request, env).await {
        return Ok(refusal);
    }
    read_feeds(&space, &request, now_ms, env, context).await;
    fetch_links(&space, &request, &engine_request, env).await;
    match with_site(&space, |site| site.edge.begin(&engine_request)) {
        Some(FirstOutcome::Decided(Decision::Answer(answer))) => {
            sent(&answer, request.method().as_ref())
        }
        Some(FirstOutcome::Decided(Decision::Forward(headers))) => {
            to_gateway(&space, request, &engine_request, &headers).await
        }
        Some(FirstOutcome::Asks(pending)) => {
            sell::sell(&space, request, &engine_request, pending, (env, context)).await
        }
        None => sent(&misconfigured(), "GET"),
    }
}

/// The edge of this isolate that serves a request.
#[cfg(not(feature = "conformance"))]
fn space(_request: &Request) -> String {
    String::new()
}

/// Each conformance vector has its own edge.
#[cfg(feature = "conformance")]
fn space(request: &Request) -> String {
    let space = request.headers().get("x-conformance-space");
    space.ok().flatten().unwrap_or_default()
}

/// The name of a key in the namespace.
pub(crate) fn name(request: &Request, key: &str) -> String {
    name_in(&space(request), key)
}

/// The same, for one edge of this isolate.
pub(crate) fn name_in(space: &str, key: &str) -> String {
    match space.is_empty() {
        true => key.into(),
        false => format!("{space}/{key}"),
    }
}

/// The variables in a request, only from the conformance suite.
pub(crate) fn variables_of(request: &Request) -> Option<Rc<Variable>> {
    if !cfg!(feature = "conformance") {
        return None;
    }
    let json = request.headers().get("x-conformance-variables").ok()??;
    let parsed: BTreeMap<String, String> = serde_json::from_slice(&bytes(&json)).ok()?;
    Some(Rc::new(move |name| {
        parsed.get(name).map(|value| value.clone().into_bytes())
    }))
}

fn open(space: &str, request: &Request, env: &Env) -> std::result::Result<(), String> {
    SITES.with_borrow_mut(|sites| {
        if !sites.contains_key(space) {
            let variable = variables_of(request).unwrap_or_else(|| variables(env));
            let site = Site::new(variable, Rc::new(Front::default()))?;
            sites.insert(space.into(), site);
        }
        Ok(())
    })
}

pub(crate) fn with_site<T>(space: &str, act: impl FnOnce(&mut Site) -> T) -> Option<T> {
    SITES.with_borrow_mut(|sites| sites.get_mut(space).map(act))
}

// --- feeds

/// Requests due feeds. If the origin does not answer, the existing data stays until it expires.
async fn read_feeds(space: &str, request: &Request, now_ms: u64, env: &Env, context: &Context) {
    for _ in 0..FEEDS_MAX {
        let due = with_site(space, |site| {
            site.front.set_clock(now_ms);
            site.edge.due(now_ms)
        });
        let Some(Some((feed, path))) = due else {
            return;
        };
        let read = match feed {
            Feed::Links => read_progress(space, request, env, context).await,
            _ => read_feed(space, feed, &path, now_ms).await,
        };
        if let Err(error) = read {
            worker::console_error!("weir: {path}: {error}");
        }
    }
}

/// Reads the progress of the link feed from the namespace, and notifies the object that reads the feed.
async fn read_progress(space: &str, request: &Request, env: &Env, context: &Context) -> Result<()> {
    let poked = poke(request, env);
    match cfg!(feature = "conformance") {
        true => poked.await?,
        // Not awaited: the existing data is still valid.
        false => context.wait_until(async move {
            if let Err(error) = poked.await {
                worker::console_error!("weir: the feed's object: {error}");
            }
        }),
    }
    let progress = env
        .kv(LINKS)?
        .get(&name(request, PROGRESS_KEY))
        .bytes()
        .await?;
    with_site(space, |site| {
        site.front.learn(PROGRESS_KEY, progress);
        site.edge.follow();
    });
    Ok(())
}

fn poke(request: &Request, env: &Env) -> impl Future<Output = Result<()>> + 'static {
    let (env, headers) = (env.clone(), conformance_headers(request));
    let object = name(request, "links");
    async move {
        let object = env.durable_object(FEED)?.get_by_name(&object)?;
        let mut init = RequestInit::new();
        init.with_headers(headers?);
        let poke = Request::new_with_init("http://feed/", &init)?;
        object.fetch_with_request(poke).await.map(drop)
    }
}

/// The headers of the conformance suite, for the object.
fn conformance_headers(request: &Request) -> Result<Headers> {
    let headers = Headers::new();
    for (name, value) in request.headers().entries() {
        if cfg!(feature = "conformance") && name.starts_with("x-conformance-") {
            headers.set(&name, &value)?;
        }
    }
    Ok(headers)
}

async fn read_feed(space: &str, feed: Feed, path: &str, now_ms: u64) -> Result<()> {
    let engine_request = with_site(space, |site| feed_request(site, path, now_ms));
    let (status, text) = ask(engine_request.ok_or("no edge")??).await?;
    let accepted = with_site(space, |site| site.edge.take(feed, status, &text, now_ms));
    match accepted {
        Some(Err(error)) => Err(worker::Error::RustError(error.to_string())),
        _ => Ok(()),
    }
}

/// A request for a feed, with the edge's assertion.
pub(crate) fn feed_request(site: &Site, path: &str, now_ms: u64) -> Result<Request> {
    let signed = site.edge.stamp("GET", path, "", now_ms);
    let headers = Headers::new();
    headers.set(weir_edge::EDGE, &signed.value)?;
    headers.set(weir_edge::EDGE_SIGNATURE, &signed.signature)?;
    let mut init = RequestInit::new();
    init.with_headers(headers);
    Request::new_with_init(&format!("{}{path}", site.upstreams.origin), &init)
}

/// The origin's response: status and document.
pub(crate) async fn ask(request: Request) -> Result<(u16, Vec<u8>)> {
    let mut response = Fetch::Request(request).send().await?;
    Ok((response.status_code(), response.bytes().await?))
}

/// Fetches links that this request needs and the isolate does not have.
async fn fetch_links(space: &str, request: &Request, engine_request: &PlainRequest, env: &Env) {
    for _ in 0..FETCHES_MAX {
        let missing = with_site(space, |site| {
            site.edge.prepare(engine_request);
            site.front.take_missing()
        });
        let missing = missing.unwrap_or_default();
        if missing.is_empty() {
            return;
        }
        for key in missing {
            let Ok(links) = env.kv(LINKS) else { return };
            match links.get(&name(request, &key)).bytes().await {
                Ok(value) => with_site(space, |site| site.front.learn(&key, value)),
                // A gateway answers then.
                Err(_) => return,
            };
        }
    }
}

// --- a request

/// The path of a request, with its query.
pub(crate) fn path(request: &Request) -> Result<(String, String)> {
    let url = request.url()?;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Ok((path, authority))
}

/// The request for engines.
pub(crate) fn engine_request(request: &Request, now_ms: u64) -> Result<PlainRequest> {
    let (path, authority) = path(request)?;
    let method = request.method();
    let incoming = Incoming {
        method: method.as_ref(),
        path: &path,
        authority: Some(authority.as_bytes()),
        client: None,
        client_header: Some(client_header()),
        now_ms,
    };
    let headers: Vec<(String, Vec<u8>)> = request
        .headers()
        .entries()
        .filter(|(name, _)| is_clients(name))
        .map(|(name, value)| (name, bytes(&value)))
        .collect();
    let headers = headers.iter().map(|(name, value)| (&**name, &**value));
    Ok(incoming.request(headers))
}

/// The gateway's response.
pub(crate) async fn to_gateway(
    space: &str,
    request: Request,
    engine_request: &PlainRequest,
    headers: &Pairs,
) -> Result<Response> {
    let gateway = with_site(space, |site| site.upstreams.gateway.clone());
    let (path, _) = path(&request)?;
    let url = format!("{}{path}", gateway.unwrap_or_default());
    origin_response(forward(request, engine_request, headers, &url).await)
}

/// The result of a passed request.
pub(crate) fn origin_response(response: Result<Response>) -> Result<Response> {
    response.or_else(|error| {
        worker::console_error!("weir: no answer from the gateway or the origin: {error}");
        sent(&no_gateway(), "GET")
    })
}

/// The client follows the gateway's redirects, not this code.
pub(crate) async fn forward(
    request: Request,
    engine_request: &PlainRequest,
    headers: &Pairs,
    url: &str,
) -> Result<Response> {
    let to_gateway = Headers::new();
    for (name, value) in headers {
        to_gateway.append(name, &text(value))?;
    }
    let host = engine_request.header(":authority").unwrap_or_default();
    to_gateway.set(FORWARDED_HOST, &text(&host))?;
    let method = request.method();
    let mut init = RequestInit::new();
    if !matches!(method, Method::Get | Method::Head) {
        init.with_body(request.inner().body().map(Into::into));
    }
    init.with_method(method)
        .with_headers(to_gateway)
        .with_redirect(RequestRedirect::Manual);
    let request = Request::new_with_init(url, &init)?;
    let mut response = Fetch::Request(request).send().await?;
    let headers = Headers::new();
    for (name, value) in response.headers().entries() {
        if !OF_CONNECTION.contains(&&*name) {
            headers.append(&name, &value)?;
        }
    }
    Ok(response.cloned()?.with_headers(headers))
}

// --- answers

pub(crate) fn sent(answer: &Answer, method: &str) -> Result<Response> {
    let (status, headers, body) = answered(answer, method);
    let all = Headers::new();
    for (name, value) in headers {
        all.append(&name, &text(&value))?;
    }
    let builder = ResponseBuilder::new().with_status(status).with_headers(all);
    Ok(match body.is_empty() {
        true => builder.empty(),
        false => builder.fixed(body),
    })
}
