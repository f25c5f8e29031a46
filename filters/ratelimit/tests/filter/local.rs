//! Rules that count in the gateway itself.

use std::time::Duration;

use super::support::{Limiter, header, is_passed, response_header};

const PER_USER: &str =
    r#"{ "name": "per-user", "key": ["user"], "limit": { "rate": 2, "per": "1s", "burst": 3 } }"#;

#[test]
fn workers_share_a_limit_and_a_retry_after_the_wait_passes() {
    let limiter = Limiter::new(&[PER_USER]);
    for worker in [0, 1, 0] {
        assert!(is_passed(&limiter.request(worker, "alice").send()));
    }
    let refused = limiter.request(1, "alice").send();
    assert_eq!(refused.status(), Some(429));
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("1"));
    assert!(is_passed(&limiter.ask("bob")), "others are not concerned");
    limiter.host.advance(Duration::from_secs(1));
    assert_eq!(limiter.passed("alice", 5), 2);
    assert_eq!(limiter.count("allowed", "per-user"), 6);
    assert_eq!(limiter.count("limited", "per-user"), 4);
}

#[test]
fn fixed_and_sliding_windows_count_as_specified() {
    for algorithm in ["fixed_window", "sliding_window"] {
        let rule = format!(
            r#"{{ "name": "w", "algorithm": "{algorithm}", "limit": {{ "rate": 4, "per": "10s" }} }}"#
        );
        let limiter = Limiter::new(&[&rule]);
        assert_eq!(limiter.passed("any", 9), 4, "{algorithm}");
        limiter.host.advance(Duration::from_millis(9_999));
        assert_eq!(limiter.passed("any", 9), 0, "{algorithm}");
        limiter.host.advance(Duration::from_millis(1));
        assert_eq!(limiter.passed("any", 9), 4, "{algorithm}");
    }
}

#[test]
fn request_refused_by_one_rule_is_charged_to_none() {
    let all = r#"{ "name": "all", "limit": { "rate": 1, "per": "1m", "burst": 5 } }"#;
    let limiter = Limiter::new(&[all, PER_USER]);
    assert_eq!(limiter.passed("alice", 20), 3);
    assert_eq!(
        limiter.passed("bob", 20),
        2,
        "what alice was refused was not charged to all"
    );
    assert_eq!(limiter.passed("carol", 20), 0);
    let refused = limiter.ask("carol");
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("60"));
    limiter.host.advance(Duration::from_secs(60));
    assert!(is_passed(&limiter.ask("carol")));
}

#[test]
fn requests_in_flight_count_until_they_end() {
    let rule = r#"{ "name": "c", "algorithm": "concurrency", "key": ["user"], "limit": { "rate": 2, "per": "10s" } }"#;
    let limiter = Limiter::new(&[rule]);
    let first = limiter.request(0, "alice").send();
    let second = limiter.request(1, "alice").send();
    assert!(is_passed(&first) && is_passed(&second));
    assert_eq!(limiter.passed("alice", 3), 0);
    second.disconnect();
    let third = limiter.request(0, "alice").send();
    assert!(is_passed(&third));
    assert_eq!(limiter.ask("alice").status(), Some(429));
    limiter.host.advance(Duration::from_secs(20));
    let later = limiter.ask("alice");
    assert!(
        is_passed(&later),
        "a request that never ended no longer counts"
    );
}

#[test]
fn shadow_rule_refuses_no_request_and_is_counted() {
    let shadow = PER_USER.replace(r#""name""#, r#""mode": "shadow", "name""#);
    let limiter = Limiter::with_responses(
        &[&shadow],
        r#""debug": { "secret": { "env": "WEIR_DEBUG_SECRET" } }"#,
    );
    assert_eq!(limiter.passed("alice", 10), 10);
    assert_eq!(limiter.count("shadow_limited", "per-user"), 7);
    assert_eq!(limiter.count("limited", "per-user"), 0);
    let shadow_header = |secret: &str, user: &str| {
        let stream = limiter
            .request(0, user)
            .header("x-weir-debug", secret)
            .send();
        assert!(is_passed(&stream));
        response_header(&stream, "x-weir-ratelimit-shadow")
    };
    let secret = super::support::DEBUG_SECRET;
    assert_eq!(shadow_header(secret, "alice").as_deref(), Some("per-user"));
    assert_eq!(shadow_header(secret, "bob").as_deref(), Some("none"));
    assert_eq!(shadow_header("0123456789abcdeF", "alice"), None);
    assert_eq!(shadow_header("", "alice"), None);
}

#[test]
fn named_keys_have_their_own_limits() {
    let rule = r#"{ "name": "r", "key": ["user"], "limit": { "rate": 1, "per": "1m" },
        "overrides": [{ "key": ["big"], "limit": { "rate": 10, "per": "1m" } }],
        "allow": [["probe"]], "deny": [["bad"]] }"#;
    let limiter = Limiter::new(&[rule]);
    assert_eq!(limiter.passed("small", 20), 1);
    assert_eq!(limiter.passed("big", 20), 10);
    assert_eq!(limiter.passed("probe", 20), 20);
    let denied = limiter.ask("bad");
    assert_eq!(denied.status(), Some(403));
    assert_eq!(header(&denied, "retry-after"), None);
    assert_eq!(limiter.count("denied", "r"), 1);
}

#[test]
fn request_header_sets_the_cost() {
    let rule = r#"{ "name": "r", "limit": { "rate": 10, "per": "1m" }, "cost_header": { "name": "x-cost", "max": 5 } }"#;
    let limiter = Limiter::new(&[rule]);
    let with = |cost: &str| is_passed(&limiter.request(0, "u").header("x-cost", cost).send());
    assert!(with("4"));
    assert!(with("999"), "counts as 5");
    assert!(!with("2"));
    assert!(with("1"));
}

/// One read and one write of shared data per rule.
#[test]
fn limit_decision_stays_within_its_cost_budget() {
    let limiter = Limiter::new(&[PER_USER]);
    limiter.ask("alice");
    let passed = limiter.ask("alice").cost();
    assert_eq!(passed.host_calls("proxy_get_shared_data"), 1);
    assert_eq!(passed.host_calls("proxy_set_shared_data"), 1);
    // Clock, the user, read, write: counters stay in the VM until the next tick.
    assert!(passed.host_calls_total() <= 4, "{passed:?}");
    // Raised from 5,500: refusals are also reported to access logs.
    assert!(passed.fuel <= 5_550, "{passed:?}");
    limiter.ask("alice");
    let refused = limiter.ask("alice").cost();
    assert_eq!(refused.host_calls("proxy_set_shared_data"), 0);
    assert!(refused.fuel <= 21_000, "{refused:?}");
    let without_rules = Limiter::new(&[]);
    // The first one logs that there are no rules.
    without_rules.ask("alice");
    let untouched = without_rules.ask("alice").cost();
    assert!(untouched.host_calls_total() <= 1, "{untouched:?}");
}
