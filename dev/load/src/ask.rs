//! Sends one request and reads the whole response, to check a server before it is measured.

use crate::answer;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any tested server takes.
const LIMIT: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullAnswer {
    /// The status.
    pub status: u16,
    /// Headers with lower-case names, sorted; non-text values are replaced.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends `request`, one complete HTTP/1.1 request, over a new connection.
///
/// # Errors
/// No complete response arrives within 5 s.
pub fn ask(server: SocketAddr, request: &[u8]) -> Result<FullAnswer> {
    let mut stream =
        TcpStream::connect(server).with_context(|| format!("no server at {server}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    while answer::read(&bytes)?.is_none() {
        let read = stream.read(&mut buffer).context("no answer")?;
        ensure!(read > 0, "the server closed before its answer was complete");
        bytes.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    answer::whole(&bytes)
}
