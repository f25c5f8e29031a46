//! Whatever clients send, memory stays within the configured limits, and other clients are not refused.

use weir_limit::table::is_slot_key;

use super::support::{Limiter, is_passed};

#[test]
fn million_keys_stay_within_slot_memory_and_refuse_correctly() {
    const SLOTS: usize = 512;
    let rule = format!(
        r#"{{ "name": "r", "key": ["user"], "slots": {SLOTS}, "limit": {{ "rate": 1, "per": "1h" }} }}"#
    );
    let limiter = Limiter::new(&[&rule]);
    // The end-to-end test sends a million; this one checks every response.
    for n in 0..20_000 {
        assert!(
            is_passed(&limiter.ask(&format!("user-{n}"))),
            "its first request"
        );
    }
    let keys = limiter.host.shared_data_keys();
    let slots: Vec<_> = keys.iter().filter(|key| is_slot_key(key)).collect();
    assert_eq!(slots.len(), SLOTS);
    assert!(limiter.count("evictions", "r") > 10_000);
    assert_eq!(
        limiter
            .host
            .open_contexts(weir_host_test::Thread::Worker(0)),
        20_000
    );
}

#[test]
fn hostile_keys_count_like_any_other() {
    let rule = r#"{ "name": "r", "limit": { "rate": 1, "per": "1h" },
        "key": [{ "header": "x-key" }, { "cookie": "c" }, { "query": "q" }, { "forwarded": { "trusted_hops": 1 } }] }"#;
    let limiter = Limiter::new(&[rule]);
    let long = vec![b'x'; 65_536];
    let chain = "6.6.6.6, ".repeat(5_000);
    let hostile: [&[u8]; 6] = [
        b"",
        b"\xff\xfe\x00",
        &long,
        b"\r\n",
        b"a,b;c=1",
        chain.as_bytes(),
    ];
    for value in hostile {
        let ask = || {
            let request = limiter.request(0, "u").path([b"/?q=", value].concat());
            let request = request.header("x-key", value).header("cookie", value);
            request.header("x-forwarded-for", value).send()
        };
        assert!(is_passed(&ask()));
        assert_eq!(ask().status(), Some(429));
    }
    let mut repeated = limiter.request(0, "u");
    for n in 0..100 {
        repeated = repeated.header("x-key", n.to_string());
    }
    assert!(is_passed(&repeated.send()));
    limiter.host.assert_sound();
}

#[test]
fn eviction_is_counted_for_the_rule_of_the_evicted_key() {
    let rule = |name: &str, key: &str| {
        format!(
            r#"{{ "name": "{name}", "key": {key}, "slots": 1, "limit": {{ "rate": 100, "per": "1h" }} }}"#
        )
    };
    let (all, user) = (rule("all", "[]"), rule("user", r#"["user"]"#));
    let limiter = Limiter::new(&[&all, &user]);
    for n in 0..50 {
        assert!(is_passed(&limiter.ask(&format!("user-{n}"))));
    }
    assert_eq!(limiter.count("evictions", "all"), 0);
    assert_eq!(
        limiter.count("evictions", "user"),
        50 - 8,
        "a slot has 8 places"
    );
}
