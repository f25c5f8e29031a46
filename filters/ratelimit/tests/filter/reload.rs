//! Rules that change during requests.

use std::time::Duration;

use weir_host_test::Reply;

use super::support::Limiter;

fn limiter() -> Limiter {
    let rule = r#"{ "name": "r", "key": ["user"], "limit": { "rate": 3, "per": "1h" } }"#;
    let limiter = Limiter::with(&[rule], r#""redis": {}, "reload": true"#);
    // The first request starts the VM's polls.
    assert_eq!(limiter.passed("alice", 3), 3);
    limiter
}

/// Answers the polls of both workers with this document.
fn publish(limiter: &Limiter, document: Option<&str>) {
    limiter.host.advance(Duration::from_millis(500));
    limiter.host.run_until_idle();
    for call in limiter.host.calls() {
        let reply = match document {
            Some(json) => format!("${}\r\n{json}\r\n", json.len()),
            None => "$-1\r\n".into(),
        };
        limiter.host.answer(call.id, Reply::ok(reply));
    }
    limiter.host.run_until_idle();
}

fn rules(rate: u32) -> String {
    format!(
        r#"{{ "rules": [{{ "name": "r", "key": ["user"], "limit": {{ "rate": {rate}, "per": "1h" }} }}] }}"#
    )
}

fn metric(limiter: &Limiter, name: &str) -> u64 {
    limiter.metric(&format!("weir_ratelimit_{name}_total"))
}

#[test]
fn new_rules_apply_to_next_request_and_usage_is_kept() {
    let limiter = limiter();
    assert_eq!(limiter.passed("alice", 2), 0);
    publish(&limiter, Some(&rules(5)));
    assert_eq!(
        limiter.passed("alice", 5),
        2,
        "five, of which three are used"
    );
    assert!(metric(&limiter, "rules_loaded") >= 1);
}

#[test]
fn bad_rules_are_refused_and_the_old_ones_remain() {
    let limiter = limiter();
    for bad in [
        "",
        "nonsense",
        r#"{"rules":[{"name":"r"}]}"#,
        r#"{"rules":[{"name":"r","limit":{"rate":0,"per":"1h"}}]}"#,
    ] {
        publish(&limiter, Some(bad));
        assert_eq!(limiter.passed("alice", 2), 0, "{bad}");
        assert_eq!(limiter.passed(&format!("user{}", bad.len()), 5), 3, "{bad}");
    }
    assert!(metric(&limiter, "rules_refused") >= 4);
    assert!(limiter.host.logged("rules[0].limit.rate"));
    publish(&limiter, Some(&rules(4)));
    assert_eq!(limiter.passed("alice", 2), 1, "a good one comes after all");
}

#[test]
fn missing_document_leaves_the_current_rules_in_force() {
    let limiter = limiter();
    publish(&limiter, None);
    assert_eq!(limiter.passed("bob", 5), 3);
    publish(&limiter, Some(&rules(1)));
    assert_eq!(limiter.passed("carol", 5), 1);
    publish(&limiter, None);
    assert_eq!(
        limiter.passed("dave", 5),
        1,
        "one that is lost takes nothing away"
    );
}

#[test]
fn failed_poll_changes_nothing() {
    let limiter = limiter();
    limiter.host.advance(Duration::from_secs(2));
    limiter.host.run_until_idle();
    assert_eq!(limiter.passed("bob", 5), 3);
    assert!(metric(&limiter, "polls_failed") > 0);
}
