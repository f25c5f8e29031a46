//! Queries after losing Redis, a client or a key.

use serde_json::json;
use weir_fitment::Spu;
use weir_fitment::model::LostKey;

use crate::host::{Host, home, question, sku};

fn shop() -> Host {
    let mut host = Host::new();
    host.put("S1", &home("P1"), &[1, 3]);
    host.put("S2", &home("P2"), &[2]);
    host.answer(&question(&[1], &["S1"]));
    host
}

#[test]
fn silent_redis_makes_fitment_checks_return_503() {
    let mut host = shop();
    let stream = host.ask(&question(&[1], &["S1"]));
    host.tick();
    let batch = *host.calls.keys().next().unwrap();
    host.lose(batch);
    let (status, reply) = host.response(stream);
    assert_eq!(
        (status, reply["error"].as_str()),
        (503, Some("unavailable"))
    );
    assert_eq!(
        host.told_header(stream, "retry-after").as_deref(),
        Some("1")
    );
    assert_eq!(host.metric("requests_total.outcome.unavailable"), 1);
}

#[test]
fn redis_refusal_is_counted_and_logged() {
    let mut host = shop();
    let stream = host.ask(&question(&[1], &["S1"]));
    host.tick();
    let batch = *host.calls.keys().next().unwrap();
    host.reply_with(
        batch,
        b"-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
    );
    assert_eq!(host.response(stream).0, 503);
    assert_eq!(host.metric("redis_refused_total.reason.noperm"), 1);
    let is_told = |line: &String| line.contains("Redis refuses") && line.contains("weir_redis");
    assert!(host.log.iter().any(is_told), "{:?}", host.log);
}

#[test]
fn refusals_of_redis_open_the_breaker() {
    let mut host = shop();
    for _ in 0..100 {
        let stream = host.ask(&question(&[1], &["S1"]));
        host.tick();
        let batches: Vec<_> = host.calls.keys().copied().collect();
        for batch in batches {
            host.reply_with(batch, b"-OOM command not allowed\r\n");
        }
        assert_eq!(host.response(stream).0, 503);
    }
    assert_eq!(host.metric("redis_breaker_total.state.open"), 1);
}

#[test]
fn circuit_breaker_avoids_waiting_when_redis_is_unreachable() {
    let mut host = shop();
    host.is_connected = false;
    for _ in 0..100 {
        let (status, _) = host.answer(&question(&[1], &["S1"]));
        assert_eq!(status, 503);
    }
    let stream = host.ask(&question(&[1], &["S1"]));
    assert!(host.is_answered(stream), "at once");
    host.is_connected = true;
    let mut answered = false;
    for _ in 0..100 {
        host.advance(100);
        answered |= host.answer(&question(&[1], &["S1"])).0 == 200;
    }
    assert!(answered, "it closes again");
}

#[test]
fn several_failed_calls_fail_the_request_once() {
    let mut host = shop();
    host.answer(&question(&[1], &["S2"]));
    let stream = host.ask(&question(&[1], &["S1", "S2", "S9"]));
    host.tick();
    // Each batch fails; the client gets one response.
    while let Some(&batch) = host.calls.keys().next() {
        host.lose(batch);
    }
    host.run();
    assert_eq!(host.response(stream).0, 503);
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn lost_redis_key_forwards_the_request_to_the_origin() {
    for lost in [LostKey::Set(sku("S1")), LostKey::Directory] {
        let mut host = shop();
        let product = ("home".to_owned(), Spu::new("P1").unwrap());
        host.redis.products.get_mut(&product).unwrap().lose(&lost);
        let stream = host.ask(&question(&[2], &["S1"]));
        host.run();
        assert!(host.has_passed(stream), "{lost:?}: the origin knows");
        for _ in 0..2 {
            let stream = host.ask(&question(&[2], &["S1"]));
            host.run();
            assert!(host.has_passed(stream));
        }
        let (_, reply) = host.answer(&question(&[2], &["S1"]));
        assert_eq!(reply["skus"][0]["answers"], json!(["unknown"]), "{lost:?}");
    }
}

#[test]
fn request_is_forwarded_until_the_vehicle_map_is_read() {
    let mut host = Host::unaware(crate::host::CONFIG);
    host.put("S1", &home("P1"), &[1]);
    let stream = host.ask(&question(&[1], &["S1"]));
    host.run();
    assert!(host.has_passed(stream));
    assert!(host.metric("polls_failed_total") > 0);
    assert!(
        host.log
            .iter()
            .any(|line| line.contains("cannot read the vehicle map"))
    );
    host.map(1, 10);
    host.learn();
    assert_eq!(host.answer(&question(&[1], &["S1"])).0, 200);
    assert!(host.log.iter().any(|line| line.contains("again")));
}

/// A gateway that starts during a Redis outage has as little data as one whose Redis lost everything.
#[test]
fn request_before_first_redis_contact_returns_503() {
    let mut host = Host::unaware(crate::host::CONFIG);
    host.put("S1", &home("P1"), &[1]);
    host.is_connected = false;
    // The first request triggers a read of the map.
    host.ask(&question(&[1], &["S1"]));
    host.run();
    host.advance(1_000);
    for _ in 0..3 {
        let (status, reply) = host.answer(&question(&[1], &["S1"]));
        assert_eq!(
            (status, reply["error"].as_str()),
            (503, Some("unavailable"))
        );
    }
    host.is_connected = true;
    host.map(1, 10);
    host.learn();
    host.advance(10_000);
    assert_eq!(host.answer(&question(&[1], &["S1"])).0, 200);
}

#[test]
fn vehicle_map_is_kept_if_missing_in_redis() {
    let mut host = shop();
    host.redis.map = Default::default();
    host.learn();
    let (status, reply) = host.answer(&question(&[3], &["S1"]));
    assert_eq!(
        (status, &reply["skus"][0]["answers"]),
        (200, &json!(["fits"]))
    );
}

#[test]
fn disconnected_clients_cancel_their_requests() {
    let mut host = shop();
    let (remaining, removed, stays) = (
        host.ask(&question(&[1], &["S1"])),
        host.ask(&question(&[1], &["S2"])),
        host.ask(&question(&[1], &["S1", "S2"])),
    );
    host.close(remaining);
    host.closed.insert(removed);
    host.run();
    assert!(!host.is_answered(remaining) && !host.is_answered(removed));
    assert_eq!(host.response(stays).0, 200);
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn client_disconnect_before_the_body_removes_the_request() {
    let mut host = shop();
    let request = weir_engine::event::PlainRequest {
        headers: weir_engine::Headers::new(&[(":method", "POST"), (":path", "/fitment/check")]),
        ..Default::default()
    };
    let stream = 4_711;
    host.handle(weir_engine::Event::Request {
        stream,
        request: &request,
    });
    assert_eq!(host.engine.waiting(), 1);
    let end = weir_engine::event::PlainEnd::default();
    host.handle(weir_engine::Event::Closed { stream, end: &end });
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn excess_fitment_queries_are_rejected_immediately() {
    let config = r#"{"redis":{"waiting_max":3,"batches_max":1},"places_max":0}"#;
    let mut host = Host::with(config);
    host.put("S1", &home("P1"), &[1]);
    let streams: Vec<_> = (0..200)
        .map(|_| host.ask(&question(&[1], &["S1"])))
        .collect();
    host.run();
    let replies: Vec<u16> = streams
        .iter()
        .map(|stream| host.response(*stream).0)
        .collect();
    assert!(
        replies.contains(&200) && replies.contains(&503),
        "{replies:?}"
    );
    let overloaded = host.metric("requests_total.outcome.overloaded");
    assert_eq!(
        overloaded,
        replies.iter().filter(|status| **status == 503).count() as u64
    );
}

#[test]
fn malformed_script_reply_returns_503() {
    let mut host = shop();
    for reply in [
        &b"$1\r\nZ\r\n"[..],
        b":7\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"-ERR no\r\n",
        b"x",
    ] {
        let stream = host.ask(&question(&[1], &["S1"]));
        host.tick();
        while let Some(&batch) = host.calls.keys().next() {
            host.reply_with(batch, reply);
        }
        host.run();
        assert_eq!(
            host.response(stream).0,
            503,
            "{:?}",
            String::from_utf8_lossy(reply)
        );
    }
}
