//! Sends requests byte by byte as in the vector, and reads the responses.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::hosts::pairs;
use crate::text::{escape, unescape};
use crate::vector::{Headers, Request};

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// More headers than any vector has.
const HEADERS_MAX: usize = 128;

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

/// How a request's bytes reach Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// In one piece.
    Whole,
    /// In pieces that end at random bytes.
    Split,
    /// In one piece with the start of another request.
    Pipelined,
}

/// The most pieces of a split request, and the time between two of them.
const PIECES_MAX: usize = 4;
const BETWEEN_PIECES: Duration = Duration::from_millis(2);

/// A request without a host: Envoy refuses it before any filter sees its headers.
const WITHOUT_HOST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 400";

/// Sends a request to the listener at `socket`, which reads the client's address from the PROXY protocol.
pub(super) fn send(socket: &Path, request: &Request, delivery: Delivery) -> Result<Response> {
    let mut stream = connect(socket)?;
    let mut bytes = encode(request)?;
    match delivery {
        Delivery::Whole => stream.write_all(&bytes)?,
        Delivery::Split => write_in_pieces(&mut stream, &bytes)?,
        Delivery::Pipelined => {
            bytes.extend_from_slice(WITHOUT_HOST);
            stream.write_all(&bytes)?;
        }
    }
    let (response, mut rest) = read(&mut stream, request.method == "HEAD")?;
    let closes = |(name, value): &(String, String)| name == "connection" && value == "close";
    if delivery == Delivery::Pipelined && !response.headers.iter().any(closes) {
        while rest.len() < REFUSED.len() {
            more(&mut stream, &mut rest)?;
        }
        ensure!(
            rest.starts_with(REFUSED),
            "the pipelined request is answered {}",
            escape(&rest)
        );
    } else {
        ensure!(rest.is_empty(), "more than the body: {}", escape(&rest));
    }
    Ok(response)
}

/// Writes pieces that end at random bytes, which are the same in every run.
fn write_in_pieces(stream: &mut UnixStream, bytes: &[u8]) -> Result<()> {
    let mut chance = DefaultHasher::new();
    bytes.hash(&mut chance);
    let mut ends: Vec<usize> = (1..PIECES_MAX)
        .map(|piece| {
            piece.hash(&mut chance);
            (chance.finish() % bytes.len() as u64) as usize
        })
        .collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut start = 0;
    for end in ends {
        stream.write_all(&bytes[start..end])?;
        std::thread::sleep(BETWEEN_PIECES);
        start = end;
    }
    Ok(())
}

/// Sends a request without a host to the listener at `socket`. Envoy refuses it, but creates each filter's stream. An engine polls Redis from its first stream on.
pub(super) fn send_without_host(socket: &Path) -> Result<()> {
    let mut stream = connect(socket)?;
    stream.write_all(b"PROXY TCP4 192.0.2.254 127.0.0.1 1 80\r\n")?;
    stream.write_all(WITHOUT_HOST)?;
    let mut start = [0; REFUSED.len()];
    stream.read_exact(&mut start).context("no answer")?;
    ensure!(
        start == *REFUSED,
        "a request without a host is answered {}",
        escape(&start)
    );
    Ok(())
}

fn connect(socket: &Path) -> Result<UnixStream> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn encode(request: &Request) -> Result<Vec<u8>> {
    let (address, port) = request
        .from
        .rsplit_once(':')
        .context("an address without a port")?;
    let address = address.trim_matches(['[', ']']);
    let proxy = match address.contains(':') {
        true => format!("PROXY TCP6 {address} ::1 {port} 80\r\n"),
        false => format!("PROXY TCP4 {address} 127.0.0.1 {port} 80\r\n"),
    };
    let mut bytes = proxy.into_bytes();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(b"\r\n");
    };
    let (path, host) = (unescape(&request.path)?, unescape(&request.host)?);
    line(&[request.method.as_bytes(), b" ", &path, b" HTTP/1.1"]);
    line(&[b"host: ", &host]);
    for (name, value) in &request.headers {
        line(&[name.as_bytes(), b": ", &unescape(value)?]);
    }
    let body = unescape(&request.body)?;
    if !body.is_empty() {
        line(&[b"content-length: ", body.len().to_string().as_bytes()]);
    }
    line(&[]);
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads a response, and returns it with the bytes that follow.
fn read(stream: &mut UnixStream, is_head: bool) -> Result<(Response, Vec<u8>)> {
    let mut received = Vec::new();
    let (mut response, head) = loop {
        if let Some(parsed) = parse(&received)? {
            break parsed;
        }
        more(stream, &mut received)?;
    };
    received.drain(..head);
    // Envoy announces chunks even for HEAD.
    let has_no_body = is_head || matches!(response.status, 204 | 304);
    let length = response
        .headers
        .iter()
        .find(|(name, _)| name == "content-length");
    let length: usize = match length {
        Some((_, length)) if !has_no_body => length.parse()?,
        _ => 0,
    };
    if !has_no_body
        && response
            .headers
            .iter()
            .any(|(name, _)| name == "transfer-encoding")
    {
        bail!("a response in chunks: {:?}", response.headers);
    }
    while received.len() < length {
        more(stream, &mut received)?;
    }
    let rest = received.split_off(length);
    response.body = received;
    Ok((response, rest))
}

fn more(stream: &mut UnixStream, received: &mut Vec<u8>) -> Result<()> {
    let mut chunk = [0; 16 << 10];
    let count = stream.read(&mut chunk).context("no answer")?;
    ensure!(
        count > 0,
        "the connection has ended after {:?}",
        escape(received)
    );
    received.extend_from_slice(&chunk[..count]);
    Ok(())
}

/// The headers of a response and their length, if they are complete.
fn parse(received: &[u8]) -> Result<Option<(Response, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(received)? else {
        return Ok(None);
    };
    let response = Response {
        status: head.code.context("no status")?,
        headers: pairs(head.headers),
        body: Vec::new(),
    };
    Ok(Some((response, length)))
}
