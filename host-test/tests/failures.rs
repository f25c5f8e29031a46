//! Traps, what follows them, and calls that crash Envoy.

use std::time::Duration;

use crate::common::{host, worker_logs};
use weir_host_test::{FailurePolicy, Host, LogLevel, Status, StreamState, Thread};

/// `x-do`: p(ause), t(rap); anything else continues. Logs 99 at the start and 77 in a reply's response callback.
const FILTER: &str = r#"
  (data (i32.const 0) "x-do")
  (func (export "proxy_on_configure") (param i32 i32) (result i32) (call $note (i32.const 99)) (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (local $do i32)
    (drop (call $get_header (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 1024) (i32.const 1028)))
    (local.set $do (i32.load8_u (i32.load (i32.const 1024))))
    (if (i32.eq (local.get $do) (i32.const 116)) (then (unreachable)))
    (i32.eq (local.get $do) (i32.const 112)))
"#;

fn send(host: &Host, subject: &str) -> StreamState {
    host.request(0).header("x-do", subject).send().state()
}

fn failed(state: &StreamState) -> bool {
    matches!(state, StreamState::Replied(reply)
        if reply.status == 503 && reply.details == "wasm_fail_stream")
}

#[test]
fn trap_ends_the_vm_permanently() {
    let host = host(FILTER).workers(2).start().unwrap();
    let paused = host.request(0).header("x-do", "p").send();
    let gone_on = host.request(0).header("x-do", "-").send();
    assert!(failed(&send(&host, "t")));
    assert_eq!(paused.state(), StreamState::Hung);
    assert!(failed(&send(&host, "-")));
    gone_on.respond(200, [], "");
    assert!(
        failed(&gone_on.state()),
        "its response can't pass the filter"
    );
    assert!(!host.is_alive(0));
    assert!(host.is_alive(1), "another worker has another VM");
    let other = host.request(1).header("x-do", "-").send();
    assert!(other.is_continued());
    let grave = host.logs_from(LogLevel::Critical);
    assert_eq!(grave.len(), 1);
    assert!(grave[0].message.contains("unreachable"), "{}", grave[0]);
    host.advance(Duration::from_secs(60));
    assert!(failed(&send(&host, "-")));
    paused.disconnect();
    assert_eq!(paused.state(), StreamState::Gone);
}

#[test]
fn reload_creates_at_most_one_vm_per_second() {
    let builder = host(FILTER).failure_policy(FailurePolicy::FailReload);
    let host = builder.start().unwrap();
    let paused = host.request(0).header("x-do", "p").send();
    assert!(failed(&send(&host, "t")));
    host.clear_logs();
    assert!(matches!(send(&host, "-"), StreamState::Continued(_)));
    assert_eq!(worker_logs(&host), ["99"], "configured anew");
    assert_eq!(paused.state(), StreamState::Hung);
    assert!(failed(&send(&host, "t")));
    host.advance(Duration::from_millis(999));
    assert!(failed(&send(&host, "-")), "too early");
    host.advance(Duration::from_millis(1));
    assert!(matches!(send(&host, "-"), StreamState::Continued(_)));
}

#[test]
fn failing_open_passes_requests() {
    let builder = host(FILTER).failure_policy(FailurePolicy::FailOpen);
    let host = builder.start().unwrap();
    assert!(matches!(send(&host, "t"), StreamState::Continued(_)));
    assert!(matches!(send(&host, "p"), StreamState::Continued(_)));
}

#[test]
fn test_can_trap_and_fail_host_calls() {
    let host = host(FILTER).start().unwrap();
    host.fail_next("proxy_get_header_map_value", Status::InternalFailure);
    host.request(0).header("x-do", "t").send();
    assert!(host.is_alive(0), "the call did nothing");
    host.trap_next("proxy_get_header_map_value");
    assert!(failed(&send(&host, "-")));
    assert!(host.logged("the test made proxy_get_header_map_value trap"));
}

#[test]
fn infinite_loop_runs_out_of_fuel() {
    let own = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (loop $for_ever (br $for_ever)) (i32.const 0))"#;
    let host = host(own).fuel_per_callback(100_000).start().unwrap();
    assert!(failed(&send(&host, "-")));
    assert!(host.logged("fuel"));
}

/// Pauses every request. A notification answers contexts 2 to `n`, and checks that they exist only if `$checks`.
fn answerer(last: u32, checks: u32) -> String {
    format!(
        r#"
      (data (i32.const 0) "q")
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $register_queue (i32.const 0) (i32.const 1) (i32.const 8))) (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
      (func (export "proxy_on_queue_ready") (param i32 i32)
        (local $id i32)
        (local.set $id (i32.const 2))
        (loop $next
          (if (i32.eqz (i32.and (call $set_effective (local.get $id)) (i32.const {checks})))
            (then (call $answer (i32.const 429))))
          (local.set $id (i32.add (local.get $id) (i32.const 1)))
          (br_if $next (i32.le_u (local.get $id) (i32.const {last})))))"#,
        checks = if checks == 1 { -1 } else { 0 }
    )
}

#[test]
fn checked_reply_skips_only_the_disconnected_client() {
    let host = host(&answerer(4, 1)).start().unwrap();
    let streams: Vec<_> = (0..3).map(|_| host.request(0).send()).collect();
    streams[1].disconnect();
    host.enqueue("q", "");
    host.run_until_idle();
    assert_eq!(streams[0].status(), Some(429));
    assert_eq!(streams[1].state(), StreamState::Gone);
    assert_eq!(streams[2].status(), Some(429));
    assert_eq!(host.open_contexts(Thread::Worker(0)), 0);
}

#[test]
fn unchecked_reply_is_a_violation_and_is_not_delivered() {
    let host = host(&answerer(3, 0)).allow_violations().start().unwrap();
    let first = host.request(0).send();
    let second = host.request(0).send();
    second.disconnect();
    host.enqueue("q", "");
    host.run_until_idle();
    assert_eq!(first.status(), Some(429));
    let violations = host.violations();
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].call, "proxy_send_local_response");
    let message = violations[0].to_string();
    assert!(
        message.contains("set_effective_context(3) had failed"),
        "{message}"
    );
}

#[test]
#[should_panic(expected = "calls that crash Envoy")]
fn violation_fails_the_test_when_the_host_is_dropped() {
    let host = host(&answerer(2, 0)).start().unwrap();
    host.request(0).send().disconnect();
    host.enqueue("q", "");
    host.run_until_idle();
}

#[test]
fn replies_and_resumptions_without_a_stream_are_violations() {
    let own = r#"
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $set_tick (i32.const 1000))) (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $answer (i32.const 200)) (call $answer (i32.const 201)) (i32.const 1))
      (func (export "proxy_on_tick") (param i32)
        (drop (call $continue (i32.const 0))))"#;
    let host = host(own).start().unwrap();
    assert_eq!(host.request(0).send().status(), Some(200));
    let twice = host.take_violations();
    assert_eq!(twice.len(), 1);
    assert!(twice[0].explanation.contains("already has a reply"));
    host.advance(Duration::from_secs(1));
    let stray = host.take_violations();
    assert_eq!(stray.len(), 2, "the main thread's and the worker's");
    assert!(stray[0].explanation.contains("not an HTTP stream"));
    host.assert_sound();
}

#[test]
fn too_many_answers_from_one_callback_overflow_the_stack() {
    let crowd = |answers: u32| {
        let host = host(&answerer(answers + 1, 1))
            .answers_per_callback(64)
            .start()
            .unwrap();
        let streams: Vec<_> = (0..answers).map(|_| host.request(0).send()).collect();
        host.enqueue("q", "");
        host.run_until_idle();
        let hung = streams
            .iter()
            .filter(|s| s.state() == StreamState::Hung)
            .count();
        (host.is_alive(0), hung)
    };
    assert_eq!(crowd(64), (true, 0));
    assert_eq!(crowd(66), (false, 2));
}

#[test]
fn trap_after_a_reply_still_returns_503() {
    let own = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $answer (i32.const 403)) (unreachable))"#;
    let host = host(own).start().unwrap();
    assert!(failed(&send(&host, "-")));
}

#[test]
fn effective_context_ends_with_its_callback() {
    // The first notification makes context 2 effective; the second resumes without setting a context.
    let own = r#"
      (data (i32.const 0) "q")
      (global $turns (mut i32) (i32.const 0))
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $register_queue (i32.const 0) (i32.const 1) (i32.const 8))) (i32.const 1))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
      (func (export "proxy_on_queue_ready") (param i32 i32)
        (global.set $turns (i32.add (global.get $turns) (i32.const 1)))
        (if (i32.eq (global.get $turns) (i32.const 1))
          (then (drop (call $set_effective (i32.const 2))))
          (else (drop (call $continue (i32.const 0))))))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).send();
    host.enqueue("q", "");
    host.enqueue("q", "");
    host.run_until_idle();
    assert!(stream.is_paused());
    let violations = host.take_violations();
    assert_eq!(violations.len(), 1);
    assert!(violations[0].explanation.contains("not an HTTP stream"));
}

#[test]
fn fuel_can_be_limited_later_and_the_trap_names_the_function() {
    let module = r#"(module
        (memory (export "memory") 1)
        (func (export "malloc") (param i32) (result i32) (i32.const 4096))
        (func (export "proxy_abi_version_0_2_1"))
        (func $busy (loop $again (br $again)))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (call $busy) (i32.const 0)))"#;
    let host = Host::builder().module_wat(module).start().unwrap();
    host.limit_fuel_per_callback(1_000);
    host.request(0).send();
    assert!(host.logged("all fuel consumed") && host.logged("busy"));
}
