//! Contexts start and end in Envoy's order, and a filter that refuses or traps prevents the host's start.

use crate::common::{host, worker_logs};
use weir_host_test::{Host, StartError, Thread};

/// Logs a letter for each callback, then the context id.
const TRACE: &str = r#"
  (data (i32.const 0) "initialize vm_start configure create tick done log delete connection headers body trailers r_headers r_body r_trailers")
  (func (export "_initialize") (call $say (i32.const 0) (i32.const 10)))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
    (call $say (i32.const 11) (i32.const 8)) (i32.const 1))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (call $say (i32.const 20) (i32.const 9)) (i32.const 1))
  (func (export "proxy_on_context_create") (param i32 i32)
    (call $say (i32.const 30) (i32.const 6)) (call $note (local.get 0)) (call $note (local.get 1)))
  (func (export "proxy_on_done") (param i32) (result i32)
    (call $say (i32.const 42) (i32.const 4)) (i32.const 1))
  (func (export "proxy_on_log") (param i32) (call $say (i32.const 47) (i32.const 3)))
  (func (export "proxy_on_delete") (param i32) (call $say (i32.const 51) (i32.const 6)) (call $note (local.get 0)))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $say (i32.const 69) (i32.const 7)) (call $note (local.get 1)) (call $note (local.get 2)) (i32.const 0))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (call $say (i32.const 77) (i32.const 4)) (call $note (local.get 1)) (call $note (local.get 2)) (i32.const 0))
  (func (export "proxy_on_request_trailers") (param i32 i32) (result i32)
    (call $say (i32.const 82) (i32.const 8)) (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (call $say (i32.const 91) (i32.const 9)) (call $note (local.get 1)) (call $note (local.get 2)) (i32.const 0))
  (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
    (call $say (i32.const 101) (i32.const 6)) (call $note (local.get 1)) (call $note (local.get 2)) (i32.const 0))
  (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
    (call $say (i32.const 108) (i32.const 10)) (i32.const 0))
  (func (export "proxy_on_new_connection") (param i32) (result i32)
    (call $say (i32.const 58) (i32.const 10)) (i32.const 0))
"#;

#[test]
fn plugin_starts_in_n_plus_two_vms() {
    let host = host(TRACE).workers(3).start().unwrap();
    let threads: Vec<_> = (host.logs().iter())
        .filter(|line| line.message == "configure")
        .map(|line| line.thread)
        .collect();
    let workers = [0, 1, 2].map(Thread::Worker);
    assert_eq!(threads[..2], [Thread::Canary, Thread::Main]);
    assert_eq!(threads[2..], workers);
    let expected = ["initialize", "create", "01", "00", "vm_start", "configure"];
    assert_eq!(worker_logs(&host)[..6], expected);
}

#[test]
fn http_stream_callbacks_follow_the_order_of_envoy() {
    let host = host(TRACE).start().unwrap();
    host.clear_logs();
    let stream = host
        .request(0)
        .body("ab")
        .body("cde")
        .trailer("t", "1")
        .send();
    let expected = [
        "create", "02", "01", "headers", "04", "00", "body", "02", "00", "body", "03", "00",
        "trailers",
    ];
    assert_eq!(worker_logs(&host), expected);
    host.clear_logs();
    stream.respond(200, [("x", "y")], "body");
    let expected = [
        "r_headers",
        "02",
        "00",
        "r_body",
        "04",
        "01",
        "log",
        "done",
        "delete",
        "02",
    ];
    assert_eq!(worker_logs(&host), expected);
    assert_eq!(host.open_contexts(Thread::Worker(0)), 0);
    stream.disconnect();
    assert_eq!(worker_logs(&host), expected, "a stream ends once");
}

#[test]
fn client_disconnect_ends_the_stream() {
    let host = host(TRACE).start().unwrap();
    let stream = host.request(0).send();
    host.clear_logs();
    stream.disconnect();
    assert_eq!(worker_logs(&host), ["log", "done", "delete", "02"]);
    assert_eq!(stream.state(), weir_host_test::StreamState::Gone);
}

#[test]
fn connection_callbacks_follow_the_order_of_envoy() {
    let host = host(TRACE).start().unwrap();
    host.clear_logs();
    let connection = host.connection(0);
    connection.downstream_close();
    let expected = [
        "create",
        "02",
        "01",
        "connection",
        "done",
        "log",
        "delete",
        "02",
    ];
    assert_eq!(worker_logs(&host), expected);
}

#[test]
fn missing_exports_are_not_called() {
    let host = host("").start().unwrap();
    let stream = host.request(0).body("x").send();
    assert_eq!(stream.upstream_request().body, b"x");
    stream.respond(204, [], "");
    assert_eq!(stream.status(), Some(204));
    assert_eq!(host.cost().callbacks, 0);
}

const PICKY: &str = r#"
  (data (i32.const 0) "no such field: speed")
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (call $say (i32.const 0) (i32.const 20))
    (drop (call $get_buffer (i32.const 7) (i32.const 0) (local.get 1) (i32.const 1024) (i32.const 1028)))
    (call $say_result)
    (i32.eq (local.get 1) (i32.const 4)))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $note (i32.const 1)) (i32.const 0))
"#;

#[test]
fn refused_configuration_prevents_the_host_start() {
    let error = host(PICKY).plugin_config("bad").start().err().unwrap();
    assert!(error.logged("no such field"), "{error}");
    assert!(error.logged("bad"));
    let refused = matches!(
        error,
        StartError::Refused {
            callback: "proxy_on_configure",
            thread: Thread::Canary,
            ..
        }
    );
    assert!(refused);
}

#[test]
fn new_configuration_keeps_the_vm_and_replaces_the_root() {
    let host = host(PICKY).plugin_config("good").start().unwrap();
    let error = host.reconfigure("bad").unwrap_err();
    assert!(error.logged("bad"));
    host.clear_logs();
    host.reconfigure("new!").unwrap();
    assert_eq!(worker_logs(&host), ["no such field: speed", "new!"]);
}

#[test]
fn refused_configuration_keeps_the_old_one_for_new_vms() {
    let builder = host(PICKY).plugin_config("good");
    let policy = weir_host_test::FailurePolicy::FailReload;
    let host = builder.failure_policy(policy).start().unwrap();
    host.reconfigure("bad").unwrap_err();
    host.trap_next("proxy_log");
    assert_eq!(host.request(0).send().status(), Some(503));
    assert!(host.request(0).send().is_continued());
    assert!(host.is_alive(0));
}

#[test]
fn reconfiguring_ends_the_old_root() {
    let host = host(TRACE).start().unwrap();
    host.clear_logs();
    host.reconfigure("x").unwrap();
    let expected = ["create", "02", "00", "configure", "done", "delete", "01"];
    assert_eq!(worker_logs(&host), expected);
    let stream = host.request(0).send();
    assert_eq!(stream.context_id(), 3);
    assert_eq!(worker_logs(&host)[7..10], ["create", "03", "02"]);
}

#[test]
fn root_can_delay_its_deletion_until_it_is_done() {
    let slow = r#"
      (func (export "proxy_on_done") (param i32) (result i32) (call $note (i32.const 11)) (i32.const 0))
      (func (export "proxy_on_delete") (param i32) (call $note (i32.const 22)))
      (func (export "proxy_on_queue_ready") (param i32 i32) (call $note (call $proxy_done)) (call $note (call $proxy_done)))
      (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $register_queue (i32.const 0) (i32.const 1) (i32.const 8))) (i32.const 1))
      (data (i32.const 0) "q")
    "#;
    let host = host(slow).start().unwrap();
    assert!(!host.shutdown());
    assert!(host.enqueue("q", ""));
    host.run_until_idle();
    assert_eq!(worker_logs(&host), ["11", "00", "01", "22"]);
}

#[test]
fn start_trap_is_reported_with_its_cause() {
    let broken =
        r#"(func (export "proxy_on_configure") (param i32 i32) (result i32) (unreachable))"#;
    let error = host(broken).start().err().unwrap();
    assert!(matches!(error, StartError::Trapped { .. }));
    assert!(error.to_string().contains("unreachable"), "{error}");
}

#[test]
fn modules_that_envoy_refuses_are_refused() {
    let start = |wat: &str| Host::builder().module_wat(wat).start().err().unwrap();
    assert!(matches!(start("(module)"), StartError::Abi));
    let abi = r#"(module (func (export "proxy_abi_version_0_2_1")))"#;
    assert!(matches!(start(abi), StartError::NoAllocator));
    assert!(matches!(start("nonsense"), StartError::Load(_)));
    assert!(matches!(Host::builder().start(), Err(StartError::NoModule)));
    let missing = Host::builder().module_file("no/such.wasm").start();
    assert!(matches!(missing, Err(StartError::Read { .. })));
}

#[test]
fn unknown_import_traps_with_its_name() {
    let strange = r#"(module
      (import "env" "proxy_teleport" (func $teleport))
      (memory (export "memory") 1)
      (func (export "malloc") (param i32) (result i32) (i32.const 0))
      (func (export "proxy_abi_version_0_2_0"))
      (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (call $teleport) (i32.const 1)))"#;
    let error = Host::builder().module_wat(strange).start().err().unwrap();
    assert!(error.to_string().contains("proxy_teleport"), "{error}");
}
