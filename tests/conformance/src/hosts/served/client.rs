//! Sends requests byte by byte as in the vector, over TCP.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::hosts::pairs;
use crate::vector::Headers;

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

const HEADERS_MAX: usize = 128;

/// A request, as bytes.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Method, path and host.
    pub head: [Vec<u8>; 3],
    /// Further headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct ClientResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl ClientResponse {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(existing, _)| existing == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// Sends a request on a new connection.
///
/// # Errors
/// There is no answer, or it is not valid HTTP.
pub fn send(to: SocketAddr, ask: &Ask) -> Result<ClientResponse> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&encode(ask))?;
    let mut received = Vec::new();
    let is_head = ask.head[0] == b"HEAD";
    loop {
        if let Some(actual) = read(&received, is_head)? {
            return Ok(actual);
        }
        let mut chunk = [0; 16 << 10];
        let count = stream.read(&mut chunk).context("no answer")?;
        ensure!(
            count > 0,
            "half an answer: {}",
            String::from_utf8_lossy(&received)
        );
        received.extend_from_slice(&chunk[..count]);
    }
}

fn encode(ask: &Ask) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(b"\r\n");
    };
    let [method, path, host] = &ask.head;
    line(&[method, b" ", path, b" HTTP/1.1"]);
    line(&[b"host: ", host]);
    line(&[b"connection: close"]);
    for (name, value) in &ask.headers {
        line(&[name.as_bytes(), b": ", value]);
    }
    if !ask.body.is_empty() {
        line(&[b"content-length: ", ask.body.len().to_string().as_bytes()]);
    }
    line(&[]);
    bytes.extend_from_slice(&ask.body);
    bytes
}

/// The response, if it is complete.
fn read(received: &[u8], is_head: bool) -> Result<Option<ClientResponse>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(received)? else {
        return Ok(None);
    };
    let (status, headers) = (head.code.context("no status")?, pairs(head.headers));
    let find = |name: &str| {
        let mut named = headers.iter().filter(|(existing, _)| existing == name);
        named.next().map(|(_, value)| value.as_str())
    };
    let rest = &received[length..];
    let body = if is_head || matches!(status, 204 | 304) {
        Some(Vec::new())
    } else if find("transfer-encoding").is_some() {
        chunks(rest)?
    } else {
        let length: usize = find("content-length").map_or(Ok(0), str::parse)?;
        rest.get(..length).map(<[u8]>::to_vec)
    };
    Ok(body.map(|body| ClientResponse {
        status,
        headers,
        body,
    }))
}

/// The decoded chunks of the body, if they are complete.
fn chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(rest).map_err(|_| anyhow::anyhow!("no chunk"))?;
        let httparse::Status::Complete((start, length)) = size else {
            return Ok(None);
        };
        let end = start + usize::try_from(length)?;
        if rest.len() < end + 2 {
            return Ok(None);
        }
        if length == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(&rest[start..end]);
        rest = &rest[end + 2..];
    }
}
