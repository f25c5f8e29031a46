//! A gateway for links in a Proxy-Wasm host, with a real Redis. The test plays the origin.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, cmd};
use tokio::runtime::Runtime;
use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_host_test::{Call, FailurePolicy, Host, Reply, RequestBuilder, Stream, Upstream};
use weir_link::click::{BatchId, Row, decode};
use weir_link::record::Link;
use weir_link::redis::link_changes;
use weir_link::redis::link_read::Read;
use weir_link::redis::{document, keys};
use weir_link::routes::LINK_RECORD;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

pub const CONFIG: &str = r#"{ "redis": { "deadline_ms": 100 },
    "origin": { "timeout_ms": 500, "limit": { "rate": 10, "per": "1s", "burst": 5 }, "waiting_max": 200 } }"#;

pub const DOMAINS: &str = r#"{"version":1,"domains":[
    {"id":"s","hosts":["s.example.com"],"not_found_page":"<p>nothing of s",
     "apple_app_site_association":{"applinks":{"details":[]}}},
    {"id":"t","hosts":["t.example.com"],"assetlinks":[{"relation":[]}]}]}"#;

pub const TARGET: &str = "https://target.example/page";

/// The start time of the host's clock.
pub const NOW_MS: u64 = 1_700_000_000_000;

/// The origin's links, and its received calls.
#[derive(Default)]
pub struct Origin {
    /// Targets by `<domain>/<code>`.
    pub links: BTreeMap<String, String>,
    pub requested: Vec<Call>,
    /// A response that replaces the regular one.
    pub reply: Option<Reply>,
}

pub struct Gate {
    pub host: Host,
    pub origin: Rc<RefCell<Origin>>,
    runtime: Runtime,
    connection: RefCell<MultiplexedConnection>,
    server: RedisServer,
    _dir: tempfile::TempDir,
}

impl Origin {
    fn answer(&mut self, call: &Call) -> Reply {
        self.requested.push(call.clone());
        if let Some(reply) = &self.reply {
            return reply.clone();
        }
        let path = call.headers.text(":path").unwrap_or_default();
        let link = path
            .split('?')
            .next()
            .and_then(|path| path.strip_prefix(LINK_RECORD));
        let target = link.and_then(|link| self.links.get(link));
        match target {
            Some(target) => found(target),
            None => Reply::status(404, "the origin's page").header(LINK, LINK_UNKNOWN),
        }
    }
}

/// The origin's answer for a link to `target`.
pub fn found(target: &str) -> Reply {
    let read = Read {
        record: Link::to(target).encode(),
        left_ms: None,
        clicks_left: None,
    };
    Reply::status(200, document::write(&read))
}

impl Gate {
    pub fn new() -> Self {
        Self::with(CONFIG)
    }

    /// A gateway that has read its domains.
    pub fn with(config: &str) -> Self {
        let gate = Self::unaware(config);
        gate.publish(DOMAINS);
        gate.host.advance(Duration::from_millis(300));
        // The first request starts a worker's polls.
        for worker in 0..2 {
            gate.request(worker, "/").send();
        }
        gate.host.run_until_idle();
        gate
    }

    /// A gateway that has not polled yet.
    pub fn unaware(config: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        let connection = runtime.block_on(server.connection()).unwrap();
        let origin = Rc::<RefCell<Origin>>::default();
        let requested = Rc::clone(&origin);
        let host = Host::builder()
            .module_file(weir_stack::wasm::filter("shortlink-redirect").unwrap())
            .vm_id("weir")
            .plugin_config(config)
            .start_at_ns(NOW_MS * 1_000_000)
            .workers(2)
            .failure_policy(FailurePolicy::FailReload)
            .cluster("weir_redis", redis_of(&server))
            .cluster(
                "weir_origin",
                Upstream::scripted(move |call| requested.borrow_mut().answer(call)),
            )
            .start()
            .unwrap();
        Self {
            host,
            origin,
            runtime,
            connection: RefCell::new(connection),
            server,
            _dir: dir,
        }
    }

    pub fn redis<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let mut connection = self.connection.borrow_mut();
        self.runtime
            .block_on(command.query_async(&mut *connection))
            .unwrap()
    }

    /// Switches Redis on or off.
    pub fn set_redis(&self, is_up: bool) {
        let upstream = match is_up {
            true => redis_of(&self.server),
            false => Upstream::held(),
        };
        self.host.set_cluster("weir_redis", upstream);
    }

    pub fn publish(&self, domains: &str) {
        self.redis::<()>(cmd("SET").arg(keys::link_domains("weir")).arg(domains));
    }

    /// Stores a link in Redis, like the origin.
    pub fn put(&self, link_id: &str, link: &Link) {
        let key = keys::LinkKeys::new("weir", &link_id.parse().unwrap()).record();
        let mut command = cmd("SET");
        command.arg(key).arg(link.encode());
        if link.life_ms > 0 {
            command.arg("PX").arg(link.life_ms);
        }
        self.redis::<()>(&command);
    }

    /// Stores an edited link in Redis, and reports the change.
    pub fn edit(&self, link_id: &str, link: &Link) {
        self.put(link_id, link);
        self.tell_of(link_id);
    }

    pub fn tell_of(&self, link_id: &str) {
        let mut add = Cmd::new();
        for word in link_changes::add("weir", &link_id.parse().unwrap()) {
            add.arg(word);
        }
        self.redis::<String>(&add);
    }

    pub fn request(&self, worker: usize, path: &str) -> RequestBuilder {
        let request = self.host.request(worker).path(path);
        request
            .header(":authority", "s.example.com")
            .property(&["source", "address"], "192.0.2.1:1")
    }

    /// Clicks on worker 0, and waits for the response.
    pub fn click(&self, path: &str) -> Stream {
        let stream = self.request(0, path).send();
        self.host.run_until_idle();
        stream
    }

    /// The redirect target of a click.
    pub fn location(&self, path: &str) -> String {
        location(&self.click(path))
    }

    /// Lets gateways read edits.
    pub fn poll(&self) {
        self.host.advance(Duration::from_millis(260));
    }

    /// Runs a call on Redis, without the gateway.
    pub fn replay(&self, body: &[u8]) {
        use std::io::{Read, Write};
        let mut connection =
            std::net::TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        connection.write_all(body).unwrap();
        let replied = connection.read(&mut [0; 64]).unwrap();
        assert!(replied > 0);
    }

    /// The memory of worker 0's VM, in wasm pages.
    pub fn memory_pages(&self) -> u64 {
        self.host.memory_pages(0)
    }

    pub fn lookups(&self) -> usize {
        self.origin.borrow().requested.len()
    }

    /// A counter. Filters publish their counters on ticks.
    pub fn metric(&self, name: &str) -> u64 {
        self.host.tick();
        self.host
            .metric(&format!("weir_shortlink_{name}"))
            .unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn found(&self, place: &str) -> u64 {
        self.metric(&format!("found_total.place.{place}"))
    }

    pub fn answered(&self, answer: &str) -> u64 {
        self.metric(&format!("answers_total.answer.{answer}"))
    }

    /// The batches in the stream of clicks.
    pub fn batches(&self) -> Vec<(BatchId, Vec<Row>)> {
        let key = keys::link_clicks("weir");
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            self.redis(cmd("XRANGE").arg(key).arg("-").arg("+"));
        let batch = |(_, fields): &(String, Vec<Vec<u8>>)| {
            let [b, id, d, payload] = &fields[..] else {
                panic!("{fields:?}")
            };
            assert_eq!(
                (b.as_slice(), d.as_slice()),
                (keys::BATCH_ID, keys::BATCH_ROWS)
            );
            let id = std::str::from_utf8(id).unwrap().parse().unwrap();
            (id, decode(payload).unwrap())
        };
        entries.iter().map(batch).collect()
    }

    /// The number of clicks in the stream; a duplicate batch counts once.
    pub fn clicks(&self) -> u64 {
        let batches: BTreeMap<_, _> = self.batches().into_iter().collect();
        let rows = batches.values().flatten();
        rows.map(|row| u64::from(row.clicks)).sum()
    }
}

fn redis_of(server: &RedisServer) -> Upstream {
    Upstream::resp(format!("127.0.0.1:{}", server.port()))
}

pub fn link() -> Link {
    Link::to(TARGET)
}

pub fn location(stream: &Stream) -> String {
    header(stream, "location").unwrap_or_else(|| panic!("{:?}", stream.state()))
}

pub fn header(stream: &Stream, name: &str) -> Option<String> {
    let reply = stream.reply()?;
    reply.header(name).map(ToOwned::to_owned)
}

pub fn status(stream: &Stream) -> u16 {
    stream
        .status()
        .unwrap_or_else(|| panic!("{:?}", stream.state()))
}
