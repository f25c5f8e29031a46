//! One connection, with at most one request in flight.

use crate::answer::{self, Answer};
use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Instant;

/// The first client address. Linux assigns all of 127.0.0.0/8 to the loopback interface.
const CLIENTS_FIRST: u32 = u32::from_be_bytes([127, 1, 0, 1]);

/// The initial buffer size for a response.
const ROOM: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    server: SocketAddr,
    number: usize,
    input: Vec<u8>,
    filled: usize,
    /// The start time of the request in flight.
    pub(crate) since: Option<Instant>,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireEvent {
    /// A response; `closes`: the server closes the connection after it.
    Answer { status: u16, closes: bool },
    /// An incomplete response.
    Part,
    /// The connection ended.
    End,
}

impl Wire {
    pub(crate) fn open(server: SocketAddr, number: usize) -> Result<Self> {
        Ok(Self {
            stream: stream(server, number)?,
            server,
            number,
            input: vec![0; ROOM],
            filled: 0,
            since: None,
        })
    }

    /// Replaces a closed connection.
    pub(crate) fn open_again(&mut self) -> Result<()> {
        self.stream = stream(self.server, self.number)?;
        self.filled = 0;
        self.since = None;
        Ok(())
    }

    /// Sends a request that counts from `since`. The socket buffer holds many requests, so this practically never
    /// blocks.
    pub(crate) fn send(&mut self, request: &[u8], since: Instant) -> std::io::Result<()> {
        self.since = Some(since);
        let mut rest = request;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the received bytes.
    pub(crate) fn receive(&mut self) -> Result<WireEvent> {
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        let room = self.input.get_mut(self.filled..).unwrap_or_default();
        match self.stream.read(room) {
            Ok(0) => return Ok(WireEvent::End),
            Ok(read) => self.filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(WireEvent::Part),
            Err(_) => return Ok(WireEvent::End),
        }
        let filled = self.input.get(..self.filled).unwrap_or_default();
        let Some(Answer {
            status,
            length,
            closes,
        }) = answer::read(filled)?
        else {
            return Ok(WireEvent::Part);
        };
        anyhow::ensure!(length == self.filled, "more than one answer to one request");
        self.filled = 0;
        Ok(WireEvent::Answer { status, closes })
    }
}

fn stream(server: SocketAddr, number: usize) -> Result<TcpStream> {
    let open = || -> std::io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if server.ip().is_loopback() {
            bind(&socket, &SocketAddrV4::new(client(number), 0))?;
        }
        connect(&socket, &server)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    open().with_context(|| format!("cannot connect to {server}"))
}

fn client(number: usize) -> Ipv4Addr {
    // Beyond 65,535 connections, addresses repeat, which is harmless.
    Ipv4Addr::from(CLIENTS_FIRST + (number % 0xffff) as u32)
}
