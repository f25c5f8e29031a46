//! A small HTTP/1.1 client with explicit connections.
//!
//! Tests and the storm must know which connection a request uses and when it breaks, so there is no pool and no retry.
//!
//! Each connection to 127.0.0.1 uses its own loopback source address, as if clients were different people: gateways
//! limit the request rate per address.

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

pub use hyper::header::{HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, Request, Uri};

/// The timeout of [`get`] and [`send`], whose servers are on this machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Source addresses: 127.1.0.0 to 127.253.255.255, in turn. Linux assigns all of 127.0.0.0/8 to the loopback interface.
/// 127.0.x.y is reserved for servers and for callers that choose an address.
const CLIENTS_FIRST: u32 = u32::from_be_bytes([127, 1, 0, 0]);
const CLIENTS: u32 = 253 << 16;

/// A complete response.
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
    /// A header as text; `None` if it is missing or not text.
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
    /// Connects to `authority`, such as `127.0.0.1:10000`, as [`connect`] does. Must be called on a tokio runtime.
    pub async fn open(authority: &str) -> Result<Self> {
        Self::over(connect(authority).await?, authority).await
    }

    /// Connects to `authority` on this machine from `client`, an address of 127.0.0.0/8.
    pub async fn open_from(client: Ipv4Addr, authority: &str) -> Result<Self> {
        let server = authority
            .parse()
            .with_context(|| format!("not an address and a port: {authority}"))?;
        Self::over(connect_from(client, server).await?, authority).await
    }

    async fn over(stream: TcpStream, authority: &str) -> Result<Self> {
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with an error when the server closes the connection; the next `send` reports that.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self {
            sender,
            authority: authority.to_owned(),
        })
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request for `path` with an empty or full body and reads the whole response. After an error the
    /// connection is unusable.
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

    /// Sends `request` unchanged; it must include `host`. For requests that [`Connection::send`] cannot express, such
    /// as header values that are not text.
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

/// Opens a TCP connection to `authority`: from its own loopback address if `authority` is in 127.0.0.0/8.
pub async fn connect(authority: &str) -> Result<TcpStream> {
    match authority.parse() {
        Ok(SocketAddr::V4(server)) if server.ip().is_loopback() => {
            connect_from(next_client(), server.into()).await
        }
        _ => TcpStream::connect(authority)
            .await
            .with_context(|| format!("cannot connect to {authority}")),
    }
}

async fn connect_from(client: Ipv4Addr, server: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket
        .bind((client, 0).into())
        .with_context(|| format!("cannot use the address {client}"))?;
    socket
        .connect(server)
        .await
        .with_context(|| format!("cannot connect to {server} from {client}"))
}

fn next_client() -> Ipv4Addr {
    static OPENED: AtomicU32 = AtomicU32::new(0);
    Ipv4Addr::from(CLIENTS_FIRST + OPENED.fetch_add(1, Ordering::Relaxed) % CLIENTS)
}

async fn read(response: hyper::Response<Incoming>) -> Result<Response> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.context("the answer was interrupted")?;
    Ok(Response {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.to_bytes(),
    })
}

/// Sends a GET over a new connection, within 30 s. `url` is `http://host:port/path`.
pub async fn get(url: &str) -> Result<Response> {
    send(Method::GET, url, &[], "").await
}

/// Sends one request over a new connection, within 30 s.
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

/// Whether a GET of `url` returns 200. For readiness probes.
pub async fn is_ok(url: &str) -> bool {
    get(url).await.is_ok_and(|response| response.status == 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn each_connection_has_a_unique_or_the_chosen_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..300 {
            let _open = connect(&server.to_string()).await.unwrap();
            clients.push(listener.accept().await.unwrap().1.ip());
        }
        clients.sort_unstable();
        clients.dedup();
        assert_eq!(clients.len(), 300);
        let chosen = Ipv4Addr::new(127, 0, 9, 9);
        let _open = connect_from(chosen, server).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().1.ip(), chosen);
    }
}
