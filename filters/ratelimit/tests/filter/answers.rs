//! Responses to clients.

use super::support::{Limiter, header, is_passed, response_header};

const RULES: [&str; 2] = [
    r#"{ "name": "all", "limit": { "rate": 100, "per": "1m", "burst": 10 } }"#,
    r#"{ "name": "per-user", "key": ["user"], "algorithm": "fixed_window", "limit": { "rate": 2, "per": "1h" } }"#,
];

#[test]
fn refusal_reports_remaining_quota_and_retry_time_per_policy() {
    let limiter = Limiter::new(&RULES);
    assert_eq!(limiter.passed("alice", 2), 2);
    let refused = limiter.ask("alice");
    let reply = |name: &str| header(&refused, name);
    assert_eq!(refused.status(), Some(429));
    assert_eq!(
        reply("ratelimit-policy").unwrap(),
        r#""all";q=10;w=6, "per-user";q=2;w=3600"#
    );
    // The host's clock starts 1,600 seconds into an hour.
    assert_eq!(
        reply("ratelimit").unwrap(),
        r#""all";r=8, "per-user";r=0;t=2800"#
    );
    assert_eq!(reply("retry-after").unwrap(), "2800");
    assert_eq!(reply("cache-control").unwrap(), "no-store");
    assert_eq!(reply("x-ratelimit-limit"), None);
    let body: String = refused.reply().unwrap().body_text();
    assert!(body.contains(r#""error":"rate_limited""#), "{body}");
    assert!(
        body.contains(r#""violated-policies":["per-user"]"#),
        "{body}"
    );
    let kind = reply("content-type").unwrap();
    assert_eq!(kind, "application/problem+json");
}

#[test]
fn allowed_requests_get_limit_headers_if_configured() {
    let quiet = Limiter::new(&RULES);
    assert_eq!(response_header(&quiet.ask("alice"), "ratelimit"), None);
    let limiter = Limiter::with_responses(
        &RULES,
        r#""headers": { "on_allowed": true, "legacy": true }"#,
    );
    let passed = limiter.ask("alice");
    assert_eq!(
        response_header(&passed, "ratelimit").unwrap(),
        r#""all";r=9;t=1, "per-user";r=1;t=2800"#
    );
    let passed = limiter.ask("alice");
    assert_eq!(
        response_header(&passed, "x-ratelimit-remaining").unwrap(),
        "0"
    );
    let refused = limiter.ask("alice");
    assert_eq!(header(&refused, "x-ratelimit-limit").unwrap(), "2");
    assert_eq!(header(&refused, "x-ratelimit-reset").unwrap(), "2800");
}

#[test]
fn grpc_request_gets_a_grpc_status() {
    let limiter = Limiter::new(&RULES);
    limiter.passed("alice", 2);
    let call = limiter
        .request(0, "alice")
        .header("content-type", "application/grpc+proto");
    let reply = call.send().reply().unwrap();
    assert_eq!((reply.status, reply.grpc_status), (200, Some(8)));
    assert_eq!(reply.header("retry-after"), Some("2800"));
}

#[test]
fn configured_answer_replaces_json() {
    let answer =
        r#""answer": { "status": 503, "content_type": "text/html", "body": "<p>later</p>" }"#;
    let limiter = Limiter::with(&RULES, answer);
    limiter.passed("alice", 2);
    let reply = limiter.ask("alice").reply().unwrap();
    assert_eq!(
        (reply.status, reply.body_text().as_str()),
        (503, "<p>later</p>")
    );
    assert_eq!(reply.header("content-type"), Some("text/html"));
    assert_eq!(reply.header("retry-after"), Some("2800"));
}

#[test]
fn request_without_a_matching_rule_is_unchanged() {
    let rule = r#"{ "name": "r", "match": { "path": { "prefix": "/other" } }, "limit": { "rate": 1, "per": "1s" } }"#;
    let limiter = Limiter::with_responses(&[rule], r#""headers": { "on_allowed": true }"#);
    let passed = limiter.ask("alice");
    assert!(is_passed(&passed));
    assert_eq!(response_header(&passed, "ratelimit"), None);
}
