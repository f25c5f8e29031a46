//! A small HTTP/1.1 client: one connection at a time, in the caller's hand.
//!
//! Tests and the storm have to know which connection a request uses and when it breaks, so
//! there is no pool and no retry.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

pub use hyper::header::{HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, Request, Uri};

/// For the calls of [`get`] and [`send`], whose servers are on this machine.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// A header as text; `None` if it is missing or isn't text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text, with bytes that are not UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}

/// A keep-alive connection that carries one request at a time.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    /// Connects to `authority`, like `127.0.0.1:10000`. Must be called on a tokio runtime.
    pub async fn open(authority: &str) -> Result<Self> {
        let stream = TcpStream::connect(authority)
            .await
            .with_context(|| format!("cannot connect to {authority}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with an error when the server closes; the next `send` reports that.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self {
            sender,
            authority: authority.to_owned(),
        })
    }

    /// Whether the server has closed it.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request for `path` with an empty or full body and reads the whole answer.
    /// After an error the connection is of no more use.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.authority);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send_request(request.body(Full::new(body.into()))?)
            .await
    }

    /// Sends `request` as it is; it must carry its own `host`. For what [`Connection::send`]
    /// can't say, like header values that are not text.
    pub async fn send_request(&mut self, request: Request<Full<Bytes>>) -> Result<Response> {
        self.sender
            .ready()
            .await
            .context("the connection is closed")?;
        let response = self
            .sender
            .send_request(request)
            .await
            .context("no answer")?;
        read(response).await
    }
}

async fn read(response: hyper::Response<Incoming>) -> Result<Response> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.context("the answer broke off")?;
    Ok(Response {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}

/// GET over a connection of its own, within 30 s. `url` is `http://host:port/path`.
pub async fn get(url: &str) -> Result<Response> {
    send(Method::GET, url, &[], "").await
}

/// One request over a connection of its own, within 30 s.
pub async fn send(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Response> {
    let uri: Uri = url.parse().with_context(|| format!("not a URL: {url}"))?;
    let authority = uri
        .authority()
        .with_context(|| format!("no host in {url}"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let exchange = async {
        let mut connection = Connection::open(authority.as_str()).await?;
        connection.send(method, path, headers, body).await
    };
    tokio::time::timeout(LIMIT, exchange)
        .await
        .with_context(|| format!("{url} did not answer within {} s", LIMIT.as_secs()))?
}

/// Whether a GET of `url` is answered with 200. For readiness probes.
pub async fn is_ok(url: &str) -> bool {
    get(url).await.is_ok_and(|response| response.status == 200)
}
