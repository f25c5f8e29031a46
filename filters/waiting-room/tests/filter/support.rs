//! A gateway with a waiting room in a Proxy-Wasm host, with a real Redis.

use std::time::Duration;

use tokio::runtime::Runtime;
use weir_host_test::{Builder, FailurePolicy, Headers, Host, Stream, StreamState, Upstream};
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

pub struct Gate {
    pub host: Host,
    _server: RedisServer,
    _runtime: Runtime,
    _dir: tempfile::TempDir,
}

/// The module as Envoy runs it, without its upstreams.
pub fn module() -> Builder {
    Host::builder()
        .module_file(weir_stack::wasm::filter("waiting-room").unwrap())
        .vm_id("weir")
        .failure_policy(FailurePolicy::FailReload)
        .env("KEY", "only for tests, of 32 bytes or more")
}

/// The configuration of a room with these additional fields.
pub fn config(room: &str) -> String {
    format!(
        r#"{{ "redis": {{ "deadline_ms": 5000 }}, "keys": [{{ "secret": {{ "env": "KEY" }} }}],
           "rooms": [{{ "name": "shop", "match": {{ "path": {{ "prefix": "/shop" }} }} {room} }}] }}"#
    )
}

impl Gate {
    /// A gateway whose room is in use.
    pub fn new(room: &str, workers: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        let redis = Upstream::resp(format!("127.0.0.1:{}", server.port()));
        let host = module()
            .workers(workers)
            .plugin_config(config(room))
            .cluster("weir_redis", redis)
            .start()
            .unwrap();
        let gate = Self {
            host,
            _server: server,
            _runtime: runtime,
            _dir: dir,
        };
        for worker in 0..workers {
            gate.ask(worker, &[]);
        }
        gate.settle();
        gate
    }

    /// Redis' clock is real: for two seconds after its first call about a room it assigns no positions.
    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(2_100));
        self.look();
    }

    /// Lets the gateway poll the room.
    pub fn look(&self) {
        for _ in 0..3 {
            self.host.advance(Duration::from_millis(1_010));
        }
    }

    pub fn ask(&self, worker: usize, headers: &[(&str, &str)]) -> Stream {
        let request = self.host.request(worker).path("/shop");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let stream = request.send();
        self.host.run_until_idle();
        stream
    }
}

/// The cookie of a response, as a browser sends it.
pub fn cookie(headers: &Headers) -> Option<String> {
    let text = headers.text("set-cookie")?;
    text.split(';').next().map(Into::into)
}

/// Status, headers and body of the filter's own response.
pub fn own_response(stream: &Stream) -> (u16, Headers, String) {
    match stream.state() {
        StreamState::Replied(reply) => (reply.status, reply.headers.clone(), reply.body_text()),
        other => panic!("{other:?}"),
    }
}
