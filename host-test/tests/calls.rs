//! `proxy_http_call`, the clock and ticks.

use std::time::Duration;

use crate::common::{host, pairs, pairs_len, resp_server, worker_logs};
use weir_host_test::{Builder, Host, Reply, Thread, Upstream};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A request calls the cluster in `x-cluster` and pauses. The reply's status, sizes and body are logged, and the
/// request resumes. The timeout is 200 ms.
fn caller(headers: &[(&str, &str)]) -> Builder {
    let own = format!(
        r#"
      (data (i32.const 0) "x-cluster") (data (i32.const 16) "PING\0d\0a") (data (i32.const 32) ":status")
      (data (i32.const 64) "{}")
      (global $waiting (mut i32) (i32.const 0))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $get_header (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 1024) (i32.const 1028)))
        (call $note (call $http_call (i32.load (i32.const 1024)) (i32.load (i32.const 1028))
          (i32.const 64) (i32.const {}) (i32.const 16) (i32.const 6) (i32.const 0) (i32.const 0)
          (i32.const 200) (i32.const 1036)))
        (call $note (i32.load (i32.const 1036)))
        (global.set $waiting (local.get 0))
        (i32.const 1))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (call $note (local.get 0)) (call $note (local.get 1)) (call $note (local.get 2)) (call $note (local.get 3))
        (drop (call $get_status (i32.const 1032) (i32.const 1024) (i32.const 1028)))
        (call $note (i32.load (i32.const 1032)))
        (i32.store (i32.const 1028) (i32.const 0))
        (drop (call $get_header (i32.const 6) (i32.const 32) (i32.const 7) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (i32.store (i32.const 1028) (i32.const 0))
        (drop (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 99) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (if (i32.eqz (call $set_effective (global.get $waiting)))
          (then (drop (call $continue (i32.const 0))))))"#,
        pairs(headers),
        pairs_len(headers)
    );
    host(&own)
}

const HEADERS: &[(&str, &str)] = &[(":method", "POST"), (":path", "/"), (":authority", "redis")];

fn call(host: &Host, cluster: &str) -> weir_host_test::Stream {
    host.clear_logs();
    host.request(0).header("x-cluster", cluster).send()
}

#[test]
fn scripted_upstream_answers_in_a_later_turn() {
    let upstream = Upstream::scripted(|call| {
        assert_eq!(call.headers.text(":authority"), Some("redis"));
        Reply::ok(call.body.to_ascii_lowercase()).header("x-y", "z")
    });
    let host = caller(HEADERS).cluster("redis", upstream).start().unwrap();
    let stream = call(&host, "redis");
    assert_eq!(worker_logs(&host), ["00", "04"]);
    assert!(stream.is_paused());
    assert_eq!(host.calls().len(), 1);
    host.run_until_idle();
    // Root context, token, headers, body; status; `:status`; body.
    assert_eq!(
        worker_logs(&host)[2..],
        ["01", "04", "03", "06", "00", "200", "ping\r\n"]
    );
    assert!(stream.is_continued());
    assert!(host.calls().is_empty());
}

#[test]
fn dispatch_fails_as_in_envoy() {
    let builder = caller(HEADERS).cluster("sick", Upstream::unhealthy());
    let host = builder.start().unwrap();
    call(&host, "unknown");
    assert_eq!(worker_logs(&host), ["02", "00"]);
    call(&host, "sick");
    assert_eq!(worker_logs(&host), ["10", "00"]);
    host.advance(MS(1000));
    assert_eq!(worker_logs(&host).len(), 2, "no callback ever comes");
    for missing in HEADERS {
        let mut headers = HEADERS.to_vec();
        headers.retain(|header| header != missing);
        let host = caller(&headers)
            .cluster("redis", Upstream::held())
            .start()
            .unwrap();
        call(&host, "redis");
        assert_eq!(worker_logs(&host), ["02", "00"], "without {:?}", missing);
    }
}

#[test]
fn call_timeout_has_no_headers() {
    let host = caller(HEADERS)
        .cluster("redis", Upstream::held())
        .start()
        .unwrap();
    let stream = call(&host, "redis");
    let id = host.calls()[0].id;
    host.advance(MS(199));
    assert!(stream.is_paused());
    host.advance(MS(1));
    assert_eq!(
        worker_logs(&host)[2..],
        ["01", "04", "00", "00", "11", "", ""]
    );
    assert!(stream.is_continued());
    assert!(
        !host.answer(id, Reply::ok("late")),
        "the reply comes too late"
    );
}

#[test]
fn replies_can_be_held_delayed_reordered_and_failed() {
    let replies = [
        Reply::Hold,
        Reply::ok("2").after(MS(20)),
        Reply::Fail,
        Reply::unreachable(),
    ];
    let host = caller(HEADERS)
        .cluster("redis", Upstream::replies(replies))
        .start()
        .unwrap();
    for _ in 0..4 {
        call(&host, "redis");
    }
    host.clear_logs();
    host.run_until_idle();
    let tokens = |host: &Host| -> Vec<String> {
        worker_logs(host)
            .chunks(7)
            .map(|answer| answer[1].clone())
            .collect()
    };
    assert_eq!(tokens(&host), ["12", "16"]);
    assert_eq!(worker_logs(&host)[7 + 5], "503");
    host.advance(MS(20));
    assert_eq!(tokens(&host), ["12", "16", "08"]);
    let held = host.calls();
    assert_eq!((held.len(), held[0].body_text().as_str()), (1, "PING\r\n"));
    assert!(host.answer(held[0].id, Reply::ok("1")));
    host.run_until_idle();
    assert_eq!(tokens(&host)[3], "04");
}

#[test]
fn call_outlives_its_stream_and_the_callback_detects_it() {
    let host = caller(HEADERS)
        .cluster("redis", Upstream::held())
        .start()
        .unwrap();
    let stream = call(&host, "redis");
    stream.disconnect();
    let id = host.calls()[0].id;
    host.answer(id, Reply::ok("x"));
    host.run_until_idle();
    assert_eq!(
        worker_logs(&host)[2..],
        ["01", "04", "02", "01", "00", "200", "x"]
    );
    assert_eq!(host.violations(), [], "set_effective_context was checked");
}

#[test]
fn new_root_cancels_the_calls_of_the_old_root() {
    let host = caller(HEADERS)
        .cluster("redis", Upstream::held())
        .start()
        .unwrap();
    call(&host, "redis");
    host.reconfigure("").unwrap();
    assert!(host.calls().is_empty());
}

#[test]
fn clusters_can_be_added_and_removed() {
    let host = caller(HEADERS).start().unwrap();
    host.set_cluster("redis", Upstream::held());
    call(&host, "redis");
    host.remove_cluster("redis");
    host.run_until_idle();
    assert_eq!(
        worker_logs(&host)[2..6],
        ["01", "04", "00", "00"],
        "reset before it arrived"
    );
}

#[test]
fn call_waits_for_the_reply_of_a_real_resp_server() {
    let commands = "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let own = format!(
        r#"
      (data (i32.const 0) "redis") (data (i32.const 64) "{}") (data (i32.const 512) "{}")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $http_call (i32.const 0) (i32.const 5) (i32.const 64) (i32.const {})
          (i32.const 512) (i32.const {}) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1036)))
        (i32.const 1))
      (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (drop (call $get_buffer (i32.const 4) (i32.const 0) (local.get 3) (i32.const 1024) (i32.const 1028)))
        (call $say_result))"#,
        pairs(HEADERS),
        commands.replace("\r\n", "\\0d\\0a"),
        pairs_len(HEADERS),
        commands.len()
    );
    let address = resp_server(b"+PONG\r\n$5\r\nhello\r\n");
    let host = host(&own)
        .cluster("redis", Upstream::resp(address))
        .start()
        .unwrap();
    for _ in 0..2 {
        host.request(0).send();
        assert_eq!(host.calls()[0].timeout, None, "a timeout of 0 is none");
        host.run_until_idle();
    }
    assert_eq!(worker_logs(&host), ["+PONG\r\n$5\r\nhello\r\n"; 2]);
    host.set_cluster("redis", Upstream::resp("127.0.0.1:1"));
    host.request(0).send();
    host.run_until_idle();
    assert!(worker_logs(&host)[2].contains("connection failure"));
    let talkative = resp_server(b"+one\r\n+two\r\n+three\r\n");
    host.set_cluster("redis", Upstream::resp(talkative));
    host.request(0).send();
    host.run_until_idle();
    assert!(
        worker_logs(&host)[3].contains("connection failure"),
        "more replies than commands"
    );
}

#[test]
fn ticks_run_in_main_thread_and_workers_in_time_order() {
    // Workers and main tick every 100 ms; the third tick stops them.
    let own = r#"
      (global $left (mut i32) (i32.const 3))
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $set_tick (i32.const 100))) (i32.const 1))
      (func (export "proxy_on_tick") (param i32)
        (drop (call $now (i32.const 1024)))
        (call $note (i32.wrap_i64 (i64.rem_u (i64.div_u (i64.load (i32.const 1024)) (i64.const 100000000)) (i64.const 100))))
        (global.set $left (i32.sub (global.get $left) (i32.const 1)))
        (if (i32.eqz (global.get $left)) (then (drop (call $set_tick (i32.const 0))))))"#;
    let host = host(own)
        .workers(2)
        .start_at_ns(1_000_000_000)
        .start()
        .unwrap();
    host.advance(MS(99));
    assert!(host.logs().is_empty());
    host.advance(MS(101));
    let threads: Vec<_> = host.logs().iter().map(|line| line.thread).collect();
    let each = [Thread::Main, Thread::Worker(0), Thread::Worker(1)];
    assert_eq!(threads, [each, each].concat());
    host.advance(MS(10_000));
    assert_eq!(host.now_ns(), 11_200_000_000);
    assert_eq!(worker_logs(&host), ["11", "11", "12", "12", "13", "13"]);
}

#[test]
fn reply_is_readable_only_in_its_callback() {
    let own = format!(
        r#"
      (data (i32.const 0) "redis") (data (i32.const 64) "{}") (data (i32.const 512) ":status")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $get_header (i32.const 6) (i32.const 512) (i32.const 7) (i32.const 1024) (i32.const 1028)))
        (call $note (call $get_buffer (i32.const 4) (i32.const 0) (i32.const 9) (i32.const 1024) (i32.const 1028)))
        (drop (call $http_call (i32.const 0) (i32.const 5) (i32.const 64) (i32.const {}) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1036)))
        (i32.const 0))"#,
        pairs(HEADERS),
        pairs_len(HEADERS)
    );
    let upstream = Upstream::scripted(|_| Reply::ok("x"));
    let host = host(&own).cluster("redis", upstream).start().unwrap();
    for _ in 0..2 {
        host.request(0).send();
        host.run_until_idle();
    }
    assert_eq!(worker_logs(&host), ["02", "01", "02", "01"]);
}
