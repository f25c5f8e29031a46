//! gRPC streams.

use std::time::Duration;

use crate::common::{host, pairs, pairs_len, resp_server, worker_logs};
use weir_host_test::{Builder, Call, Host, Reply, Status, Upstream};

/// Runs the letter in a request's `x-do`, and logs the status. The letters in `x-receive` and `x-close` run in the
/// callbacks of the stream, after logging their arguments and the message. By default it cancels a stream that was
/// closed.
///
/// o: open a stream to `x-cluster`, or to `redis`, and log its id. s: send. c: cancel. e: close. r: read the received
/// message. b: send with the token of an HTTP call. w: store this request's context. x: send with that context
/// effective. h: make an HTTP call, and log its token.
const FILTER: &str = r#"
  (data (i32.const 0) "x-do") (data (i32.const 8) "x-cluster") (data (i32.const 24) "x-receive")
  (data (i32.const 40) "x-close") (data (i32.const 96) "*1\0d\0a$4\0d\0aPING\0d\0a") (data (i32.const 64) "weir.Redis")
  (data (i32.const 80) "Ask") (data (i32.const 88) "redis")
  (global $stream (mut i32) (i32.const 6))
  (global $waiting (mut i32) (i32.const 0))
  (global $receive (mut i32) (i32.const 0))
  (global $close (mut i32) (i32.const 99))

  (func $header (param $name i32) (param $size i32)
    (i32.store (i32.const 1028) (i32.const 0))
    (drop (call $get_header (i32.const 0) (local.get $name) (local.get $size) (i32.const 1024) (i32.const 1028))))
  (func $letter (param $name i32) (param $size i32) (param $else i32) (result i32)
    (call $header (local.get $name) (local.get $size))
    (if (i32.load (i32.const 1028)) (then (return (i32.load8_u (i32.load (i32.const 1024))))))
    (local.get $else))

  (func $open
    (call $header (i32.const 8) (i32.const 9))
    (if (i32.eqz (i32.load (i32.const 1028)))
      (then (i32.store (i32.const 1024) (i32.const 88)) (i32.store (i32.const 1028) (i32.const 5))))
    (i32.store (i32.const 1036) (i32.const 0))
    (call $note (call $grpc_stream (i32.load (i32.const 1024)) (i32.load (i32.const 1028))
      (i32.const 64) (i32.const 10) (i32.const 80) (i32.const 3) (i32.const 128) (i32.const METADATA) (i32.const 1036)))
    (call $note (i32.load (i32.const 1036)))
    (if (i32.load (i32.const 1036)) (then (global.set $stream (i32.load (i32.const 1036))))))
  (func $send (param $stream i32)
    (call $note (call $grpc_send (local.get $stream) (i32.const 96) (i32.const 14) (i32.const 0))))
  (func $read
    (i32.store (i32.const 1028) (i32.const 0))
    (call $note (call $get_buffer (i32.const 5) (i32.const 0) (i32.const 99) (i32.const 1024) (i32.const 1028)))
    (call $say_result))
  (func $call
    (call $note (call $http_call (i32.const 88) (i32.const 5) (i32.const 256) (i32.const HEADERS)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1036)))
    (call $note (i32.load (i32.const 1036))))

  (func $do (param $letter i32)
    (if (i32.eq (local.get $letter) (i32.const 111)) (then (call $open)))
    (if (i32.eq (local.get $letter) (i32.const 115)) (then (call $send (global.get $stream))))
    (if (i32.eq (local.get $letter) (i32.const 98)) (then (call $send (i32.const 4))))
    (if (i32.eq (local.get $letter) (i32.const 99)) (then (call $note (call $grpc_cancel (global.get $stream)))))
    (if (i32.eq (local.get $letter) (i32.const 101)) (then (call $note (call $grpc_close (global.get $stream)))))
    (if (i32.eq (local.get $letter) (i32.const 114)) (then (call $read)))
    (if (i32.eq (local.get $letter) (i32.const 104)) (then (call $call)))
    (if (i32.eq (local.get $letter) (i32.const 120))
      (then (call $note (call $set_effective (global.get $waiting))) (call $send (global.get $stream)))))

  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (local $letter i32)
    (global.set $receive (call $letter (i32.const 24) (i32.const 9) (global.get $receive)))
    (global.set $close (call $letter (i32.const 40) (i32.const 7) (global.get $close)))
    (local.set $letter (call $letter (i32.const 0) (i32.const 4) (i32.const 0)))
    (if (i32.eq (local.get $letter) (i32.const 119)) (then (global.set $waiting (local.get 0))))
    (call $do (local.get $letter))
    (i32.const 0))
"#;

const CALLBACKS: &str = r#"
  (func (export "proxy_on_grpc_receive") (param i32 i32 i32)
    (call $note (local.get 0)) (call $note (local.get 1)) (call $note (local.get 2))
    (call $read)
    (call $do (global.get $receive)))
  (func (export "proxy_on_grpc_close") (param i32 i32 i32)
    (call $note (local.get 0)) (call $note (local.get 1)) (call $note (local.get 2))
    (call $do (global.get $close)))
"#;

const METADATA: &[(&str, &str)] = &[("x-from", "weir")];
const HEADERS: &[(&str, &str)] = &[(":method", "POST"), (":path", "/"), (":authority", "redis")];

fn filter(callbacks: &str) -> Builder {
    let own = FILTER
        .replace("METADATA", &pairs_len(METADATA).to_string())
        .replace("HEADERS", &pairs_len(HEADERS).to_string());
    let metadata = pairs(METADATA);
    let headers = pairs(HEADERS);
    host(&format!(
        r#"(data (i32.const 128) "{metadata}") (data (i32.const 256) "{headers}") {own} {callbacks}"#
    ))
}

fn start(upstream: Upstream) -> Host {
    let builder = filter(CALLBACKS).cluster("redis", upstream);
    builder.start().unwrap()
}

/// Runs each letter in a separate request; returns the log lines.
fn act(host: &Host, letters: &str) -> Vec<String> {
    host.clear_logs();
    for letter in letters.chars() {
        host.request(0).header("x-do", letter.to_string()).send();
    }
    worker_logs(host)
}

/// Sets the letter for the callback of that name.
fn plan(host: &Host, header: &str, letter: &str) {
    host.request(0).header(header, letter).send();
}

/// Runs the loop, and returns the new log lines.
fn settle(host: &Host) -> Vec<String> {
    host.clear_logs();
    host.run_until_idle();
    worker_logs(host)
}

fn bodies(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::body_text).collect()
}

#[test]
fn messages_are_answered_on_one_open_stream() {
    let mut requested = 0;
    let host = start(Upstream::scripted(move |call| {
        assert_eq!(call.headers.text(":method"), Some("POST"));
        assert_eq!(call.headers.text(":path"), Some("/weir.Redis/Ask"));
        assert_eq!(call.headers.text(":authority"), Some("redis"));
        assert_eq!(call.headers.text("x-from"), Some("weir"));
        assert_eq!((call.stream(), call.timeout), (Some(6), None));
        requested += 1;
        Reply::ok(format!("+PONG {requested}"))
    }));
    assert_eq!(act(&host, "o"), ["00", "06"]);
    assert!(host.calls().is_empty(), "an open stream has said nothing");
    for n in 1..=2 {
        assert_eq!(act(&host, "s"), ["00"]);
        assert_eq!(bodies(&host.calls()), ["*1\r\n$4\r\nPING\r\n"]);
        // Root context, stream, size; status of reading, message.
        let message = format!("+PONG {n}");
        assert_eq!(settle(&host), ["01", "06", "07", "00", message.as_str()]);
        assert!(host.calls().is_empty());
    }
    assert_eq!(act(&host, "r"), ["00", ""], "only during the callback");
    assert_eq!(host.cost().host_calls("proxy_grpc_send"), 2);
}

#[test]
fn grpc_answers_can_arrive_late_and_in_any_order() {
    let host = start(Upstream::replies([
        Reply::ok("1").after(Duration::from_millis(20)),
        Reply::Hold,
        Reply::ok("3"),
    ]));
    act(&host, "osss");
    assert_eq!(settle(&host), ["01", "06", "01", "00", "3"]);
    let held = host.calls()[1].id;
    assert!(host.answer(held, Reply::ok("2")));
    assert_eq!(settle(&host)[4], "2");
    host.clear_logs();
    host.advance(Duration::from_millis(20));
    assert_eq!(worker_logs(&host)[4], "1");
}

#[test]
fn answer_callback_can_send_another_message() {
    let host = start(Upstream::replies([Reply::ok("1")]));
    plan(&host, "x-receive", "s");
    act(&host, "os");
    assert_eq!(settle(&host)[4..], ["1", "00"]);
    assert_eq!(host.calls()[0].stream(), Some(6));
}

#[test]
fn streams_and_calls_are_counted_separately() {
    let host = start(Upstream::held());
    assert_eq!(
        act(&host, "hoho"),
        ["00", "04", "00", "06", "00", "08", "00", "10"]
    );
    let streams: Vec<_> = host.calls().iter().map(Call::stream).collect();
    assert_eq!(streams, [None, None]);
}

#[test]
fn upstream_can_close_the_stream() {
    let ends = [
        (Reply::Fail, "14"),
        (Reply::status(502, ""), "14"),
        (Reply::unreachable(), "14"),
        (Reply::status(504, ""), "14"),
        (Reply::status(400, ""), "13"),
        (Reply::status(500, ""), "02"),
    ];
    for (end, status) in ends {
        let host = start(Upstream::held());
        act(&host, "oss");
        let calls = host.calls();
        assert!(host.answer(calls[1].id, end));
        // Root context, stream, gRPC status; cancelling is fine.
        assert_eq!(settle(&host), ["01", "06", status, "00"]);
        assert!(host.calls().is_empty(), "nor is there any other answer");
        assert!(!host.answer(calls[0].id, Reply::ok("late")));
        assert_eq!(act(&host, "sc"), ["01", "01"]);
        assert_eq!(act(&host, "os"), ["00", "10", "00"], "another stream");
        assert_eq!(host.violations(), []);
    }
}

#[test]
fn pending_answer_is_dropped_with_its_stream() {
    let host = start(Upstream::replies([Reply::Fail, Reply::ok("2")]));
    act(&host, "oss");
    assert_eq!(settle(&host), ["01", "06", "14", "00"]);
}

#[test]
fn cancelled_stream_drops_its_answers() {
    let host = start(Upstream::replies([Reply::Hold, Reply::ok("2")]));
    act(&host, "os");
    settle(&host);
    let held = host.calls()[0].id;
    act(&host, "s");
    assert_eq!(act(&host, "c"), ["00"]);
    assert!(host.calls().is_empty());
    assert!(!host.answer(held, Reply::ok("1")));
    assert!(settle(&host).is_empty());
    assert_eq!(act(&host, "sc"), ["01", "01"]);
}

#[test]
fn stream_ended_by_the_filter_is_closed_by_the_upstream() {
    let host = start(Upstream::held());
    plan(&host, "x-close", "-");
    act(&host, "os");
    settle(&host);
    let held = host.calls()[0].id;
    assert_eq!(act(&host, "e"), ["00"]);
    assert!(!host.answer(held, Reply::ok("late")), "nobody hears it");
    assert_eq!(settle(&host), ["01", "06", "13"]);
    assert_eq!(
        host.violations(),
        [],
        "Envoy forgets such a stream by itself"
    );
    assert_eq!(act(&host, "s"), ["01"]);
}

#[test]
fn unavailable_cluster_and_unknown_stream_return_errors() {
    let builder = filter(CALLBACKS).cluster("sick", Upstream::unhealthy());
    let host = builder.start().unwrap();
    assert_eq!(act(&host, "o"), ["04", "00"], "the cluster does not exist");
    host.clear_logs();
    let request = host.request(0).header("x-do", "o");
    request.header("x-cluster", "sick").send();
    assert_eq!(worker_logs(&host), ["10", "00"]);
    assert!(settle(&host).is_empty(), "no callback ever comes");
    assert_eq!(act(&host, "sceb"), ["01", "01", "01", "02"]);
    host.set_cluster("redis", Upstream::held());
    assert_eq!(act(&host, "o"), ["00", "06"]);
    host.fail_next("proxy_grpc_send", Status::InternalFailure);
    assert_eq!(act(&host, "ss"), ["10", "00"]);
    host.remove_cluster("redis");
    assert_eq!(settle(&host), ["01", "06", "14", "00"]);
}

#[test]
fn only_the_root_that_opened_a_stream_finds_it() {
    let host = start(Upstream::held());
    let old = host.request(0).header("x-do", "w").send();
    assert!(old.is_continued());
    assert_eq!(act(&host, "ox"), ["00", "06", "00", "00"], "the same root");
    let held = host.calls()[0].id;
    host.reconfigure("").unwrap();
    assert!(host.calls().is_empty());
    assert!(!host.answer(held, Reply::ok("late")));
    assert_eq!(act(&host, "s"), ["01"], "gone with its root");
    assert_eq!(act(&host, "ox"), ["00", "10", "00", "01"], "another root");
    assert_eq!(act(&host, "s"), ["00"]);
}

#[test]
fn streams_end_with_their_vm() {
    let host = start(Upstream::held());
    act(&host, "os");
    let held = host.calls()[0].id;
    host.trap_next("proxy_grpc_send");
    act(&host, "s");
    assert!(!host.is_alive(0));
    assert!(!host.answer(held, Reply::Fail));
    assert!(settle(&host).is_empty());
    assert_eq!(host.violations(), []);
}

#[test]
fn missing_grpc_callbacks_are_not_called() {
    let builder = filter("").cluster("redis", Upstream::replies([Reply::ok("1"), Reply::Fail]));
    let host = builder.start().unwrap();
    act(&host, "os");
    assert!(settle(&host).is_empty());
    assert_eq!(act(&host, "s"), ["00"]);
    assert!(settle(&host).is_empty());
    assert_eq!(act(&host, "s"), ["01"]);
    let [violation] = &host.take_violations()[..] else {
        panic!("nobody cancelled the stream");
    };
    assert_eq!(violation.call, "proxy_grpc_cancel");
}

/// Asserts a single violation, by its call and a part of its explanation.
fn assert_violation(host: &Host, call: &str, chunk: &str) {
    let violations = host.take_violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].call, call);
    assert!(violations[0].explanation.contains(chunk), "{violations:?}");
}

#[test]
fn grpc_use_that_crashes_envoy_is_a_violation() {
    let host = start(Upstream::replies([Reply::ok("1")]));
    plan(&host, "x-receive", "c");
    act(&host, "os");
    assert_eq!(settle(&host)[4..], ["1", "00"]);
    assert_violation(&host, "proxy_grpc_cancel", "in its own");
    assert_eq!(act(&host, "s"), ["00"], "it had no effect");
    assert_eq!(act(&host, "ee"), ["00", "00"]);
    assert_violation(&host, "proxy_grpc_close", "ended twice");

    for (letter, call, chunk) in [
        ("-", "proxy_grpc_cancel", "did not cancel"),
        ("s", "proxy_grpc_send", "may be reset"),
    ] {
        let host = start(Upstream::replies([Reply::Fail]));
        plan(&host, "x-close", letter);
        act(&host, "os");
        settle(&host);
        let violations = host.violations();
        let found = (violations.iter()).find(|violation| violation.call == call);
        assert!(found.unwrap().explanation.contains(chunk));
        assert_eq!(act(&host, "s"), ["01"], "it is gone all the same");
        host.take_violations();
    }
}

#[test]
fn real_resp_server_answers_on_the_stream() {
    let host = start(Upstream::resp(resp_server(b"+PONG\r\n")));
    act(&host, "o");
    for _ in 0..2 {
        act(&host, "s");
        assert_eq!(settle(&host), ["01", "06", "07", "00", "+PONG\r\n"]);
    }
    host.set_cluster("redis", Upstream::resp("127.0.0.1:1"));
    act(&host, "s");
    assert_eq!(settle(&host), ["01", "06", "14", "00"], "unreachable");
}
