//! A gateway for events from `envoy/events.yaml`, with a site and an origin that tests observe.
//!
//! The origin is a real HTTP server that judges bodies by the contract and records all requests. It has no log: the
//! origin's own tests cover that.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use weir_event::answer::{Answer, Reason, Rejection};
use weir_event::batch::Batch;
use weir_event::event::Event;
use weir_event::pixel;
use weir_event::stamps::Stamps;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{Connection, HeaderMap, Method};
use weir_stack::native::Host;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};

use crate::limiters::{check_envoys, redis_in};
use crate::until;

/// The key of the site's server.
pub const SHOP_KEY: &str = "0123456789abcdef0123456789abcdef";

/// An event type that the origin does not accept.
const UNKNOWN: &str = "unknown";

/// An HTTP server on 127.0.0.1 that answers each request with one function, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

/// A [`Server`]'s function from a request's headers and body to a response.
pub type Respond = Arc<dyn Fn(&Request<()>, Bytes) -> Response<Full<Bytes>> + Send + Sync>;

impl Server {
    /// Starts a server on this port; 0 selects a free one.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn start(port: u16, respond: Respond) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("cannot listen on port {port}"))?;
        Ok(Self {
            address: listener.local_addr()?,
            accepting: tokio::spawn(accept(listener, respond)),
        })
    }
}

impl Server {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The connections are tasks of its `JoinSet`, and end with it.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, respond: Respond) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let respond = Arc::clone(&respond);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&respond), request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // Errors of clients that disconnect are ignored.
                    connection.serve_connection(TokioIo::new(client), service).await.ok();
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    respond: Respond,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(respond(&Request::from_parts(head, ()), body))
}

/// Creates a response of a [`Server`].
pub fn response(status: u16, kind: &str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let builder = Response::builder().status(status);
    let built = builder
        .header("content-type", kind)
        .body(Full::new(body.into()));
    built.unwrap_or_default()
}

/// A request that reached the origin.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Its path, with the query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl ReceivedRequest {
    /// The gateway metadata.
    ///
    /// # Errors
    /// A header is missing or invalid.
    pub fn stamps(&self) -> Result<Stamps> {
        Ok(Stamps::read(|name| {
            self.headers.get(name).map(|value| value.as_bytes())
        })?)
    }
}

/// The origin's records.
#[derive(Debug, Default)]
struct Book {
    requests: Vec<ReceivedRequest>,
    /// Acknowledged events by ID.
    events: BTreeMap<String, Event>,
    duplicates: usize,
    /// Statuses of the next answers, without checking the request, each with an optional `Retry-After`.
    refusals: Vec<(u16, Option<u64>)>,
}

impl Book {
    fn take(&mut self, request: &Request<()>, body: Bytes) -> Response<Full<Bytes>> {
        let path = request.uri().path_and_query();
        let received = ReceivedRequest {
            path: path.map(ToString::to_string).unwrap_or_default(),
            headers: request.headers().clone(),
            body,
        };
        self.requests.push(received.clone());
        if !self.refusals.is_empty() {
            let (status, retry_after) = self.refusals.remove(0);
            let mut refusal = response(status, "application/json", r#"{"error":"refused"}"#);
            if let Some(seconds) = retry_after {
                refusal.headers_mut().insert("retry-after", seconds.into());
            }
            return refusal;
        }
        if request.method() == Method::GET {
            let query = request.uri().query().unwrap_or_default();
            return match pixel::read(query.as_bytes()) {
                Ok(event) => {
                    self.judge(&mut Answer::default(), event);
                    response(200, pixel::CONTENT_TYPE, pixel::GIF.as_slice())
                }
                Err(rejection) => response(400, "text/plain", rejection.to_string()),
            };
        }
        match Batch::read(&received.body) {
            Ok(batch) => {
                let mut answer = Answer::default();
                for sent in &batch.events {
                    match sent.read() {
                        Ok(event) => self.judge(&mut answer, event),
                        Err(rejection) => answer.reject(None, rejection),
                    }
                }
                let json = serde_json::to_string(&answer).unwrap_or_default();
                response(202, "application/json", json)
            }
            Err(error) => response(error.status(), "text/plain", error.to_string()),
        }
    }

    fn judge(&mut self, answer: &mut Answer, event: Event) {
        let id = event
            .id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        if event.event_type.as_str() == UNKNOWN {
            let rejection =
                Rejection::new(Reason::UnknownType, "type: `unknown` is not registered");
            return answer.reject(Some(id), rejection);
        }
        let is_duplicate = self.events.insert(id.clone(), event).is_some();
        self.duplicates += usize::from(is_duplicate);
        answer.take(id, is_duplicate);
    }
}

/// An origin of events that records everything.
#[derive(Debug)]
pub struct EventOrigin {
    book: Arc<Mutex<Book>>,
    server: Option<Server>,
    port: u16,
}

impl EventOrigin {
    async fn start() -> Result<Self> {
        let mut origin = Self {
            book: Arc::default(),
            server: None,
            port: ports::free()?,
        };
        origin.revive().await?;
        Ok(origin)
    }

    /// Stops it; its records stay.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again.
    ///
    /// # Errors
    /// Its port is in use.
    pub async fn revive(&mut self) -> Result<()> {
        let book = Arc::clone(&self.book);
        let respond: Respond = Arc::new(move |request, body| match request.uri().path() {
            // The health check of gateways.
            "/serving" => response(200, "application/json", "{}"),
            _ => locked(&book).take(request, body),
        });
        self.server = Some(Server::start(self.port, respond).await?);
        Ok(())
    }

    /// Answers the next requests with these statuses.
    pub fn refuse(&self, refusals: &[(u16, Option<u64>)]) {
        locked(&self.book).refusals.extend(refusals);
    }

    /// All requests in order of arrival.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        locked(&self.book).requests.clone()
    }

    /// Acknowledged events by ID.
    pub fn events(&self) -> BTreeMap<String, Event> {
        locked(&self.book).events.clone()
    }

    /// The number of repeated events.
    pub fn duplicates(&self) -> usize {
        locked(&self.book).duplicates
    }

    /// Waits until `count` events were acknowledged.
    ///
    /// # Errors
    /// They do not arrive in time.
    pub async fn expect_count(&self, count: usize) -> Result<()> {
        let message = format!("the origin holds {count} events");
        until(&message, async || self.events().len() >= count).await
    }
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The site: pages and scripts at their paths, 404 elsewhere.
#[derive(Debug)]
pub struct Shop {
    server: Server,
}

impl Shop {
    async fn start(pages: BTreeMap<&'static str, (&'static str, &'static str)>) -> Result<Self> {
        let respond: Respond = Arc::new(move |request, _| {
            let path = request.uri().path();
            match pages.get(path) {
                Some((kind, body)) => response(200, kind, *body),
                None if path.starts_with("/products/gone") => response(404, "text/html", "gone"),
                None if path.starts_with("/products/") => {
                    response(200, "text/html", "<p>a product")
                }
                None => response(404, "text/html", "nothing"),
            }
        });
        let server = Server::start(ports::free()?, respond).await?;
        Ok(Self { server })
    }
}

/// A gateway with its site and origin.
#[derive(Debug)]
pub struct EventGateway {
    // Fields are dropped in this order: clients before their servers.
    /// The gateway: one Envoy, as a list like in other fixtures.
    pub envoys: Vec<Envoy>,
    /// The origin.
    pub origin: EventOrigin,
    /// The Redis with its counters, if they are not in its own memory.
    pub redis: Option<RedisServer>,
    _shop: Shop,
    data: DataDir,
}

impl EventGateway {
    /// Starts a gateway with two workers. `config`: the filter's configuration, if it is not the shipped one; `pages`:
    /// the site's pages with their content types.
    ///
    /// # Errors
    /// A process does not start. The error contains Envoy's message about an invalid configuration.
    pub async fn start(
        config: Option<&str>,
        pages: BTreeMap<&'static str, (&'static str, &'static str)>,
    ) -> Result<Self> {
        Self::start_edited(config, pages, DataDir::open(None)?, None).await
    }

    /// As [`EventGateway::start`], with an own Redis and the bridge to it.
    ///
    /// # Errors
    /// As for [`EventGateway::start`].
    pub async fn start_with_redis(config: &str) -> Result<Self> {
        let data = DataDir::open(None)?;
        let redis = redis_in(&data).await?;
        Self::start_edited(Some(config), BTreeMap::new(), data, Some(redis)).await
    }

    async fn start_edited(
        config: Option<&str>,
        pages: BTreeMap<&'static str, (&'static str, &'static str)>,
        data: DataDir,
        redis: Option<RedisServer>,
    ) -> Result<Self> {
        Host::of_run().ensure_built()?;
        let origin = EventOrigin::start().await?;
        let shop = Shop::start(pages).await?;
        let address = (Ipv4Addr::LOCALHOST, origin.port).into();
        let mut envoy = EnvoyConfig::events(shop.server.address)?.origin(address)?;
        if let Some(redis) = &redis {
            envoy = envoy.with_bridge()?.redis("127.0.0.1", redis.port())?;
        }
        if let Some(json) = config {
            envoy = envoy.events_config(json)?;
        }
        let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
        let options = EnvoyOptions {
            config: envoy
                .gateway_port(ports::free()?)?
                .admin_port(ports::free()?)?,
            workers: 2,
            log_level: "info".to_owned(),
            variables: vec![("WEIR_EVENTS_KEY_SHOP".to_owned(), SHOP_KEY.to_owned())],
            clock_ahead_ms: None,
            drain_s: None,
            dir: data.path.join("gateway"),
        };
        Ok(Self {
            envoys: vec![Envoy::start(&tool, &options).await?],
            origin,
            redis,
            _shop: shop,
            data,
        })
    }

    /// Its URL, `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        self.envoys[0].url()
    }

    /// Sends one request over a new connection, which reaches any worker.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<weir_stack::http::Response> {
        let url = self.url();
        let mut connection = Connection::open(url.trim_start_matches("http://")).await?;
        connection
            .send(method, path, headers, body.to_owned())
            .await
    }

    /// A counter of the filter, by the end of its name, once it is at least `least`: filters report their counts once a
    /// second.
    ///
    /// # Errors
    /// It does not reach `least` in time.
    pub async fn count_reaching(&self, name: &str, least: u64) -> Result<u64> {
        let name = format!("wasmcustom.weir_events_{name}");
        until(&format!("{name} is {least}"), async || {
            let count = self.envoys[0].stat(&name).await;
            count.is_ok_and(|count| count >= least)
        })
        .await?;
        self.envoys[0].stat(&name).await
    }

    /// Checks that the gateway is running and that no filter has trapped.
    ///
    /// # Errors
    /// The gateway ended, or a filter trapped.
    pub fn check(&mut self) -> Result<()> {
        check_envoys(&mut self.envoys)
    }
}

impl Drop for EventGateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.data.keep();
            eprintln!("logs are in {}", self.data.path.display());
        }
    }
}
