//! Network filters: holding and changing data in both directions, and closing.

use crate::common::{host, worker_logs};
use weir_host_test::{ConnState, Thread};

/// Downstream: waits for 4 bytes, then strips the first two. Upstream: prepends "> ".
const FILTER: &str = r#"
  (data (i32.const 0) "> ")
  (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
    (call $note (local.get 1)) (call $note (local.get 2))
    (if (i32.lt_u (local.get 1) (i32.const 4)) (then (return (i32.const 1))))
    (drop (call $set_buffer (i32.const 2) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 0)))
    (i32.const 0))
  (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)
    (if (i32.eq (local.get 1) (i32.const 1)) (then (return (i32.const 1))))
    (drop (call $set_buffer (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2)))
    (i32.const 0))
  (func (export "proxy_on_downstream_connection_close") (param i32 i32) (call $note (i32.const 70)) (call $note (local.get 1)))
  (func (export "proxy_on_upstream_connection_close") (param i32 i32) (call $note (i32.const 80)) (call $note (local.get 1)))
  (func (export "proxy_on_delete") (param i32) (call $note (i32.const 90)))
"#;

#[test]
fn buffered_data_is_passed_again_with_the_next_data() {
    let host = host(FILTER).start().unwrap();
    let connection = host.connection(0);
    assert_eq!(connection.downstream("abc"), b"");
    assert_eq!(connection.held_downstream(), b"abc");
    assert_eq!(connection.downstream("def"), b"cdef");
    assert_eq!(connection.downstream_end("ghij"), b"ij");
    assert_eq!(worker_logs(&host), ["03", "00", "06", "00", "04", "01"]);
    assert_eq!(connection.upstream("x"), b"");
    assert_eq!(connection.upstream("y"), b"> xy");
    assert!(connection.cost().host_calls("proxy_set_buffer_bytes") == 3);
}

#[test]
fn client_and_upstream_can_close_a_connection() {
    let host = host(FILTER).start().unwrap();
    let connection = host.connection(0);
    assert_eq!(connection.upstream_close(), b"> ");
    assert_eq!(worker_logs(&host), ["80", "00"]);
    assert!(connection.is_open(), "the client is still there");
    connection.downstream_close();
    assert_eq!(worker_logs(&host)[2..], ["70", "02", "90"]);
    assert_eq!(connection.state(), ConnState::Closed);
    assert_eq!(connection.downstream("late"), b"");
    assert_eq!(host.open_contexts(Thread::Worker(0)), 0);
}

#[test]
fn filter_can_close_a_connection() {
    let own = r#"
      (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
        (call $note (call $continue (i32.const 2)))
        (drop (call $close (i32.const 2))) (i32.const 0))
      (func (export "proxy_on_downstream_connection_close") (param i32 i32) (call $note (local.get 1)))"#;
    let host = host(own).start().unwrap();
    let connection = host.connection(0);
    assert_eq!(
        connection.downstream("abc"),
        b"",
        "nothing passes on a closed connection"
    );
    assert_eq!(connection.state(), ConnState::ClosedByFilter);
    assert_eq!(
        worker_logs(&host),
        ["02", "01"],
        "network streams can't be resumed"
    );
}

#[test]
fn crashed_vm_closes_its_connections() {
    let host = host(FILTER).start().unwrap();
    let connection = host.connection(0);
    host.trap_next("proxy_log");
    assert_eq!(connection.downstream("abcd"), b"");
    assert_eq!(connection.state(), ConnState::Failed);
    assert_eq!(host.connection(0).state(), ConnState::Failed);
}
