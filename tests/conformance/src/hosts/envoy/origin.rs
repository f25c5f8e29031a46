//! The origin behind Envoy: it answers as a vector defines, and records requests.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::hosts::wire::{head, more};
use crate::text::unescape;
use crate::vector::{Headers, Vector};

/// The header that distinguishes its answers from the gateway's.
pub(super) const MARK: &str = "x-conformance-origin";

/// An origin, which listens until the process ends.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

/// A received request.
#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    vector: Option<Vector>,
    seen: Vec<ReceivedRequest>,
}

impl Origin {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let origin = Self {
            address: listener.local_addr()?,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&origin.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // The thread ends when Envoy closes the connection. A truncated exchange appears in the vector's
                // outcome.
                std::thread::spawn(move || serve(stream, &shared).ok());
            }
        });
        Ok(origin)
    }

    /// Answers for this vector from now on, and forgets recorded requests.
    pub(super) fn answer_for(&self, vector: &Vector) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.vector = Some(vector.clone());
        shared.seen.clear();
    }

    /// The last request.
    pub(super) fn last_seen(&self) -> Option<ReceivedRequest> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.seen.last().cloned()
    }
}

fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        let Some((mut headers, length)) = head(&mut stream, &mut received)? else {
            return Ok(());
        };
        for (name, _) in headers.iter_mut().filter(|(name, _)| name == "host") {
            *name = ":authority".into();
        }
        let body = headers.iter().find(|(name, _)| name == "content-length");
        let body: usize = body.map_or(Ok(0), |(_, length)| length.parse())?;
        while received.len() < length + body {
            if !more(&mut stream, &mut received)? {
                return Ok(());
            }
        }
        let body = received.drain(..length + body).skip(length).collect();
        let answer = answer(ReceivedRequest { headers, body }, shared)?;
        stream.write_all(&answer)?;
    }
}

fn answer(request: ReceivedRequest, shared: &Mutex<Shared>) -> Result<Vec<u8>> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let path = request.headers.iter().find(|(name, _)| name == ":path");
    let (_, path) = path.context("a request without a path")?;
    if path == "/serving" {
        // Envoy's health check.
        return Ok(b"HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n".to_vec());
    }
    let vector = shared.vector.as_ref().context("nobody has asked")?;
    let answer = vector.origin_answer(path);
    shared.seen.push(request);
    let body = unescape(&answer.body)?;
    let mut text = format!("HTTP/1.1 {} x\r\n{MARK}: 1\r\n", answer.status);
    for (name, value) in &answer.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n", body.len());
    Ok([text.into_bytes(), body].concat())
}
