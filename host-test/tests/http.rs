//! What a filter reads and changes in requests and responses, and how they end.

use crate::common::{host, pairs, pairs_len, worker_logs};
use weir_host_test::{Headers, StreamState};

/// Reads the header at 0 (6 bytes) of the request and logs status and value.
const READ_USER: &str = r#"
  (data (i32.const 0) "x-user")
  (func $read_user
    (i32.store (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 0))
    (call $note (call $get_header (i32.const 0) (i32.const 0) (i32.const 6) (i32.const 1024) (i32.const 1028)))
    (call $say_result))
"#;

#[test]
fn headers_are_bytes() {
    // Copies x-user to x-copy.
    let own = r#"
      (data (i32.const 0) "x-user") (data (i32.const 16) "X-Copy")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $get_header (i32.const 0) (i32.const 0) (i32.const 6) (i32.const 1024) (i32.const 1028)))
        (drop (call $add_header (i32.const 0) (i32.const 16) (i32.const 6) (i32.load (i32.const 1024)) (i32.load (i32.const 1028))))
        (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).header("X-User", b"u\xff\x80").send();
    let headers = stream.upstream_request().headers;
    assert_eq!(headers.get("x-copy"), Some(&b"u\xff\x80"[..]));
    assert_eq!(stream.cost().host_calls("proxy_get_header_map_value"), 1);
    assert_eq!(stream.cost().host_calls_total(), 2);
    assert_eq!(stream.cost().host_calls("proxy_log"), 0);
}

#[test]
fn headers_can_be_replaced_removed_and_set_at_once() {
    let all = [("a", "1"), ("b", "2")];
    let own = format!(
        r#"
      (data (i32.const 0) "x-user") (data (i32.const 8) "me")
      (data (i32.const 64) "{}")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $replace_header (i32.const 0) (i32.const 0) (i32.const 6) (i32.const 8) (i32.const 2)))
        (i32.const 0))
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $set_pairs (i32.const 2) (i32.const 64) (i32.const {})))
        (drop (call $remove_header (i32.const 2) (i32.const 65) (i32.const 0)))
        (drop (call $get_pairs (i32.const 2) (i32.const 1024) (i32.const 1028)))
        (call $note (i32.load (i32.load (i32.const 1024))))
        (i32.const 0))"#,
        pairs(&all),
        pairs_len(&all)
    );
    let host = host(&own).start().unwrap();
    let stream = host
        .request(0)
        .header("x-user", "1")
        .header("x-user", "2")
        .send();
    let users: Vec<_> = stream
        .upstream_request()
        .headers
        .get_all("x-user")
        .map(<[u8]>::to_vec)
        .collect();
    assert_eq!(users, [b"me"]);
    stream.respond(200, [], "");
    let StreamState::Responded(response) = stream.state() else {
        panic!("{:?}", stream.state())
    };
    assert_eq!(response.headers, Headers::from_iter(all));
    assert_eq!(worker_logs(&host), ["02"]);
}

#[test]
fn missing_header_is_not_found_and_empty_one_is_present() {
    let own = format!(
        r#"{READ_USER} (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $read_user) (i32.const 0))"#
    );
    let host = host(&own).start().unwrap();
    host.request(0).send();
    host.request(0).header("x-user", "").send();
    assert_eq!(worker_logs(&host), ["01", "", "00", ""]);
}

#[test]
fn request_headers_are_hidden_after_forwarding_but_logged() {
    let own = format!(
        r#"{READ_USER}
          (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $read_user) (i32.const 0))
          (func (export "proxy_on_log") (param i32) (call $read_user))
          (func (export "proxy_on_done") (param i32) (result i32) (call $read_user) (i32.const 1))"#
    );
    let host = host(&own).start().unwrap();
    let stream = host.request(0).header("x-user", "u1").send();
    stream.respond(200, [], "");
    assert_eq!(worker_logs(&host), ["02", "", "00", "u1", "02", ""]);
}

/// Pauses requests; a queue notification resumes context 2 (or does what `$wake` does to it).
const PAUSER: &str = r#"
  (data (i32.const 0) "q")
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $register_queue (i32.const 0) (i32.const 1) (i32.const 8))) (i32.const 1))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
"#;

#[test]
fn paused_request_delays_later_data_until_resumed() {
    let own = format!(
        r#"{PAUSER}
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (call $note (local.get 1)) (call $note (local.get 2)) (i32.const 0))
        (func (export "proxy_on_queue_ready") (param i32 i32)
          (call $note (call $set_effective (i32.const 2)))
          (call $note (call $continue (i32.const 0))))"#
    );
    let host = host(&own).start().unwrap();
    let stream = host.request(0).body("abc").send_unfinished();
    assert!(stream.is_paused());
    assert!(
        worker_logs(&host).is_empty(),
        "no body before the headers go on"
    );
    host.enqueue("q", "");
    assert!(stream.is_paused(), "never in the same turn");
    host.turn();
    assert_eq!(worker_logs(&host), ["00", "00", "03", "00"]);
    assert!(!stream.upstream_request().complete);
    stream.send_body("de", true);
    let request = stream.upstream_request();
    assert_eq!(
        (request.body_text().as_str(), request.complete),
        ("abcde", true)
    );
    assert!(stream.is_continued());
}

#[test]
fn local_reply_runs_the_response_callbacks_of_its_filter() {
    let own = r#"
      (data (i32.const 0) "x-seen") (data (i32.const 8) "body!")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $send_local (i32.const 429) (i32.const 0) (i32.const 6) (i32.const 8) (i32.const 5)
          (i32.const 0) (i32.const 0) (i32.const 7)))
        (i32.const 0)) ;; "continue" counts for nothing after a reply
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $add_header (i32.const 2) (i32.const 0) (i32.const 6) (i32.const 8) (i32.const 4)))
        (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).body("never seen").send();
    let reply = stream.reply().expect("a reply");
    assert_eq!((reply.status, reply.body_text().as_str()), (429, "body!"));
    assert_eq!(reply.header("x-seen"), Some("body"));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(
        (reply.grpc_status, reply.details.as_str()),
        (Some(7), "x-seen")
    );
    assert!(
        stream.upstream_request().headers.is_empty(),
        "nothing went on"
    );
}

#[test]
fn bodies_are_held_changed_and_passed_on() {
    // Holds the body until its end, then wraps it: "<" before, ">" behind; the middle can't be changed.
    let own = r#"
      (data (i32.const 0) "<>")
      (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
        (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
        (call $note (local.get 1))
        (drop (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))
        (drop (call $set_buffer (i32.const 1) (i32.const 99) (i32.const 0) (i32.const 1) (i32.const 1)))
        (call $note (call $set_buffer (i32.const 1) (i32.const 2) (i32.const 1) (i32.const 0) (i32.const 1)))
        (drop (call $set_buffer (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 1)))
        (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).send();
    stream.respond_headers(200, [], false);
    stream.respond_body("ab", false);
    assert_eq!(stream.state(), StreamState::ResponsePaused);
    stream.respond_body("cd", true);
    let StreamState::Responded(response) = stream.state() else {
        panic!("{:?}", stream.state())
    };
    assert_eq!(response.body_text(), "<bcd>");
    assert_eq!(worker_logs(&host), ["04", "02"]);
}

#[test]
fn resume_before_the_pause_has_no_effect() {
    let own = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $continue (i32.const 0))) (i32.const 1))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).send();
    host.run_until_idle();
    assert!(stream.is_paused());
}

#[test]
fn filter_can_reset_a_stream() {
    let own = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (drop (call $close (i32.const 0))) (i32.const 1))"#;
    let host = host(own).start().unwrap();
    assert_eq!(host.request(0).send().state(), StreamState::Reset);
}

#[test]
fn reply_replacing_a_response_is_sent_directly_and_then_reset() {
    let own = r#"
      (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (call $note (local.get 2))
        (if (local.get 2) (then (call $answer (i32.const 500))))
        (i32.const 0))
      (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
        (call $answer (i32.const 500)) (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let stream = host.request(0).send();
    stream.respond(200, [], "");
    assert_eq!(stream.status(), Some(500));
    assert_eq!(worker_logs(&host), ["01"], "not through the callback again");
    let stream = host.request(0).send();
    stream.respond(200, [], "body");
    assert_eq!(stream.state(), StreamState::Reset);
}

#[test]
fn test_sets_properties_and_they_persist_with_the_stream() {
    let own = r#"
      (data (i32.const 0) "source\00address") (data (i32.const 32) "weir.seen") (data (i32.const 64) "plugin_root_id")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $get_property (i32.const 0) (i32.const 14) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (call $note (call $set_property (i32.const 32) (i32.const 9) (i32.const 0) (i32.const 6)))
        (drop (call $get_property (i32.const 64) (i32.const 14) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (i32.const 0))
      (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
        (call $note (call $set_property (i32.const 32) (i32.const 9) (i32.const 0) (i32.const 6)))
        (call $note (call $get_property (i32.const 32) (i32.const 9) (i32.const 1024) (i32.const 1028)))
        (i32.const 1))"#;
    let host = host(own)
        .root_id("gate")
        .property(&["source", "address"], "10.0.0.1:1")
        .start()
        .unwrap();
    assert_eq!(
        worker_logs(&host),
        ["01", "01"],
        "a root context has no place for properties"
    );
    host.clear_logs();
    let stream = host.request(0).send();
    assert_eq!(worker_logs(&host), ["00", "10.0.0.1:1", "00", "gate"]);
    assert_eq!(
        stream.property(&["weir.seen"]).as_deref(),
        Some(&b"source"[..])
    );
    host.clear_logs();
    host.request(0)
        .property(&["source", "address"], "own")
        .send();
    assert_eq!(worker_logs(&host)[1], "own");
}

#[test]
fn header_property_contains_all_its_values() {
    let own = r#"
      (data (i32.const 0) "request\00headers\00x-user")
      (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $get_property (i32.const 0) (i32.const 22) (i32.const 1024) (i32.const 1028)))
        (call $say_result)
        (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let request = host.request(0).header("x-user", "a").header("x-other", "b");
    request.header("X-User", "c").send();
    assert_eq!(worker_logs(&host), ["00", "a,c"]);
    host.clear_logs();
    host.request(0).send();
    assert_eq!(worker_logs(&host)[0], "01", "not found");
}

#[test]
fn equal_requests_use_equal_fuel() {
    let own = format!(
        r#"{READ_USER} (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
             (call $read_user) (i32.const 0))"#
    );
    let host = host(&own).start().unwrap();
    let cost = host.request(0).header("x-user", "u1").send().cost();
    assert!(cost.fuel > 10, "{cost:?}");
    assert_eq!(host.request(0).header("x-user", "u2").send().cost(), cost);
    assert!(host.cost().fuel >= 2 * cost.fuel);
    let names: Vec<_> = cost.host_calls_by_name().collect();
    assert_eq!(names, [("proxy_get_header_map_value", 1), ("proxy_log", 2)]);
}

#[test]
fn answer_to_another_stream_pauses_the_current_one() {
    // The first request (context 2) waits; later ones answer it, and try to continue.
    let own = r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (if (i32.eq (local.get 0) (i32.const 2)) (then (return (i32.const 1))))
        (if (i32.eqz (call $set_effective (i32.const 2))) (then (call $answer (i32.const 200))))
        (i32.const 0))"#;
    let host = host(own).start().unwrap();
    let first = host.request(0).send();
    let second = host.request(0).send();
    assert_eq!(first.status(), Some(200));
    assert!(
        second.is_paused(),
        "Envoy's flag is the VM's, not the stream's"
    );
    assert!(host.request(0).send().is_continued());
}

/// Holds the head, and the body until it is complete; logs each size that it gets.
const HOLDS_UNTIL_WHOLE: &str = r#"
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
    (call $note (local.get 1))
    (i32.eqz (local.get 2)))"#;

#[test]
fn paused_headers_receive_a_body_only_if_allowed() {
    let request = |host: &weir_host_test::Host| {
        let request = host.request(0).header("x-user", "7");
        request.body("abc").body("de").send()
    };
    let plain = host(HOLDS_UNTIL_WHOLE).start().unwrap();
    assert_eq!(request(&plain).state(), StreamState::Paused);
    assert!(worker_logs(&plain).is_empty());

    let allowed = host(HOLDS_UNTIL_WHOLE).allow_on_headers_stop_iteration();
    let allowed = allowed.start().unwrap();
    let stream = request(&allowed);
    assert_eq!(worker_logs(&allowed), ["03", "05"]);
    let upstream = stream.upstream_request();
    assert_eq!(upstream.headers.text("x-user"), Some("7"));
    assert_eq!(upstream.body_text(), "abcde");
}
