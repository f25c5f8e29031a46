//! A real Redis, accessed with Weir's own codec.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use weir_base::resp::{DecodeError, Value, decode};
use weir_scripts::{Call, Script};
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

/// A server for one test, stopped at its end.
pub struct Server {
    server: RedisServer,
    dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(|_| ())
    }

    /// A server with other options.
    pub fn start_with(change: impl FnOnce(&mut RedisOptions)) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let mut options = RedisOptions::durable(ports::free().unwrap(), dir.path(), &log);
        change(&mut options);
        let started = RedisServer::start_with(&tool, &options);
        let server = runtime.block_on(started).unwrap();
        Self { server, dir }
    }

    #[allow(dead_code)] // not all tests need it
    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    #[allow(dead_code)] // not all tests need its files
    /// The folder of its data.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub fn connect(&self) -> Redis {
        Redis {
            stream: TcpStream::connect(("127.0.0.1", self.server.port())).unwrap(),
            has_test_clock: false,
        }
    }
}

/// A connection.
pub struct Redis {
    stream: TcpStream,
    has_test_clock: bool,
}

/// The only place where scripts read Redis' clock, which tests with their own clock replace.
const CLOCK: &str = "redis.call('TIME')";
const TEST_CLOCK: &str = "redis.call('MGET', 'clock:seconds', 'clock:microseconds')";

/// The script with the test's clock in place of Redis'.
fn with_test_clock(script: &'static Script) -> &'static Script {
    static KNOWN: Mutex<BTreeMap<&str, &Script>> = Mutex::new(BTreeMap::new());
    let mut existing = KNOWN.lock().unwrap();
    existing.entry(script.name).or_insert_with(|| {
        Box::leak(Box::new(Script {
            name: script.name,
            source: script.source.replace(CLOCK, TEST_CLOCK).leak(),
        }))
    })
}

impl Redis {
    #[allow(dead_code)] // not all tests set the clock
    /// Sets the time for scripts on this connection.
    pub fn set_clock_us(&mut self, now_us: u64) {
        self.has_test_clock = true;
        let (seconds, microseconds) = (now_us / 1_000_000, now_us % 1_000_000);
        self.command(&[
            b"MSET",
            b"clock:seconds",
            seconds.to_string().as_bytes(),
            b"clock:microseconds",
            microseconds.to_string().as_bytes(),
        ]);
    }

    /// Runs `call` like the pump: by digest, or with its source if Redis does not have it.
    pub fn run(&mut self, call: &Call) -> Value {
        let call = &Call {
            script: match self.has_test_clock {
                true => with_test_clock(call.script),
                false => call.script,
            },
            ..call.clone()
        };
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
        weir_base::resp::encode_command(&mut body, arguments.iter().copied());
        self.exchange(&body)
    }

    /// Sends one encoded command.
    pub fn exchange(&mut self, body: &[u8]) -> Value {
        self.stream.write_all(body).unwrap();
        let (mut input, mut chunk) = (Vec::new(), [0; 4_096]);
        loop {
            match decode(&input) {
                Ok((value, used)) => {
                    assert_eq!(used, input.len(), "one command, one reply");
                    return value;
                }
                Err(DecodeError::Incomplete) => {}
                Err(DecodeError::Malformed(malformed)) => panic!("{malformed}: {input:?}"),
            }
            let length = self.stream.read(&mut chunk).unwrap();
            assert!(length > 0, "Redis closed the connection");
            input.extend_from_slice(&chunk[..length]);
        }
    }
}
