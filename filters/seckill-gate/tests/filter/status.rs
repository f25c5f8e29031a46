//! The public status of a sale.

use std::time::Duration;

use super::support::{CATALOGUE, CONFIG, Gate, NOW_MS};
use weir_host_test::LocalReply;

fn gate() -> Gate {
    Gate::ready_with(&CONFIG.replacen(
        '{',
        r#"{ "status_routes": [{ "path": "/sales/{sale}" }],"#,
        1,
    ))
}

fn ask(gate: &Gate, sale: &str) -> LocalReply {
    let path = format!("/sales/{sale}");
    let request = gate.host.request(0).method("GET").path(path).send();
    request.reply().unwrap()
}

fn field(reply: &LocalReply, name: &str) -> serde_json::Value {
    let body: serde_json::Value = serde_json::from_str(&reply.body_text()).unwrap();
    body[name].clone()
}

#[test]
fn status_shows_the_sale_state_and_the_current_time() {
    let gate = gate();
    let reply = ask(&gate, "later");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(field(&reply, "id"), "later");
    assert_eq!(field(&reply, "state"), "scheduled");
    assert_eq!(field(&reply, "starts_at_ms"), 1_700_000_030_000_u64);
    assert_eq!(field(&reply, "remaining"), "high");
    assert_eq!(field(&reply, "token"), false);
    let now_ms = field(&reply, "now_ms").as_u64().unwrap();
    assert!((NOW_MS..NOW_MS + 1_000).contains(&now_ms), "{now_ms}");
    for (sale, state) in [("busy", "running"), ("over", "ended"), ("shut", "closed")] {
        assert_eq!(field(&ask(&gate, sale), "state"), state);
    }
    gate.host.run_until_idle();
    assert!(gate.host.calls().is_empty(), "nothing of this costs Redis");
    assert_eq!(gate.metric("weir_seckill_gate_statuses_total"), 4);
    assert_eq!(gate.requests("closed"), 0, "a status is no verdict");
}

#[test]
fn status_shows_sold_out_when_sql_has_no_units_left() {
    let gate = gate();
    let reply = ask(&gate, "open");
    assert_eq!(field(&reply, "state"), "sold_out");
    assert_eq!(field(&reply, "remaining"), "none");
    let reply = ask(&gate, "busy");
    assert_eq!(field(&reply, "state"), "running");
    assert_eq!(field(&reply, "remaining"), "high");
}

#[test]
fn status_reads_stock_band_and_flags_from_the_catalogue() {
    let gate = gate();
    let fields = r#""band":"low","token":true,"reservation":true,"state":"drain""#;
    gate.host.advance(Duration::from_millis(250));
    gate.answer_polls_with(&CATALOGUE.replacen(r#""state":"open","band":"none""#, fields, 1));
    let reply = ask(&gate, "open");
    assert_eq!(field(&reply, "state"), "draining");
    assert_eq!(field(&reply, "remaining"), "low");
    assert_eq!(field(&reply, "reservation"), true);
    assert_eq!(field(&reply, "token"), true);
}

#[test]
fn unknown_sale_and_gate_without_data_have_their_own_statuses() {
    let gate = gate();
    let unknown = ask(&gate, "nothing");
    assert_eq!(unknown.status, 404);
    assert_eq!(field(&unknown, "error"), "unknown_sale");

    let config = CONFIG.replacen(
        '{',
        r#"{ "status_routes": [{ "path": "/sales/{sale}" }],"#,
        1,
    );
    let gate = Gate::start(&config);
    let early = gate
        .host
        .request(0)
        .method("GET")
        .path("/sales/open")
        .send();
    assert!(early.is_paused());
    gate.host.advance(Duration::from_millis(1_300));
    let early = early.reply().unwrap();
    assert_eq!(
        (early.status, early.header("retry-after")),
        (503, Some("1"))
    );
}

#[test]
fn status_request_stays_within_its_budget() {
    let gate = gate();
    // The first request wakes the VM.
    ask(&gate, "open");
    let request = gate
        .host
        .request(0)
        .method("GET")
        .path("/sales/open")
        .send();
    let cost = request.cost();
    // Method, path, clock, metric, answer.
    assert!(cost.host_calls_total() <= 5, "{cost:?}");
    assert!(cost.fuel < 40_000, "{cost:?}");
}
