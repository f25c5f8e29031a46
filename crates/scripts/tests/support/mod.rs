//! A real Redis, spoken to with Weir's own codec.

use std::io::{Read, Write};
use std::net::TcpStream;

use weir_resp::{DecodeError, Value, decode};
use weir_scripts::Call;
use weir_stack::redis::RedisServer;
use weir_stack::report::Silent;
use weir_stack::{ports, tools};

/// A server of one test's own, gone when the test ends.
pub struct Server {
    server: RedisServer,
    _dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut Silent).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        Self { server, _dir: dir }
    }

    pub fn connect(&self) -> Redis {
        Redis(TcpStream::connect(("127.0.0.1", self.server.port())).unwrap())
    }
}

/// A connection.
pub struct Redis(TcpStream);

impl Redis {
    /// Runs `call` as the pump does: by digest, and spelt out if Redis does not know it.
    pub fn run(&mut self, call: &Call) -> Value {
        let mut body = Vec::new();
        call.encode_evalsha(&call.script.sha1_hex(), &mut body);
        match self.exchange(&body) {
            Value::Error(error) if error.starts_with(b"NOSCRIPT") => {
                body.clear();
                call.encode_eval(&mut body);
                self.exchange(&body)
            }
            value => value,
        }
    }

    /// Runs one plain command.
    pub fn command(&mut self, arguments: &[&[u8]]) -> Value {
        let mut body = Vec::new();
        weir_resp::encode_command(&mut body, arguments.iter().copied());
        self.exchange(&body)
    }

    /// Sends one command as it is written.
    pub fn exchange(&mut self, body: &[u8]) -> Value {
        self.0.write_all(body).unwrap();
        let (mut input, mut piece) = (Vec::new(), [0; 4_096]);
        loop {
            match decode(&input) {
                Ok((value, used)) => {
                    assert_eq!(used, input.len(), "one command, one reply");
                    return value;
                }
                Err(DecodeError::Incomplete) => {}
                Err(DecodeError::Malformed(malformed)) => panic!("{malformed}: {input:?}"),
            }
            let length = self.0.read(&mut piece).unwrap();
            assert!(length > 0, "Redis closed the connection");
            input.extend_from_slice(&piece[..length]);
        }
    }
}
