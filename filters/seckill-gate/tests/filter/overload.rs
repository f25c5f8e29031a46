//! The quick response when Redis and the origin are overloaded.

use std::time::Duration;

use super::support::{CONFIG, Gate, granted};
use weir_host_test::{Reply, Stream};

const SECOND: Duration = Duration::from_secs(1);

fn gate(overload: &str) -> Gate {
    let fields = format!(r#"{{ "overload": {overload},"#);
    Gate::ready_with(&CONFIG.replacen('{', &fields, 1))
}

const FEW: &str = r#"{ "min_requests": 4, "open_ms": 1500, "probes": 2 }"#;

fn grant(gate: &Gate, user: &str) -> Stream {
    let buyer = gate.buy(user);
    gate.answer_claims(|_user| granted(7));
    buyer
}

fn is_overloaded(stream: &Stream) -> bool {
    let Some(reply) = stream.reply() else {
        return false;
    };
    assert!(reply.header("retry-after").is_some());
    reply.header("x-weir-verdict") == Some("overloaded")
}

fn entered(gate: &Gate, of: &str, state: &str) -> u64 {
    let name = format!("weir_seckill_gate_{of}_breaker_total.state.{state}");
    gate.metric(&name)
}

fn handed_back(gate: &Gate) -> u64 {
    let name = "weir_seckill_gate_claims_handed_back_total";
    gate.metric(name)
}

/// Redis accepts the returned claims.
fn take_back(gate: &Gate) {
    gate.host.run_until_idle();
    for call in gate.host.calls() {
        gate.host.answer(call.id, Reply::ok("*1\r\n:1\r\n"));
    }
    gate.host.run_until_idle();
}

#[test]
fn requests_in_flight_never_exceed_the_cap() {
    let gate = gate(r#"{ "in_flight_max": 2 }"#);
    let (first, second) = (grant(&gate, "a"), grant(&gate, "b"));
    assert!(first.is_continued() && second.is_continued());
    let third = gate.buy("c");
    assert!(is_overloaded(&third), "at once, without Redis");
    first.respond(201, [("content-length", "0")], "");
    let third = grant(&gate, "c");
    assert!(third.is_continued(), "the origin has answered one");
    assert!(is_overloaded(&gate.buy("d")));
    second.disconnect();
    assert!(grant(&gate, "d").is_continued(), "a client has gone");
}

#[test]
fn claims_granted_beyond_the_cap_are_returned() {
    let gate = gate(r#"{ "in_flight_max": 2 }"#);
    let buyers: Vec<_> = (0..5).map(|n| gate.buy(&format!("user-{n}"))).collect();
    gate.answer_claims(|_user| granted(7));
    let passed = buyers.iter().filter(|buyer| buyer.is_continued()).count();
    let refused = buyers.iter().filter(|buyer| is_overloaded(buyer)).count();
    assert_eq!((passed, refused, handed_back(&gate)), (2, 3, 3));
    for buyer in buyers.iter().filter(|buyer| buyer.is_continued()) {
        buyer.respond(201, [("content-length", "0")], "");
    }
    // The return is late by now, so that other calls do not wait for it.
    gate.host.advance(Duration::from_millis(10));
    assert!(
        grant(&gate, "again").is_continued(),
        "nothing is left behind"
    );
}

#[test]
fn failing_redis_is_skipped_and_probed_by_few_requests() {
    let gate = gate(&format!(r#"{{ "redis_breaker": {FEW} }}"#));
    for n in 0..4 {
        let buyer = gate.buy(&format!("user-{n}"));
        gate.host.run_until_idle();
        gate.host.answer(gate.host.calls()[0].id, Reply::Fail);
        gate.host.run_until_idle();
        assert_eq!(
            buyer.reply().unwrap().header("x-weir-verdict"),
            Some("unavailable")
        );
    }
    let refused = gate.buy("late");
    assert!(is_overloaded(&refused));
    assert_eq!(refused.reply().unwrap().header("retry-after"), Some("2"));
    assert!(gate.host.calls().is_empty());
    assert_eq!(entered(&gate, "redis", "open"), 1);

    gate.host.advance(SECOND * 2);
    gate.answer_polls();
    let probes = [gate.buy("a"), gate.buy("b")];
    assert!(probes.iter().all(Stream::is_paused));
    assert!(is_overloaded(&gate.buy("c")), "two are enough");
    assert_eq!(entered(&gate, "redis", "half_open"), 1);
    gate.answer_claims(|_user| "3 0".into());
    assert_eq!(entered(&gate, "redis", "closed"), 1);
    assert!(gate.buy("c").is_paused());
}

/// Reading a status costs 0.85 µs, so it is read only where it may change the outcome.
#[test]
fn healthy_origin_outcomes_are_sampled() {
    let gate = gate(&format!(r#"{{ "origin_breaker": {FEW} }}"#));
    let serve = |users: std::ops::Range<u32>, status| {
        for n in users {
            grant(&gate, &format!("user-{n}")).respond(status, [("content-length", "0")], "");
        }
    };
    serve(0..84, 201);
    // One of eight is sampled, and counts for all eight.
    serve(84..92, 503);
    // From now on each counts. 84 succeeded, and so do all that were not sampled: 84 failures are half.
    serve(92..174, 503);
    assert_eq!(entered(&gate, "origin", "open"), 0);
    serve(174..175, 503);
    assert_eq!(entered(&gate, "origin", "open"), 1);
}

#[test]
fn failing_origin_gets_no_more_requests_and_keeps_no_units() {
    let gate = gate(&format!(r#"{{ "origin_breaker": {FEW} }}"#));
    let buyers: Vec<_> = (0..4).map(|n| grant(&gate, &format!("user-{n}"))).collect();
    let late = gate.buy("late");
    for buyer in &buyers {
        buyer.respond(503, [("content-length", "0")], "");
    }
    assert_eq!(entered(&gate, "origin", "open"), 1);
    gate.answer_claims(|_user| granted(7));
    assert!(is_overloaded(&late), "it was on its way to Redis");
    assert_eq!(handed_back(&gate), 1, "its unit is for others");
    assert!(is_overloaded(&gate.buy("later")), "without a claim now");
    assert_eq!(handed_back(&gate), 1);

    gate.host.advance(SECOND * 2);
    gate.answer_polls();
    let probes = [grant(&gate, "a"), grant(&gate, "b")];
    for probe in &probes {
        assert!(probe.is_continued());
        probe.respond(201, [("content-length", "0")], "");
    }
    assert_eq!(entered(&gate, "origin", "closed"), 1);
    assert!(grant(&gate, "c").is_continued());
}

#[test]
fn client_errors_do_not_open_the_breaker() {
    let gate = gate(&format!(r#"{{ "origin_breaker": {FEW} }}"#));
    for n in 0..20 {
        let buyer = grant(&gate, &format!("user-{n}"));
        let status = if n % 2 == 0 { 409 } else { 201 };
        buyer.respond(status, [("content-length", "0")], "");
        take_back(&gate);
    }
    assert_eq!(entered(&gate, "origin", "open"), 0);
    assert_eq!(handed_back(&gate), 10, "each that was refused");
}
