//! A real Redis, spoken to as `redis_proxy` would: bytes in, as many replies out as commands went in.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
use weir_base::resp::{decode, encode_command};
use weir_stack::ports;
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::SilentReporter;
use weir_stack::tools;

pub(crate) struct Redis {
    stream: TcpStream,
    _server: RedisServer,
    _dir: tempfile::TempDir,
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
        let options = RedisOptions {
            durable: false,
            ..RedisOptions::durable(ports::free()?, dir.path(), &dir.path().join("log"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = runtime.block_on(RedisServer::start_with(&tool, &options))?;
        let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        Ok(Self {
            stream,
            _server: server,
            _dir: dir,
        })
    }

    /// Sends one command.
    pub(crate) fn command(&mut self, parts: &[&str]) -> Result<()> {
        let mut command = Vec::new();
        encode_command(&mut command, parts.iter().map(|part| part.as_bytes()));
        self.exchange(&command).map(drop)
    }

    /// The replies to these commands, and how many there are.
    pub(crate) fn exchange(&mut self, commands: &[u8]) -> Result<(Vec<u8>, u64)> {
        let count = values(commands);
        self.stream.write_all(commands)?;
        let (mut replies, mut buffer) = (Vec::new(), [0; 65_536]);
        while values(&replies) < count {
            let read = self.stream.read(&mut buffer).context("Redis is silent")?;
            replies.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        Ok((replies, count))
    }
}

/// How many whole values there are.
fn values(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Ok((_, used)) = decode(bytes) {
        count += 1;
        bytes = bytes.get(used..).unwrap_or_default();
    }
    count
}
