//! Limits per user and per address.

use std::time::Duration;

use super::support::{CONFIG, Gate};
use weir_host_test::Stream;
use weir_limit::table::is_slot_key;

fn gate(limits: &str) -> Gate {
    let fields = format!(r#"{{ "limits": {limits},"#);
    Gate::ready_with(&CONFIG.replacen('{', &fields, 1))
}

fn is_limited(stream: &Stream) -> bool {
    stream.status() == Some(429)
}

fn buy_from(gate: &Gate, worker: usize, user: &str, address: &str) -> Stream {
    let request = gate.host.request(worker).method("POST");
    let request = request.path("/sales/open/orders").header("x-user-id", user);
    request.property(&["source", "address"], address).send()
}

#[test]
fn user_beyond_burst_waits_the_stated_time_on_all_workers() {
    let gate = gate(r#"{ "user": { "rate": 1, "per": "1s", "burst": 3 } }"#);
    let buy = |worker, user: &str| buy_from(&gate, worker, user, "192.0.2.1:1");
    for worker in [0, 1, 0] {
        assert!(!is_limited(&buy(worker, "alice")));
    }
    let over = buy(1, "alice");
    assert!(is_limited(&over));
    let reply = over.reply().unwrap();
    assert_eq!(reply.header("x-weir-verdict"), Some("rate_limited"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(gate.requests("rate_limited"), 1);
    assert!(!is_limited(&buy(0, "bob")), "others are not concerned");
    gate.host.advance(Duration::from_secs(1));
    assert!(!is_limited(&buy(1, "alice")));
    assert!(is_limited(&buy(1, "alice")));
}

#[test]
fn address_is_limited_across_user_names_and_network_as_one() {
    let gate = gate(r#"{ "address": { "rate": 1, "per": "1s", "burst": 2 } }"#);
    for (addresses, other) in [
        (["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3"], "192.0.2.2:1"),
        (
            ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"],
            "[2001:db8:1::1]:1",
        ),
    ] {
        let limited: Vec<_> = (0..)
            .zip(addresses)
            .map(|(n, address)| is_limited(&buy_from(&gate, 0, &format!("user-{n}"), address)))
            .collect();
        assert_eq!(limited, [false, false, true], "{addresses:?}");
        assert!(!is_limited(&buy_from(&gate, 0, "other", other)));
    }
}

#[test]
fn request_decided_without_a_claim_uses_no_quota() {
    let gate = gate(r#"{ "user": { "rate": 1, "per": "1s", "burst": 1 }, "slots": 1 }"#);
    for _ in 0..5 {
        assert_eq!(gate.buy_from("shut", "alice").status(), Some(403));
    }
    assert!(gate.buy("alice").is_paused());
    assert!(is_limited(&gate.buy("alice")));
    let keys = gate.host.shared_data_keys();
    let slots = keys.iter().filter(|key| is_slot_key(key));
    assert_eq!(slots.count(), 1, "{keys:?}");
}

#[test]
fn limits_stay_within_their_budget() {
    let gate = gate(
        r#"{ "user": { "rate": 1, "per": "1s", "burst": 2 }, "address": { "rate": 1, "per": "1s", "burst": 2 } }"#,
    );
    gate.buy("alice");
    let first = gate.buy("alice").cost();
    // Method, path, user, clock, address, and a read and a write of each table.
    assert!(first.host_calls_total() <= 9, "{first:?}");
    assert!(first.fuel < 60_000, "{first:?}");
    let refused = gate.buy("alice").cost();
    // Method, path, user, clock, address, a read, metric, answer.
    assert!(refused.host_calls_total() <= 8, "{refused:?}");
    assert!(refused.fuel < 60_000, "{refused:?}");
}
