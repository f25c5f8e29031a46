//! Queries in pieces, their responses, and requests that the filter passes.

use serde_json::json;
use weir_fitment::{Cluster, Placement, Spu};
use weir_host_test::{Headers, StreamState};

use super::support::{Gate, module, response};

const QUESTION: &str = r#"{"vehicles":["1000001","1000002"],"skus":["S1","S2"]}"#;

fn shop() -> Gate {
    let mut gate = Gate::new();
    let place = Placement {
        cluster: Cluster::home(),
        spu: Spu::new("P1").unwrap(),
    };
    gate.put("S1", &place, &[1]);
    gate.put("S2", &place, &[2, 3]);
    gate
}

#[test]
fn question_is_answered_for_any_split_of_its_body() {
    let gate = shop();
    let (begin, end) = QUESTION.split_at(20);
    for pieces in [&[QUESTION][..], &[begin, end], &[begin, "", end]] {
        let (status, json) = response(&gate.ask(pieces));
        assert_eq!(status, 200);
        let expected = json!([
            { "sku": "S1", "answers": ["fits", "does_not"] },
            { "sku": "S2", "answers": ["does_not", "fits"] },
        ]);
        assert_eq!(json["skus"], expected, "{pieces:?}");
    }
    let request = gate.host.request(0).method("POST").path("/fitment/check");
    let stream = request.body(QUESTION).trailer("x-sum", "1").send();
    gate.host.run_until_idle();
    assert_eq!(response(&stream).0, 200, "behind it come trailers");
}

#[test]
fn forwarded_question_keeps_its_head_and_body() {
    let gate = shop();
    let body = QUESTION.replace("S2", "S9");
    let (begin, end) = body.split_at(30);
    let stream = gate.ask(&[begin, end]);
    let upstream = stream.upstream_request();
    assert!(upstream.complete);
    assert_eq!(upstream.headers.text(":path"), Some("/fitment/check"));
    assert_eq!(upstream.body_text(), body);
}

#[test]
fn oversized_body_is_refused_before_it_ends() {
    let gate = shop();
    let request = gate.host.request(0).method("POST").path("/fitment/check");
    let stream = request.body(" ".repeat(60_000)).send_unfinished();
    assert_eq!(stream.state(), StreamState::Paused);
    stream.send_body(" ".repeat(10_000), false);
    let (status, json) = response(&stream);
    assert_eq!(
        (status, json["error"].as_str()),
        (413, Some("body_too_long"))
    );
}

#[test]
fn page_request_with_a_body_is_refused() {
    let gate = shop();
    let path = "/fitment/skus?vehicle=1000001";
    let stream = gate.host.request(0).path(path).body("x").send();
    assert_eq!(response(&stream).0, 400);
    let stream = gate.host.request(0).path(path).send();
    gate.host.run_until_idle();
    let upstream = stream.upstream_request();
    assert_eq!(upstream.headers.text(":path"), Some(path));
}

#[test]
fn other_requests_pass_with_their_bodies() {
    let gate = shop();
    let request = gate.host.request(0).method("POST").path("/orders");
    let stream = request.body("a").body("b").trailer("x", "y").send();
    let upstream = stream.upstream_request();
    assert_eq!(upstream.body_text(), "ab");
    assert_eq!(upstream.trailers, Headers::from_iter([("x", "y")]));
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing() {
    let gate = shop();
    for _ in 0..100 {
        let request = gate.host.request(0).method("POST").path("/fitment/check");
        request.body("{").send_unfinished().disconnect();
    }
    let pages = gate.host.memory_pages(0);
    for _ in 0..5_000 {
        let request = gate.host.request(0).method("POST").path("/fitment/check");
        request.body("{").send_unfinished().disconnect();
    }
    assert_eq!(gate.host.memory_pages(0), pages);
    assert_eq!(response(&gate.ask(&[QUESTION])).0, 200);
}

#[test]
fn bytes_of_any_kind_are_answered() {
    let gate = shop();
    for bytes in [
        &b"\0"[..],
        b"\xff\xfe",
        b"[[[[[[[[[[",
        b"{\"vehicles\":[\"1000001\"],\"skus\":[\"\\u0000\"]}",
        b"{\"vehicles\":[\"1000001\"],\"skus\":[\"\xe4\"]}",
        &[b'['; 60_000],
    ] {
        let request = gate.host.request(0).method("POST").path("/fitment/check");
        let stream = request.body(bytes).send();
        gate.host.run_until_idle();
        let (status, _) = response(&stream);
        assert!([400, 422].contains(&status), "{bytes:?}: {status}");
    }
    assert!(gate.host.is_alive(0));
}

#[test]
fn invalid_configuration_is_refused_by_its_field() {
    for (config, field) in [
        (r#"{"redis":{},"plan":"x"}"#, "plan"),
        (r#"{"redis":{},"vehicles_max":0}"#, "vehicles_max"),
        ("", "configuration refused"),
    ] {
        let error = module().plugin_config(config).start().err().unwrap();
        let logged = error.logs().iter().any(|line| line.message.contains(field));
        assert!(logged, "{config}: {error}");
    }
}
