//! A request's way: gate, bridge, Redis, and back.

use crate::redis::Redis;
use crate::{BUSY, Cost, NOW_MS, REQUESTS, RequestSpec, SECRET, click, link_code, order};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host_test::{Call, CallId, Connection, Host, Reply, Stream, Upstream};
use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_link::redis::keys::{self, LinkKeys};

/// As `envoy/weir.yaml` has it; limits are an addition.
const CONFIG: &str = r#"{
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
    "status_routes": [{ "path": "/sales/{sale}" }],
    "identify_prefixes": ["/sales/", "/orders/"],
    "user_header": "x-user-id",
    "claim": { "keys": [{ "id": "k1", "secret": { "env": "WEIR_CLAIM_SECRET" } }] },
    "token": { "keys": [{ "id": "t1", "secret": { "env": "WEIR_TOKEN_SECRET" } }] },
    "redis": { "cluster": "weir_redis", "key_prefix": "weir", "deadline_ms": 250 },
    "poll_interval_ms": 250"#;

const LIMITS: &str = r#", "limits": { "user": { "rate": 20, "per": "1s", "burst": 40 },
    "address": { "rate": 1000, "per": "1s", "burst": 2000 }, "slots": 16384 }"#;

const CATALOGUE: &str = r#"{"sales":[
    {"id":"gone","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":4,"user_cap":1,"state":"open","band":"none"},
    {"id":"later","starts_at_ms":4102444800000,"ends_at_ms":9999999999999,"shards":4,"user_cap":1,"state":"open"},
    {"id":"open","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":4,"user_cap":1,"state":"open"},
    {"id":"tokened","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":4,"user_cap":1,"state":"open","token":true}]}"#;

/// As `envoy/shortlink.yaml` has it; `CACHE` is how many links are remembered.
const LINK_CONFIG: &str = r#"{
    "redis": { "cluster": "weir_redis", "key_prefix": "weir", "topology": "single", "deadline_ms": 100 },
    "origin": { "cluster": "weir_origin" },
    "cache": { "entries_max": CACHE, "bytes_max": 33554432 },
    "clicks": { "flush_ms": 1000, "trusted_hops": 0 } }"#;

const DOMAINS: &str = r#"{"version":1,"domains":[{"id":"b","hosts":["bench.test"]}]}"#;

/// A filter and its bridge in one process, and a Redis.
pub struct Path {
    pub(crate) gate: Host,
    pub(crate) bridge: Host,
    pub(crate) redis: Redis,
    commands: u64,
    /// The bridge's end of the gate's streams.
    streams: BTreeMap<u32, Connection>,
    /// Replies that the gate has not got yet.
    pub(crate) completion: Vec<(CallId, Vec<u8>)>,
    /// Calls that get no reply for now.
    held: Vec<CallId>,
}

impl Path {
    /// A gateway that knows four sales, with limits on users and addresses or without.
    ///
    /// # Errors
    /// When a filter cannot be built or Redis not started.
    pub fn start(with_limits: bool) -> Result<Self> {
        let gate = weir_stack::wasm::filter("seckill-gate")?;
        Self::before(Redis::start()?, &gate, with_limits)
    }

    /// As [`Path::start`], before this Redis, which forgets what it holds, and with this module as the gate.
    pub(crate) fn before(
        mut redis: Redis,
        gate: &std::path::Path,
        with_limits: bool,
    ) -> Result<Self> {
        redis.command(&["FLUSHALL"])?;
        redis.command(&["SET", "weir:catalogue", CATALOGUE])?;
        for (sale, stock) in [("gone", "0"), ("open", "1000000"), ("tokened", "1000000")] {
            for shard in 0..4 {
                let key = |name| format!("weir:{{{sale}:{shard}}}:{name}");
                redis.command(&["SET", &key("stock"), stock])?;
                redis.command(&["SET", &key("sums"), "1 0 0 0 0 0"])?;
            }
        }
        let config = format!("{CONFIG}{}}}", if with_limits { LIMITS } else { "" });
        let gate = Host::builder()
            .module_file(gate)
            .vm_id("weir")
            .plugin_config(config)
            .env("WEIR_CLAIM_SECRET", SECRET)
            .env("WEIR_TOKEN_SECRET", SECRET)
            .start_at_ns(NOW_MS * 1_000_000)
            .cluster("weir_redis", Upstream::held())
            .start()
            .context("the gate does not start")?;
        let mut path = Self::through_bridge(gate, redis)?;
        path.get_ready()?;
        Ok(path)
    }

    /// A gateway for short links that remembers so many, each of which was asked for once.
    ///
    /// # Errors
    /// When a filter cannot be built or Redis not started.
    pub(crate) fn for_links(remembered: usize) -> Result<Self> {
        let mut redis = Redis::start()?;
        let domains = String::from_utf8(keys::link_domains("weir"))?;
        redis.command(&["SET", &domains, DOMAINS])?;
        for n in 0..REQUESTS + BUSY {
            let id: LinkId = format!("b/{}", link_code(n)).parse()?;
            let key = String::from_utf8(LinkKeys::new("weir", &id).record())?;
            let record = Link::to("https://target.example/page").encode();
            redis.command(&["SET", &key, &String::from_utf8(record)?])?;
        }
        let filter = Host::builder()
            .module_file(weir_stack::wasm::filter("shortlink-redirect")?)
            .vm_id("weir-shortlink")
            .plugin_config(LINK_CONFIG.replace("CACHE", &remembered.to_string()))
            .start_at_ns(NOW_MS * 1_000_000)
            .cluster("weir_redis", Upstream::held())
            .start()
            .context("the filter for links does not start")?;
        let mut path = Self::through_bridge(filter, redis)?;
        // The first request makes it read its domains; those after it, their links.
        for _ in 0..2 {
            for n in 0..REQUESTS + BUSY {
                click(n).send(&path.gate);
            }
            path.turn()?;
            path.gate.advance(Duration::from_millis(250));
            path.turn()?;
        }
        Ok(path)
    }

    fn through_bridge(gate: Host, redis: Redis) -> Result<Self> {
        let bridge = Host::builder()
            .module_file(weir_stack::wasm::filter("redis-bridge")?)
            .vm_id("weir-redis-bridge")
            .beside(&gate)
            .start()
            .context("the bridge does not start")?;
        Ok(Self {
            gate,
            bridge,
            redis,
            commands: 0,
            streams: BTreeMap::new(),
            completion: Vec::new(),
            held: Vec::new(),
        })
    }

    /// The catalogue is read, what is sold out is known, and tables are made.
    fn get_ready(&mut self) -> Result<()> {
        self.gate.advance(Duration::from_millis(50));
        self.turn()?;
        for sale in ["open", "gone"] {
            for user in 0..REQUESTS {
                order(sale, 1_000_000 + user).send(&self.gate);
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Passes every Redis call and its replies through the bridge until no request waits.
    pub(crate) fn turn(&mut self) -> Result<()> {
        loop {
            self.gate.run_until_idle();
            let calls = self.calls();
            if calls.is_empty() {
                return Ok(());
            }
            for call in calls {
                let reply = self.carry(&call)?;
                self.gate.answer(call.id, Reply::ok(reply));
            }
        }
    }

    /// The calls under way, but for those that are held.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls = self.gate.calls();
        calls.retain(|call| !self.held.contains(&call.id));
        calls
    }

    /// Puts so many requests under way, and holds what they ask of Redis, that others wait until they fill a batch.
    pub(crate) fn keep_busy(&mut self, ask: impl Fn(u64) -> RequestSpec) {
        for n in REQUESTS..REQUESTS + BUSY {
            ask(n).send(&self.gate);
        }
        self.gate.run_until_idle();
        self.held = self.gate.calls().iter().map(|call| call.id).collect();
    }

    /// The replies to one call.
    pub(crate) fn carry(&mut self, call: &Call) -> Result<Vec<u8>> {
        let stream = call.stream().context("a call that is on no stream")?;
        let bridge = &self.bridge;
        let connection = self.streams.entry(stream).or_insert_with(|| {
            let connection = bridge.connection(0);
            connection.downstream(HEAD);
            connection
        });
        let passed = connection.downstream(chunk(&call.body));
        ensure!(passed == call.body, "the bridge passes something else");
        let (replies, count) = self.redis.exchange(&passed)?;
        self.commands += count;
        let response = connection.upstream(&replies);
        // Before it stand at most the head and always the chunk's size and the message's prefix; after it, a line's end.
        let end = response.len().saturating_sub(2);
        let begin = end.saturating_sub(replies.len());
        let reply = response.get(begin..end).unwrap_or_default();
        ensure!(reply == replies, "the bridge answers something else");
        Ok(replies)
    }

    /// What each of [`REQUESTS`] requests costs that come at once. All must be answered with `status`, or go on if that
    /// is 0.
    pub(crate) fn cost(
        &mut self,
        scenario: &'static str,
        status: u16,
        ask: impl Fn(u64) -> RequestSpec,
    ) -> Result<Cost> {
        // Tokens and tables are made before.
        let asks: Vec<RequestSpec> = (0..REQUESTS).map(ask).collect();
        let (before, commands) = (self.gate.cost(), self.commands);
        let streams: Vec<Stream> = asks.iter().map(|ask| ask.send(&self.gate)).collect();
        self.turn()?;
        let after = self.gate.cost();
        check(scenario, status, &streams)?;
        let commands = self.commands - commands;
        Ok(Cost::between(scenario, &before, &after, REQUESTS, commands))
    }

    /// The same of requests that wait for a batch to fill, and all go in that one.
    pub(crate) fn cost_of_batch(
        &mut self,
        scenario: &'static str,
        status: u16,
        ask: impl Fn(u64) -> RequestSpec,
    ) -> Result<Cost> {
        self.keep_busy(&ask);
        let cost = self.cost(scenario, status, ask)?;
        self.held.clear();
        self.turn()?;
        Ok(cost)
    }

    fn one(&mut self, scenario: &'static str, user: u64) -> Result<()> {
        let stream = order("open", user).send(&self.gate);
        self.turn()?;
        check(scenario, 0, &[stream])
    }

    /// The cost of each of this many claims, sent one by one.
    pub(crate) fn cost_one_by_one(&mut self, scenario: &'static str, first: u64) -> Result<Cost> {
        // The one after a full batch takes a turn, for others who may come.
        self.one(scenario, first + REQUESTS)?;
        let (before, commands) = (self.gate.cost(), self.commands);
        for user in first..first + REQUESTS {
            self.one(scenario, user)?;
        }
        let after = self.gate.cost();
        let commands = self.commands - commands;
        Ok(Cost::between(scenario, &before, &after, REQUESTS, commands))
    }
}

fn check(scenario: &str, status: u16, streams: &[Stream]) -> Result<()> {
    for stream in streams {
        let is_right = match status {
            0 => stream.is_continued(),
            status => stream.status() == Some(status),
        };
        ensure!(
            is_right,
            "{scenario}: a request came to {:?}",
            stream.state()
        );
    }
    Ok(())
}

/// As Envoy begins a stream to the internal listener.
const HEAD: &str = "POST /weir.Redis/Call HTTP/1.1\r\nhost: weir_redis\r\nte: trailers\r\n\
                    content-type: application/grpc\r\nx-envoy-internal: true\r\n\
                    x-forwarded-for: 10.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n";

/// A message on it.
fn chunk(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let size = format!("{:x}\r\n\0", body.len() + 5);
    [size.as_bytes(), &length, body, b"\r\n"].concat()
}
