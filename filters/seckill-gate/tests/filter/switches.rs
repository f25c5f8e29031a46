//! Operators' switches and degradations, as clients and the origin see them.

use std::time::Duration;

use super::support::{CATALOGUE, CONFIG, Gate, granted, users};
use weir_host_test::Stream;

const SWITCH: &str = r#"{"switch":"open","sales""#;

/// A gate whose catalogue has changed since its start.
fn switched(from: &str, to: &str) -> Gate {
    let gate = Gate::ready();
    switch(&gate, from, to);
    gate
}

fn switch(gate: &Gate, from: &str, to: &str) {
    let catalogue = CATALOGUE.replacen(r#"{"sales""#, SWITCH, 1);
    assert!(catalogue.contains(from), "{from}");
    gate.host.advance(Duration::from_millis(250));
    gate.answer_polls_with(&catalogue.replacen(from, to, 1));
}

fn of_open(state: &str) -> String {
    format!(r#""user_cap":1,{state}"#)
}

fn verdict(stream: &Stream) -> String {
    let reply = stream.reply().unwrap();
    reply.header("x-weir-verdict").unwrap().to_owned()
}

fn shadowed(gate: &Gate, verdict: &str) -> u64 {
    let name = format!("weir_seckill_gate_shadow_total.verdict.{verdict}");
    gate.metric(&name)
}

/// The third of the terms before a group's users.
fn checks(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).into_owned();
    let parts: Vec<_> = text.split("\r\n").collect();
    let user = parts.iter().rposition(|part| *part == "alice").unwrap();
    parts[user - 4].to_owned()
}

fn sent_checks(gate: &Gate) -> String {
    gate.buy("alice");
    gate.host.run_until_idle();
    let calls = gate.host.calls();
    let claims = calls.iter().find(|call| !users(&call.body).is_empty());
    let checks = checks(&claims.unwrap().body);
    gate.answer_claims(|_user| "8".into());
    checks
}

#[test]
fn switch_applies_within_one_poll_and_the_stricter_one_wins() {
    let gate = Gate::ready();
    assert!(gate.buy("alice").is_paused());
    switch(&gate, r#""switch":"open""#, r#""switch":"closed""#);
    assert_eq!(verdict(&gate.buy("bob")), "closed");
    switch(&gate, r#""switch":"open""#, r#""switch":"shadow""#);
    assert_eq!(verdict(&gate.buy_from("shut", "bob")), "closed");
    switch(&gate, r#""switch":"open""#, r#""switch":"open""#);
    assert!(gate.buy("bob").is_paused());
}

#[test]
fn draining_sale_accepts_existing_claims_only() {
    let gate = switched(
        &of_open(r#""state":"open""#),
        &of_open(r#""state":"drain""#),
    );
    assert_eq!(sent_checks(&gate), "bd");
    assert_eq!(gate.requests("draining"), 1);
    let holder = gate.buy("alice");
    gate.answer_claims(|_user| granted(7).replacen(":1", ":2", 1));
    assert!(holder.is_continued());
}

#[test]
fn shard_runs_only_checks_that_degrade_does_not_skip() {
    for (fields, expected) in [
        ("", "b"),
        (r#""reservation":true,"#, "br"),
        (r#""reservation":true,"degrade":{"skip_risk":true},"#, "r"),
        (
            r#""reservation":true,"degrade":{"skip_reservation":true},"#,
            "b",
        ),
        (r#""degrade":{"skip_risk":true},"#, "-"),
    ] {
        let state = r#""state":"open""#;
        let gate = switched(&of_open(state), &of_open(&format!("{fields}{state}")));
        assert_eq!(sent_checks(&gate), expected, "{fields}");
    }
}

#[test]
fn shard_refusal_returns_its_reason_to_the_client() {
    let gate = Gate::ready();
    for (reply, expected) in [(6, "blocked"), (7, "not_reserved"), (8, "draining")] {
        let buyer = gate.buy("alice");
        gate.answer_claims(|_user| reply.to_string());
        assert_eq!(buyer.status(), Some(403));
        assert_eq!(verdict(&buyer), expected);
        assert_eq!(gate.requests(expected), 1);
    }
}

#[test]
fn shadow_mode_counts_verdicts_and_passes_all_requests() {
    let gate = switched(
        &of_open(r#""state":"open""#),
        &of_open(r#""state":"shadow""#),
    );
    let holds_claim = |stream: &Stream| {
        let upstream = stream.upstream_request();
        let claim = upstream.headers.get("x-weir-claim").map(<[u8]>::to_vec);
        assert_ne!(claim.as_deref(), Some(b"forged".as_slice()));
        claim.is_some()
    };
    let ask = |user: &str| {
        let request = gate.request("open", user);
        let request = request.header("x-weir-verdict", "forged");
        request.header("x-weir-claim", "forged").send()
    };

    let happy = ask("alice");
    gate.answer_claims(|_user| granted(7));
    assert!(happy.is_continued() && holds_claim(&happy));

    let lost = ask("carol");
    assert!(lost.is_paused());
    gate.host.advance(Duration::from_secs(1));
    assert!(lost.is_continued() && !holds_claim(&lost));

    let late = ask("bob");
    gate.answer_claims(|_user| "4 5 0".into());
    assert!(late.is_continued() && !holds_claim(&late));

    // Decided without Redis: these never wait.
    let later = ask("bob");
    assert!(later.is_continued() && !holds_claim(&later));
    let anonymous = ask("");
    assert!(anonymous.is_continued() && !holds_claim(&anonymous));

    let counts = ["granted", "sold_out", "invalid_user", "unavailable"]
        .map(|word| (shadowed(&gate, word), gate.requests(word)));
    assert_eq!(counts, [(1, 0), (2, 0), (1, 0), (1, 0)]);

    for stream in [happy, lost, late, later, anonymous] {
        let upstream = stream.upstream_request();
        assert!(upstream.headers.get("x-weir-verdict").is_none());
    }
}

#[test]
fn dry_run_grant_is_released_when_the_client_disconnects() {
    let gate = switched(
        &of_open(r#""state":"open""#),
        &of_open(r#""state":"shadow""#),
    );
    let stream = gate.buy("alice");
    gate.host.run_until_idle();
    stream.disconnect();
    gate.answer_claims(|_user| granted(7));
    let handed_back = "weir_seckill_gate_claims_handed_back_total";
    assert_eq!(gate.metric(handed_back), 1);
}

#[test]
fn static_page_replaces_every_response() {
    let page = of_open(r#""degrade":{"static_page":true},"state":"open""#);
    let gate = switched(&of_open(r#""state":"open""#), &page);
    let reply = gate.buy("alice").reply().unwrap();
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(
        reply.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(reply.body_text().contains("paused"));
    assert_eq!(gate.requests("static_page"), 1);

    let own =
        r#""static_page": { "status": 200, "content_type": "text/plain", "body": "Soon." }, "#;
    let gate = Gate::ready_with(&CONFIG.replacen('{', &format!("{{{own}"), 1));
    switch(&gate, &of_open(r#""state":"open""#), &page);
    let reply = gate.buy("alice").reply().unwrap();
    assert_eq!((reply.status, reply.body_text().as_str()), (200, "Soon."));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.header("x-weir-verdict"), Some("static_page"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}
