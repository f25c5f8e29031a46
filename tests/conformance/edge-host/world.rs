//! An instance of the component, and its simulated environment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use wasmtime::component::ResourceTable;
use wasmtime::error::Context;
use wasmtime::{Result, Store, format_err};
use wasmtime_wasi::{FsPerms, HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::bindings::{Proxy, ProxyPre};
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use crate::order::{Ask, Done, Message, ReceivedRequest, Start, bytes, headers, text};

/// The host that the component uses as its origin; all other hosts are its gateway.
const ORIGIN: &str = "origin.test";

/// An instance of the component.
pub(crate) struct Instance {
    store: Store<Host>,
    proxy: Proxy,
    net: Net,
    clock: Clock,
}

/// The state of the component's host.
pub(crate) struct Host {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    net: Net,
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.net,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

/// A clock that stands still until it is set.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// The network: the answers of this order, and the sent requests.
#[derive(Clone, Default)]
struct Net(Arc<Mutex<Traffic>>);

#[derive(Default)]
struct Traffic {
    feeds: BTreeMap<String, (u16, String)>,
    gateway: Option<Message>,
    seen: Option<ReceivedRequest>,
    asked: Vec<String>,
}

impl Net {
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self, request: hyper::Request<WasiBody>) -> Result<Message, Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let is_origin = parts
            .uri
            .authority()
            .is_some_and(|to| to.as_str() == ORIGIN);
        let mut traffic = self.traffic();
        let answer = if is_origin {
            traffic.asked.push(path.to_owned());
            let feed = traffic.feeds.get(path).cloned();
            feed.map(|(status, body)| Message {
                status,
                headers: vec![],
                body,
            })
        } else {
            traffic.seen = Some(ReceivedRequest {
                method: parts.method.to_string(),
                path: path.to_owned(),
                headers: headers(&parts.headers),
                body: text(&body),
            });
            traffic.gateway.clone()
        };
        answer.ok_or(Error::ConnectionRefused)
    }
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Net {
    fn send_request(
        &mut self,
        request: hyper::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _fut: Io,
    ) -> Box<dyn Future<Output = Result<(hyper::Response<WasiBody>, Io), Error>> + Send> {
        let net = self.clone();
        Box::new(async move {
            let message = net.answer(request).await?;
            let response = response(&message).map_err(|error| {
                eprintln!("the test's answer is none: {error}");
                Error::ConnectionTerminated
            })?;
            Ok((response, Box::new(std::future::ready(Ok(()))) as Io))
        })
    }
}

fn response(message: &Message) -> Result<hyper::Response<WasiBody>, hyper::http::Error> {
    let mut response = hyper::Response::builder().status(message.status);
    for (name, value) in &message.headers {
        response = response.header(name, bytes(value));
    }
    let body = Full::new(Bytes::from(bytes(&message.body)));
    response.body(body.map_err(|never| match never {}).boxed_unsync())
}

impl Instance {
    /// Starts a new instance.
    pub(crate) async fn start(pre: &ProxyPre<Host>, start: &Start) -> Result<Self> {
        let (net, clock) = (Net::default(), Clock::default());
        let mut wasi = WasiCtx::builder();
        wasi.inherit_stderr().wall_clock(clock.clone());
        for (name, value) in &start.env {
            wasi.env(name, value);
        }
        if let Some(folder) = &start.folder {
            wasi.preopened_dir(folder, "/weir", FsPerms::ReadWrite)?;
        }
        let host = Host {
            table: ResourceTable::new(),
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            net: net.clone(),
        };
        let mut store = Store::new(pre.engine(), host);
        let proxy = pre.instantiate_async(&mut store).await?;
        Ok(Self {
            store,
            proxy,
            net,
            clock,
        })
    }

    /// Runs one request.
    pub(crate) async fn ask(&mut self, ask: Ask) -> Result<Done> {
        self.clock.0.store(ask.now_ms, Ordering::SeqCst);
        let request = request(&ask)?;
        *self.net.traffic() = Traffic {
            feeds: ask.feeds,
            gateway: ask.gateway,
            ..Traffic::default()
        };
        let started = Instant::now();
        let actual = self.serve(request).await?;
        let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut traffic = self.net.traffic();
        Ok(Done {
            got: actual,
            seen: traffic.seen.take(),
            asked: std::mem::take(&mut traffic.asked),
            took_us,
        })
    }

    /// The component continues after it has sent the response headers, so it must run while the body is read.
    async fn serve(&mut self, request: hyper::Request<WasiBody>) -> Result<Message> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let store = &mut self.store;
        let request = store
            .data_mut()
            .http()
            .new_incoming_request(Scheme::Http, request)?;
        let out = store.data_mut().http().new_response_outparam(sender)?;
        let handler = self.proxy.wasi_http_incoming_handler();
        let read = async {
            let response = receiver
                .await
                .context("the component has set no response")?;
            let (parts, body) = response
                .map_err(|code| format_err!("{code:?}"))?
                .into_parts();
            let body = body
                .collect()
                .await
                .map_err(|code| format_err!("{code:?}"))?;
            Ok::<_, wasmtime::Error>(Message {
                status: parts.status.as_u16(),
                headers: headers(&parts.headers),
                body: text(&body.to_bytes()),
            })
        };
        let (called, read) = tokio::join!(handler.call_handle(store, request, out), read);
        called?;
        read
    }
}

fn request(ask: &Ask) -> Result<hyper::Request<WasiBody>> {
    let mut request = hyper::Request::builder()
        .method(ask.method.as_str())
        .uri(bytes(&ask.path).as_slice())
        .header("host", bytes(&ask.host));
    for (name, value) in &ask.headers {
        request = request.header(name, bytes(value));
    }
    let body = Full::new(Bytes::from(bytes(&ask.body)));
    Ok(request.body(body.map_err(|never| match never {}).boxed_unsync())?)
}
