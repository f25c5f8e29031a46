//! The environment of an edge that is a server: an origin that publishes feeds, and a gateway that answers forwarded
//! requests.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};

use crate::hosts::wire::{head, more};
use crate::vector::Headers;

/// The path prefix of feeds: no vector sends a gateway request there.
const FEEDS: &str = "/edge/v1/feed/";

/// The answers, and the received requests.
#[derive(Default)]
pub struct Traffic {
    /// Feeds by path and query. Other requests there get 503.
    pub feeds: BTreeMap<String, String>,
    /// The gateway's answer: status, headers, body. `None`: it closes the connection.
    pub gateway: Option<(u16, Headers, String)>,
    /// The requests that the gateway received, with pseudo-headers.
    pub seen: Vec<Headers>,
    /// The requested feeds.
    pub asked: Vec<String>,
}

/// The environment. It listens until the process ends.
#[derive(Clone)]
pub struct World {
    /// The address on which it listens.
    pub address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
}

impl World {
    /// Starts an environment without feeds and answers.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let world = Self {
            address: listener.local_addr()?,
            traffic: Arc::default(),
        };
        let served = world.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = served.clone();
                // A broken connection is visible in the edge's answer.
                std::thread::spawn(move || world.serve(stream).ok());
            }
        });
        Ok(world)
    }

    /// Its answers and received requests.
    pub fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut received = Vec::new();
        loop {
            let Some((headers, length)) = head(&mut stream, &mut received)? else {
                return Ok(());
            };
            received.drain(..length);
            read_body(&headers, &mut stream, &mut received)?;
            let Some(answer) = self.answer(headers)? else {
                return Ok(());
            };
            stream.write_all(&answer)?;
        }
    }

    fn answer(&self, headers: Headers) -> Result<Option<Vec<u8>>> {
        let path = find(&headers, ":path").context("a request without a path")?;
        let path = path.to_owned();
        let mut traffic = self.traffic();
        if path.starts_with(FEEDS) {
            let feed = traffic.feeds.get(&path).cloned();
            traffic.asked.push(path);
            return Ok(Some(match feed {
                Some(text) => written(200, &vec![], &text),
                None => written(503, &vec![], ""),
            }));
        }
        traffic.seen.push(headers);
        let gateway = traffic.gateway.as_ref();
        Ok(gateway.map(|(status, headers, body)| written(*status, headers, body)))
    }
}

fn written(status: u16, headers: &Headers, body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} x\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let mut named = headers.iter().filter(|(existing, _)| existing == name);
    named.next().map(|(_, value)| value.as_str())
}

/// Reads and discards the body.
fn read_body(headers: &Headers, stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<()> {
    if find(headers, "transfer-encoding").is_some() {
        while !received.ends_with(b"0\r\n\r\n") {
            ensure!(more(stream, received)?, "a body that was cut");
        }
        received.clear();
    }
    let length: usize = find(headers, "content-length").map_or(Ok(0), str::parse)?;
    while received.len() < length {
        ensure!(more(stream, received)?, "a body that was cut");
    }
    received.drain(..length);
    Ok(())
}
