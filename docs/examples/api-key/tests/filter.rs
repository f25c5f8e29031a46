//! The example, built and run in a Proxy-Wasm host: with Redis by script, which needs no server, and with a real one.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Runtime;
use weir_host_test::{Host, Reply, RespCommand, RespValue, Stream, Upstream};
use weir_stack::redis::{RedisServer, command_calls, connect};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

fn host(upstream: Upstream) -> Host {
    Host::builder()
        .module_file(weir_stack::wasm::example("api-key").unwrap())
        .vm_id("example")
        .plugin_config(r#"{ "redis": { "key_prefix": "shop" } }"#)
        .cluster("weir_redis", upstream)
        .start()
        .unwrap()
}

fn ask(host: &Host, key: &str) -> Stream {
    let request = host.request(0).method("GET").path("/");
    match key {
        "" => request.send(),
        key => request
            .header("x-api-key", key)
            .header("x-api-owner", "forged")
            .send(),
    }
}

/// A Redis that knows one key.
fn reply(command: &RespCommand) -> RespValue {
    assert_eq!(command.name(), "GET");
    match command.text(0).as_str() {
        "shop:api-key:k1" => RespValue::bulk("alice"),
        _ => RespValue::Null,
    }
}

#[test]
fn requests_of_one_round_are_one_call_to_redis() {
    let calls = Rc::new(RefCell::new(Vec::new()));
    let observed = Rc::clone(&calls);
    let redis = Upstream::scripted(move |call| {
        let commands = call.commands().expect("commands");
        observed.borrow_mut().push(commands.len());
        Reply::resp(commands.iter().map(reply)).after(Duration::from_millis(5))
    });
    let host = host(redis);
    let streams: Vec<Stream> = (0..3).map(|_| ask(&host, "k1")).collect();
    let unknown = ask(&host, "k2");
    host.run_until_idle();
    assert!(unknown.is_paused(), "Redis takes 5 ms");
    host.advance(Duration::from_millis(5));
    for stream in &streams {
        let upstream = stream.upstream_request().headers;
        assert_eq!(upstream.text("x-api-owner"), Some("alice"));
    }
    assert_eq!(unknown.status(), Some(401));
    assert_eq!(*calls.borrow(), [4]);
}

#[test]
fn redis_error_makes_only_its_request_unavailable() {
    let redis = Upstream::scripted_resp(|command| match command.text(0).as_str() {
        "shop:api-key:broken" => RespValue::error("WRONGTYPE not a string"),
        _ => reply(command),
    });
    let host = host(redis);
    let (existing, broken) = (ask(&host, "k1"), ask(&host, "broken"));
    host.run_until_idle();
    assert!(existing.is_continued());
    assert_eq!(broken.status(), Some(503));
}

#[test]
fn key_in_redis_lets_the_request_pass_with_its_owner() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
    let log = dir.path().join("redis.log");
    let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
    let server = runtime.block_on(started).unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    runtime.block_on(async {
        let mut redis = connect(&url).await.unwrap();
        let set = redis::cmd("SET")
            .arg(&["shop:api-key:k1", "alice"])
            .to_owned();
        let _: String = set.query_async(&mut redis).await.unwrap();
    });

    let host = host(Upstream::resp(format!("127.0.0.1:{}", server.port())));
    let streams: Vec<Stream> = (0..20).map(|_| ask(&host, "k1")).collect();
    let unknown = ask(&host, "k2");
    host.run_until_idle();
    for stream in &streams {
        assert!(stream.is_continued(), "{:?}", stream.state());
        let upstream = stream.upstream_request().headers;
        assert_eq!(upstream.text("x-api-owner"), Some("alice"));
    }
    assert_eq!(unknown.status(), Some(401));
    let calls = runtime.block_on(command_calls(&url)).unwrap();
    assert_eq!(calls.get("get"), Some(&21));
}

#[test]
fn request_without_a_key_makes_no_redis_call() {
    let host = host(Upstream::held());
    assert_eq!(ask(&host, "").status(), Some(401));
    assert_eq!(ask(&host, &"k".repeat(257)).status(), Some(401));
}

#[test]
fn silent_redis_is_abandoned_at_the_deadline() {
    let host = host(Upstream::held());
    let waits = ask(&host, "k1");
    let remaining = ask(&host, "k1");
    host.run_until_idle();
    remaining.disconnect();
    assert!(waits.is_paused());
    host.advance(Duration::from_millis(200));
    assert_eq!(waits.status(), Some(503));
}
