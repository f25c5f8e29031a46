//! Rules that count in a real Redis with a real clock.

use tokio::runtime::Runtime;
use weir_host_test::{Stream, Upstream};
use weir_stack::redis::{RedisServer, command_calls};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

use super::support::{Limiter, config, header, host, is_passed};

struct RedisFixture {
    limiter: Limiter,
    runtime: Runtime,
    server: RedisServer,
    _dir: tempfile::TempDir,
}

impl RedisFixture {
    fn new(rules: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        let address = format!("127.0.0.1:{}", server.port());
        let host = host(&config(rules, r#""redis": { "deadline_ms": 5000 }"#));
        let host = host
            .cluster("weir_redis", Upstream::resp(address))
            .start()
            .unwrap();
        Self {
            limiter: Limiter { host },
            runtime,
            server,
            _dir: dir,
        }
    }

    /// Concurrent requests of one user on both workers.
    fn ask_all(&self, user: &str, count: usize) -> Vec<Stream> {
        let ask = |n| self.limiter.request(n % 2, user).send();
        let streams: Vec<_> = (0..count).map(ask).collect();
        self.limiter.host.run_until_idle();
        streams
    }

    fn passed(&self, user: &str, count: usize) -> usize {
        self.ask_all(user, count)
            .iter()
            .filter(|stream| is_passed(stream))
            .count()
    }

    fn script_calls(&self) -> u64 {
        let url = format!("redis://127.0.0.1:{}", self.server.port());
        let calls = self.runtime.block_on(command_calls(&url)).unwrap();
        ["eval", "evalsha"]
            .iter()
            .filter_map(|name| calls.get(*name))
            .sum()
    }
}

#[test]
fn workers_share_a_redis_limit_with_batched_commands() {
    let rule = r#"{ "name": "r", "store": "redis", "key": ["user"], "limit": { "rate": 50, "per": "1h" } }"#;
    let shared = RedisFixture::new(&[rule]);
    let streams = shared.ask_all("alice", 600);
    assert_eq!(
        streams.iter().filter(|stream| is_passed(stream)).count(),
        50
    );
    let refused = streams
        .iter()
        .find(|stream| stream.status() == Some(429))
        .unwrap();
    assert_eq!(header(refused, "retry-after").unwrap(), "72");
    assert_eq!(
        shared.limiter.count("allowed", "r") + shared.limiter.count("limited", "r"),
        600
    );
    assert!(shared.script_calls() <= 20, "{}", shared.script_calls());
    assert_eq!(shared.passed("bob", 60), 50);
}

#[test]
fn request_refused_by_one_rule_charges_no_rule_in_redis() {
    let rules = [
        r#"{ "name": "all", "store": "redis", "limit": { "rate": 30, "per": "1h" } }"#,
        r#"{ "name": "user", "store": "redis", "key": ["user"], "algorithm": "sliding_window", "limit": { "rate": 20, "per": "1h" } }"#,
    ];
    let shared = RedisFixture::new(&rules);
    assert_eq!(shared.passed("alice", 100), 20);
    assert_eq!(shared.passed("bob", 100), 10);
    assert_eq!(shared.passed("carol", 10), 0);
}

#[test]
fn requests_in_flight_in_redis_count_until_they_end() {
    let rule = r#"{ "name": "c", "store": "redis", "algorithm": "concurrency", "limit": { "rate": 5, "per": "10m" } }"#;
    let shared = RedisFixture::new(&[rule]);
    let streams = shared.ask_all("any", 10);
    let passed: Vec<_> = streams.iter().filter(|stream| is_passed(stream)).collect();
    assert_eq!(passed.len(), 5);
    assert_eq!(shared.passed("any", 3), 0);
    passed[0].disconnect();
    passed[1].respond(200, [], "done");
    shared.limiter.host.run_until_idle();
    assert_eq!(shared.passed("any", 5), 2);
}

#[test]
fn shadow_rule_counts_in_redis_and_refuses_no_request() {
    let rule = r#"{ "name": "r", "store": "redis", "mode": "shadow", "limit": { "rate": 5, "per": "1h" } }"#;
    let shared = RedisFixture::new(&[rule]);
    assert_eq!(shared.passed("any", 20), 20);
    assert_eq!(shared.limiter.count("shadow_limited", "r"), 15);
    assert_eq!(shared.limiter.count("allowed", "r"), 5);
}

#[test]
fn slices_save_calls_and_admit_no_more_than_the_limit() {
    let rule = r#"{ "name": "r", "store": "redis", "lease": { "max": 100, "lasts": "1m" },
        "algorithm": "fixed_window", "limit": { "rate": 1000, "per": "1d" } }"#;
    let shared = RedisFixture::new(&[rule]);
    let mut passed = 0;
    for _ in 0..2_000 {
        let stream = shared.limiter.request(0, "any").send();
        shared.limiter.host.run_until_idle();
        passed += usize::from(is_passed(&stream));
        stream.disconnect();
    }
    assert_eq!(passed, 1_000);
    let calls = shared.script_calls();
    assert!(
        calls <= 32,
        "{calls} calls for 1,000 requests that pass, and one for the others"
    );
}

#[test]
fn refused_client_causes_no_redis_call_until_its_retry_time() {
    let rule = r#"{ "name": "r", "store": "redis", "key": ["user"], "limit": { "rate": 1, "per": "1h" } }"#;
    let shared = RedisFixture::new(&[rule]);
    let flood = |user: &str| {
        let requested = (0..100).map(|_| {
            let stream = shared.limiter.request(0, user).send();
            shared.limiter.host.run_until_idle();
            stream
        });
        requested.collect::<Vec<_>>()
    };
    let received = flood("alice");
    assert_eq!(
        received.iter().filter(|stream| is_passed(stream)).count(),
        1
    );
    assert_eq!(header(&received[99], "retry-after").unwrap(), "3600");
    // One for each, and an earlier one that did not find the script.
    assert_eq!(shared.script_calls(), 3, "one passed, one was refused");
    assert_eq!(shared.limiter.count("limited", "r"), 99);
    assert_eq!(shared.passed("bob", 1), 1);
    assert_eq!(shared.script_calls(), 4);
    // The wait is over by the gateway's clock, but not by Redis' clock, so Redis is called.
    shared
        .limiter
        .host
        .advance(std::time::Duration::from_secs(3_600));
    // Meanwhile the gateway has reported what it runs.
    let reported = shared.script_calls();
    assert_eq!(shared.passed("alice", 1), 0);
    assert_eq!(shared.script_calls(), reported + 1);
}
