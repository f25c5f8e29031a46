//! Parses requests for test servers.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::io::Read;
use std::net::TcpStream;

use anyhow::Result;

use super::pairs;
use crate::vector::Headers;

/// More headers than any request has.
const HEADERS_MAX: usize = 128;

/// The headers of the next request, with pseudo-headers, and their length; `None` if the connection ends first.
pub(super) fn head(
    stream: &mut TcpStream,
    received: &mut Vec<u8>,
) -> Result<Option<(Headers, usize)>> {
    loop {
        if let Some(head) = parse(received)? {
            return Ok(Some(head));
        }
        if !more(stream, received)? {
            return Ok(None);
        }
    }
}

/// Reads more bytes; `false` at the end of the connection.
pub(super) fn more(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<bool> {
    let mut chunk = [0; 16 << 10];
    let count = stream.read(&mut chunk)?;
    received.extend_from_slice(&chunk[..count]);
    Ok(count > 0)
}

fn parse(received: &[u8]) -> Result<Option<(Headers, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(received)? else {
        return Ok(None);
    };
    let pseudo =
        |name: &str, value: Option<&str>| (name.to_owned(), value.unwrap_or_default().to_owned());
    let mut observed = vec![pseudo(":method", head.method), pseudo(":path", head.path)];
    observed.extend(pairs(head.headers));
    Ok(Some((observed, length)))
}
