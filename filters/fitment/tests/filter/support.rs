//! A gateway for fitment queries in a Proxy-Wasm host, with a real Redis.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::runtime::Runtime;
use weir_base::resp::{Value, decode};
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::fit_route_put::NewRoute;
use weir_fitment::redis::fit_vehicles::Head;
use weir_fitment::redis::fit_vehicles_put::MapPiece;
use weir_fitment::redis::keys::{FitmentKeys, VehicleMapKeys};
use weir_fitment::redis::{fit_put, fit_route_put, fit_vehicles_put};
use weir_fitment::{Offset, Placement, Plan, Shape, Sku, VehicleId};
use weir_host_test::{Builder, FailurePolicy, Host, LocalReply, Stream, StreamState, Upstream};
use weir_scripts::Call;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

pub const PREFIX: &str = "weir";

const CONFIG: &str = r#"{ "redis": { "deadline_ms": 100 },
    "origin": { "limit": { "rate": 1, "per": "1s", "burst": 3 } } }"#;

pub struct Gate {
    pub host: Host,
    server: RedisServer,
    next_version: u64,
    _runtime: Runtime,
    _dir: tempfile::TempDir,
}

/// The module as Envoy runs it, without its upstreams.
pub fn module() -> Builder {
    Host::builder()
        .module_file(weir_stack::wasm::filter("fitment").unwrap())
        .vm_id("weir")
        .failure_policy(FailurePolicy::FailReload)
        .allow_on_headers_stop_iteration()
}

impl Gate {
    /// A gateway with ten vehicles, from 1000001.
    pub fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        let redis = Upstream::resp(format!("127.0.0.1:{}", server.port()));
        let host = module()
            .plugin_config(CONFIG)
            .cluster("weir_redis", redis)
            .start()
            .unwrap();
        let mut gate = Self {
            host,
            server,
            next_version: 1,
            _runtime: runtime,
            _dir: dir,
        };
        gate.map(10);
        gate.host.request(0).path("/").send();
        gate.host.run_until_idle();
        gate.poll();
        gate
    }

    /// Sets the number of vehicles in Redis.
    pub fn map(&mut self, count: u32) {
        let vehicles: Vec<_> = (1..=count)
            .map(|offset| VehicleId::from_number(1_000_000 + offset).ok())
            .collect();
        let chunk = MapPiece {
            before: 0,
            vehicles: &vehicles,
        };
        let head = Head {
            generation: 1,
            count,
            stamp: 1,
        };
        self.run(&fit_vehicles_put::call(
            &VehicleMapKeys::new(PREFIX),
            1,
            chunk,
            Some(head),
        ));
    }

    /// Stores a SKU that fits exactly the vehicles with these offsets.
    pub fn put(&mut self, name: &str, place: &Placement, fits: &[u32]) {
        let sku = Sku::new(name).unwrap();
        let offsets: Vec<_> = fits.iter().filter_map(|fit| Offset::new(*fit)).collect();
        let shape = Shape::from_offsets(Plan::Directory, &offsets, 0);
        let keys = FitmentKeys::new(PREFIX, &place.spu);
        let version = self.next_version;
        self.next_version += 1;
        self.run(&fit_put::call(
            &keys,
            &sku,
            version,
            NewerEntryPolicy::Stays,
            &shape,
        ));
        let route = NewRoute {
            sku: &sku,
            version,
            place: Some(place),
        };
        for call in fit_route_put::calls(PREFIX, NewerEntryPolicy::Stays, [route]) {
            self.run(&call);
        }
    }

    /// Runs a call on Redis, without the gateway.
    fn run(&self, call: &Call) {
        let mut command = Vec::new();
        call.encode_eval(&mut command);
        let mut connection = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        connection.write_all(&command).unwrap();
        let mut reply = [0; 256];
        let length = connection.read(&mut reply).unwrap();
        let (reply, _) = decode(&reply[..length]).unwrap();
        assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
    }

    /// Lets the gateway read new vehicles.
    pub fn poll(&self) {
        for _ in 0..5 {
            self.host.advance(Duration::from_millis(1_010));
        }
    }

    /// Sends a query with the body in these pieces.
    pub fn ask(&self, pieces: &[&str]) -> Stream {
        let request = self.host.request(0).path("/fitment/check");
        let request = request.method("POST");
        let stream = pieces
            .iter()
            .fold(request, |request, chunk| request.body(*chunk))
            .send();
        self.host.run_until_idle();
        stream
    }
}

/// The filter's response to a client.
pub fn response(stream: &Stream) -> (u16, Json) {
    let LocalReply { status, body, .. } = match stream.state() {
        StreamState::Replied(reply) => reply,
        other => panic!("{other:?}"),
    };
    (status, serde_json::from_slice(&body).unwrap())
}
