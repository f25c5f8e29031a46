//! The world around an edge that is a server: an origin that publishes feeds, and a gateway that answers what is sent on.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use crate::hosts::pairs;
use crate::vector::Headers;

/// More headers than any request has here.
const HEADERS_MAX: usize = 128;

/// Where feeds are: no vector asks a gateway for anything there.
const FEEDS: &str = "/edge/v1/feed/";

/// What is answered, and what was asked.
#[derive(Default)]
pub struct Traffic {
    /// Feeds, by path and query. Anything else there: 503.
    pub feeds: BTreeMap<String, String>,
    /// What the gateway answers: status, headers, body. `None`: it breaks the connection off.
    pub gateway: Option<(u16, Headers, String)>,
    /// The requests that the gateway has seen, with pseudo-headers.
    pub seen: Vec<Headers>,
    /// The feeds that were asked for.
    pub asked: Vec<String>,
}

/// The world. It listens until the process ends.
#[derive(Clone)]
pub struct World {
    /// Where.
    pub address: SocketAddr,
    traffic: Arc<Mutex<Traffic>>,
}

impl World {
    /// A new one, which knows nothing.
    ///
    /// # Errors
    /// When it cannot listen.
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
                // A connection that breaks shows in what the edge answers.
                std::thread::spawn(move || world.serve(stream).ok());
            }
        });
        Ok(world)
    }

    /// What it answers and has seen.
    pub fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut received = Vec::new();
        loop {
            let (headers, length) = loop {
                if let Some(head) = parse(&received)? {
                    break head;
                }
                if !more(&mut stream, &mut received)? {
                    return Ok(());
                }
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
    let mut named = headers.iter().filter(|(known, _)| known == name);
    named.next().map(|(_, value)| value.as_str())
}

/// Bodies are read and nobody looks at them.
fn read_body(headers: &Headers, stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<()> {
    if find(headers, "transfer-encoding").is_some() {
        while !received.ends_with(b"0\r\n\r\n") {
            more(stream, received)?;
        }
        received.clear();
    }
    let length: usize = find(headers, "content-length").map_or(Ok(0), str::parse)?;
    while received.len() < length {
        more(stream, received)?;
    }
    received.drain(..length);
    Ok(())
}

fn more(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<bool> {
    let mut chunk = [0; 16 << 10];
    let count = stream.read(&mut chunk)?;
    received.extend_from_slice(&chunk[..count]);
    Ok(count > 0)
}

/// The head of a request, with its pseudo-headers, and its length, if all of it is there.
fn parse(received: &[u8]) -> Result<Option<(Headers, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(received)? else {
        return Ok(None);
    };
    let pseudo =
        |name: &str, value: Option<&str>| (name.to_owned(), value.unwrap_or_default().to_owned());
    let mut seen = vec![pseudo(":method", head.method), pseudo(":path", head.path)];
    seen.extend(pairs(head.headers));
    Ok(Some((seen, length)))
}
