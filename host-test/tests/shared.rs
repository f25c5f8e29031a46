//! The state that VMs share (data, queues, metrics), and the state that they do not.

use crate::common::{host, worker_logs};
use weir_host_test::{Host, Thread};

/// `x-do` selects the access of a request to the key "k": r(ead), w(rite unconditionally), c(as with the last number
/// read), z (like c, but for the key "z", which never exists).
const DATA: &str = r#"
  (data (i32.const 0) "k") (data (i32.const 8) "x-do") (data (i32.const 16) "x-value") (data (i32.const 24) "z")
  (global $cas (mut i32) (i32.const 77))
  (func $read
    (i32.store (i32.const 1028) (i32.const 0))
    (call $note (call $get_shared (i32.const 0) (i32.const 1) (i32.const 1024) (i32.const 1028) (i32.const 1032)))
    (call $say_result)
    (global.set $cas (i32.load (i32.const 1032))))
  (func $write (param $key i32) (param $cas i32)
    (drop (call $get_header (i32.const 0) (i32.const 16) (i32.const 7) (i32.const 1024) (i32.const 1028)))
    (call $note (call $set_shared (local.get $key) (i32.const 1) (i32.load (i32.const 1024)) (i32.load (i32.const 1028)) (local.get $cas))))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (local $do i32)
    (drop (call $get_header (i32.const 0) (i32.const 8) (i32.const 4) (i32.const 1024) (i32.const 1028)))
    (local.set $do (i32.load8_u (i32.load (i32.const 1024))))
    (if (i32.eq (local.get $do) (i32.const 114)) (then (call $read)))
    (if (i32.eq (local.get $do) (i32.const 119)) (then (call $write (i32.const 0) (i32.const 0))))
    (if (i32.eq (local.get $do) (i32.const 99)) (then (call $write (i32.const 0) (global.get $cas))))
    (if (i32.eq (local.get $do) (i32.const 122)) (then (call $write (i32.const 24) (global.get $cas))))
    (i32.const 0))
"#;

fn act(host: &Host, worker: usize, subject: &str, value: &str) -> Vec<String> {
    host.clear_logs();
    host.request(worker)
        .header("x-do", subject)
        .header("x-value", value)
        .send();
    worker_logs(host)
}

#[test]
fn shared_data_write_requires_the_version_that_was_read() {
    let host = host(DATA).workers(2).start().unwrap();
    assert_eq!(act(&host, 0, "r", ""), ["01", ""], "not found");
    assert_eq!(act(&host, 0, "w", "one"), ["00"]);
    assert_eq!(act(&host, 1, "r", ""), ["00", "one"]);
    assert_eq!(act(&host, 0, "r", ""), ["00", "one"]);
    assert_eq!(act(&host, 1, "c", "two"), ["00"]);
    assert_eq!(
        act(&host, 0, "c", "three"),
        ["08"],
        "another worker was faster"
    );
    assert_eq!(host.shared_data("k").as_deref(), Some(&b"two"[..]));
    assert_eq!(act(&host, 0, "w", "four"), ["00"], "0 has no condition");
    assert_eq!(
        act(&host, 1, "z", "new"),
        ["00"],
        "there is no create-if-absent"
    );
    assert_eq!(host.shared_data_keys(), [b"k", b"z"]);
}

#[test]
fn shared_data_is_scoped_by_vm_id() {
    let one = host(DATA).vm_id("one").start().unwrap();
    let two = host(DATA).vm_id("two").beside(&one).start().unwrap();
    let other_one = host(DATA).vm_id("one").beside(&one).start().unwrap();
    act(&one, 0, "w", "x");
    assert_eq!(two.shared_data("k"), None);
    assert_eq!(act(&other_one, 0, "r", ""), ["00", "x"]);
    two.set_shared_data("k", "y");
    assert_eq!(act(&two, 0, "r", ""), ["00", "y"]);
}

/// Every VM registers "q". A request adds its path; a notification removes everything.
const QUEUE: &str = r#"
  (data (i32.const 0) "q") (data (i32.const 8) ":path")
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $register_queue (i32.const 0) (i32.const 1) (i32.const 32))) (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $get_header (i32.const 0) (i32.const 8) (i32.const 5) (i32.const 1024) (i32.const 1028)))
    (call $note (call $enqueue (i32.load (i32.const 32)) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))
    (i32.const 0))
  (func (export "proxy_on_queue_ready") (param i32 i32)
    (call $note (local.get 0))
    (block $empty (loop $more
      (br_if $empty (call $dequeue (local.get 1) (i32.const 1024) (i32.const 1028)))
      (call $say_result)
      (br $more)))
    (call $note (call $dequeue (local.get 1) (i32.const 1024) (i32.const 1028)))
    (call $note (call $dequeue (i32.const 99) (i32.const 1024) (i32.const 1028))))
"#;

#[test]
fn last_vm_to_register_a_queue_is_notified_in_a_later_turn() {
    let host = host(QUEUE).workers(2).start().unwrap();
    host.request(0).path("/a").send();
    host.request(0).path("/b").send();
    assert_eq!(worker_logs(&host), ["00", "00"], "not inside the call");
    assert_eq!(host.queue_len("q"), Some(2));
    host.clear_logs();
    assert!(host.turn());
    let lines = host.logs();
    assert!(lines.iter().all(|line| line.thread == Thread::Worker(1)));
    // The root context; both items; empty; no such queue. Then the second notification finds nothing.
    assert_eq!(
        worker_logs(&host),
        ["01", "/a", "/b", "07", "01", "01", "07", "01"]
    );
    assert!(!host.turn());
}

#[test]
fn queues_are_resolved_across_vm_ids() {
    let server = host(QUEUE).vm_id("server").start().unwrap();
    let client = r#"
      (data (i32.const 0) "serverq")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $resolve_queue (i32.const 0) (i32.const 0) (i32.const 6) (i32.const 1) (i32.const 32)))
        (call $note (call $resolve_queue (i32.const 0) (i32.const 6) (i32.const 6) (i32.const 1) (i32.const 32)))
        (call $note (call $enqueue (i32.load (i32.const 32)) (i32.const 0) (i32.const 6)))
        (call $note (call $enqueue (i32.const 99) (i32.const 0) (i32.const 6)))
        (i32.const 0))"#;
    let client = host(client)
        .vm_id("client")
        .beside(&server)
        .start()
        .unwrap();
    client.request(0).send();
    assert_eq!(worker_logs(&client), ["01", "00", "00", "01"]);
    assert_eq!(
        (server.queue_len("q"), client.queue_len("q")),
        (Some(1), None)
    );
    client.clear_logs();
    client.run_until_idle();
    assert_eq!(worker_logs(&server)[..2], ["01", "server"]);
    assert!(!client.enqueue("q", ""));
}

#[test]
fn metrics_add_up_over_vms_and_refuse_like_envoy() {
    let own = r#"
      (data (i32.const 0) "count") (data (i32.const 8) "level") (data (i32.const 16) "sizes")
      (func $try (param $id i32) (param $by i64) (call $note (call $increment (local.get $id) (local.get $by))))
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $define_metric (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 32)))
        (drop (call $define_metric (i32.const 1) (i32.const 8) (i32.const 5) (i32.const 36)))
        (drop (call $define_metric (i32.const 2) (i32.const 16) (i32.const 5) (i32.const 40)))
        (call $note (call $define_metric (i32.const 3) (i32.const 0) (i32.const 5) (i32.const 44)))
        (call $try (i32.load (i32.const 32)) (i64.const 5))
        (call $try (i32.load (i32.const 32)) (i64.const 0))
        (call $try (i32.load (i32.const 32)) (i64.const -1))
        (call $try (i32.load (i32.const 36)) (i64.const 7))
        (call $try (i32.load (i32.const 36)) (i64.const -3))
        (call $try (i32.const 9999) (i64.const 1))
        (call $note (call $record (i32.load (i32.const 40)) (i64.const 42)))
        (call $note (call $get_metric (i32.load (i32.const 36)) (i32.const 1024)))
        (call $note (i32.load (i32.const 1024)))
        (call $note (call $get_metric (i32.load (i32.const 40)) (i32.const 1024)))
        (call $note (call $record (i32.load (i32.const 36)) (i64.const 50)))
        (i32.const 0))"#;
    let host = host(own).workers(2).start().unwrap();
    host.request(0).send();
    let expected = [
        "02", "00", "02", "02", "00", "00", "01", "00", "00", "04", "02", "00",
    ];
    assert_eq!(worker_logs(&host), expected);
    host.request(1).send();
    assert_eq!(host.metric("count"), Some(10));
    assert_eq!(host.metric("level"), Some(50));
    assert_eq!(host.histogram("sizes"), [42, 42]);
    assert_eq!(host.metric("none"), None);
    assert_eq!(host.metrics().len(), 2);
}

#[test]
fn test_defines_the_foreign_functions() {
    let own = r#"
      (data (i32.const 0) "shout") (data (i32.const 8) "none") (data (i32.const 16) "abc")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $foreign (i32.const 0) (i32.const 5) (i32.const 16) (i32.const 3) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (call $note (call $foreign (i32.const 0) (i32.const 5) (i32.const 16) (i32.const 3) (i32.const 0) (i32.const 0)))
        (call $note (call $foreign (i32.const 8) (i32.const 4) (i32.const 16) (i32.const 3) (i32.const 1024) (i32.const 1028)))
        (i32.const 0))"#;
    let host = host(own)
        .foreign_function("shout", |bytes| Ok(bytes.to_ascii_uppercase()))
        .start()
        .unwrap();
    host.request(0).send();
    assert_eq!(worker_logs(&host), ["00", "ABC", "00", "01"]);
}
