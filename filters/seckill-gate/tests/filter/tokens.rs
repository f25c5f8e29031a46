//! Order tokens: who gets one, and the response to each invalid one.

use std::time::Duration;

use super::support::{CATALOGUE, CONFIG, Gate, NOW_MS, granted};
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_host_test::{LocalReply, Stream};
use weir_sale::token::{TokenError, mint};

const SECRET: &str = "a-secret-of-tokens-for-tests-only";

fn config() -> String {
    let fields = r#"{
        "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
        "token": { "keys": [{ "secret": { "env": "WEIR_TOKEN_SECRET" } }] },"#;
    CONFIG.replacen('{', fields, 1)
}

/// `open` requires tokens.
fn catalogue() -> String {
    CATALOGUE.replacen(r#""state":"open""#, r#""token":true,"state":"open""#, 1)
}

fn gate() -> Gate {
    gate_with(&catalogue())
}

fn gate_with(catalogue: &str) -> Gate {
    let gate = Gate::builder(&config(), |host| host.env("WEIR_TOKEN_SECRET", SECRET));
    gate.begin_polls();
    gate.answer_polls_with(catalogue);
    gate
}

fn now_ms(gate: &Gate) -> u64 {
    gate.host.now_ns() / 1_000_000
}

fn check_out(gate: &Gate, sale: &str, user: &str) -> LocalReply {
    let path = format!("/sales/{sale}/checkout");
    let request = gate.host.request(0).method("POST").path(path);
    request.header("x-user-id", user).send().reply().unwrap()
}

fn field(reply: &LocalReply, name: &str) -> serde_json::Value {
    let body: serde_json::Value = serde_json::from_str(&reply.body_text()).unwrap();
    body[name].clone()
}

fn buy(gate: &Gate, user: &str, token: impl AsRef<[u8]>) -> Stream {
    let request = gate.request("open", user);
    request.header("x-weir-order-token", token).send()
}

fn ring(secret: &str) -> KeyRing {
    SigningKey::new("k1", secret.as_bytes()).unwrap().into()
}

fn minted(secret: &str, sale: &str, user: &str, at_ms: u64) -> String {
    let (sale, user) = (SaleId::new(sale).unwrap(), UserId::new(user).unwrap());
    mint(&ring(secret), &sale, &user, at_ms)
}

fn refused(gate: &Gate, reason: TokenError) -> u64 {
    let word = reason.label();
    let name = format!("weir_seckill_gate_tokens_refused_total.reason.{word}");
    gate.metric(&name)
}

#[test]
fn checkout_token_is_valid_after_its_minimum_age() {
    let gate = gate();
    let reply = check_out(&gate, "open", "alice");
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert_eq!(reply.header("x-weir-verdict"), Some("token_minted"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let at_ms = field(&reply, "now_ms").as_u64().unwrap();
    assert!((NOW_MS..=now_ms(&gate)).contains(&at_ms));
    assert_eq!(field(&reply, "usable_at_ms"), at_ms + 1_000);
    assert_eq!(field(&reply, "expires_at_ms"), at_ms + 600_000);
    assert_eq!(gate.requests("token_minted"), 1);

    let token = field(&reply, "token").as_str().unwrap().to_owned();
    let early = buy(&gate, "alice", &token).reply().unwrap();
    assert_eq!(early.status, 403);
    assert_eq!(early.header("x-weir-verdict"), Some("token_too_young"));
    assert_eq!(early.header("retry-after"), Some("1"));
    gate.host.advance(Duration::from_millis(1_000));
    gate.answer_polls_with(&catalogue());
    let buyer = buy(&gate, "alice", &token);
    gate.answer_claims(|_user| granted(7));
    assert!(buyer.is_continued());
    assert_eq!(refused(&gate, TokenError::TooYoung), 1);
}

#[test]
fn each_token_fault_has_its_own_metric_and_one_client_answer() {
    let gate = gate();
    let old = now_ms(&gate) - 5_000;
    let good = minted(SECRET, "open", "alice", old);
    let other_secret = "another-secret-of-the-same-length";
    let cases: [(TokenError, Vec<u8>); 12] = [
        (TokenError::Missing, vec![]),
        (TokenError::TooLong, vec![b'a'; 100_000]),
        (TokenError::Malformed, b"nonsense".to_vec()),
        (TokenError::Malformed, b"\xff\xfe".to_vec()),
        (TokenError::NotBase64, good.replace('.', ".=").into_bytes()),
        (
            TokenError::UnknownKey,
            good.replacen("k1", "k2", 1).into_bytes(),
        ),
        (
            TokenError::BadSignature,
            minted(other_secret, "open", "alice", old).into_bytes(),
        ),
        // Truncated so that the rest is still base64.
        (
            TokenError::BadSignature,
            good.as_bytes()[..good.len() - 3].to_vec(),
        ),
        (
            TokenError::ForeignUser,
            minted(SECRET, "open", "bob", old).into_bytes(),
        ),
        (
            TokenError::OtherSale,
            minted(SECRET, "later", "alice", old).into_bytes(),
        ),
        (
            TokenError::FutureDated,
            minted(SECRET, "open", "alice", old + 60_000).into_bytes(),
        ),
        (
            TokenError::Expired,
            minted(SECRET, "open", "alice", old - 600_000).into_bytes(),
        ),
    ];
    let mut answers = std::collections::BTreeSet::new();
    for (reason, token) in cases {
        let before = refused(&gate, reason);
        let reply = buy(&gate, "alice", &token).reply().unwrap();
        assert_eq!(refused(&gate, reason), before + 1, "{reason:?}");
        answers.insert((reply.status, reply.body_text()));
        assert_eq!(reply.header("x-weir-verdict"), Some("invalid_token"));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    gate.host.run_until_idle();
    assert!(gate.host.calls().is_empty(), "none of this costs Redis");
    assert!(buy(&gate, "alice", &good).is_paused());
}

#[test]
fn user_and_sold_out_checks_precede_the_token_check() {
    let gate = gate();
    assert_eq!(gate.buy("").status(), Some(401));
    let sold_out = buy(
        &gate,
        "alice",
        minted(SECRET, "open", "alice", NOW_MS - 5_000),
    );
    gate.answer_claims(|_user| "4 5 0".into());
    assert_eq!(sold_out.status(), Some(409));
    assert_eq!(gate.buy("alice").status(), Some(409));
    assert_eq!(refused(&gate, TokenError::Missing), 0);
}

#[test]
fn checkout_applies_the_chain_refusals_and_claims_nothing() {
    let gate = gate();
    for (sale, user, status, verdict) in [
        ("nothing", "alice", 404, "unknown_sale"),
        ("open", "", 401, "invalid_user"),
        ("later", "alice", 403, "not_started"),
        ("over", "alice", 410, "ended"),
        ("shut", "alice", 403, "closed"),
    ] {
        let reply = check_out(&gate, sale, user);
        assert_eq!(
            (reply.status, reply.header("x-weir-verdict")),
            (status, Some(verdict))
        );
        assert_eq!(gate.requests(verdict), 1);
    }
    gate.host.run_until_idle();
    assert!(gate.host.calls().is_empty());
}

#[test]
fn draining_sale_issues_no_tokens_and_dry_run_issues_all() {
    let with = |state| catalogue().replacen(r#""state":"open""#, state, 1);
    let gate = gate_with(&with(r#""state":"drain""#));
    let reply = check_out(&gate, "open", "alice");
    assert_eq!(reply.header("x-weir-verdict"), Some("draining"));

    let gate = gate_with(&with(r#""state":"shadow""#));
    assert_eq!(check_out(&gate, "open", "alice").status, 200);
    let shadow = "weir_seckill_gate_shadow_total.verdict.";
    let count = |word: &str| gate.metric(&format!("{shadow}{word}"));
    assert_eq!(
        (count("token_minted"), gate.requests("token_minted")),
        (1, 0)
    );
    let forged = buy(&gate, "alice", "forged");
    assert!(forged.is_continued());
    assert_eq!(count("invalid_token"), 1);
}

#[test]
fn gate_without_keys_refuses_a_token_sale() {
    let gate = Gate::start(CONFIG);
    gate.begin_polls();
    gate.answer_polls_with(&catalogue());
    assert_eq!(gate.buy("alice").status(), Some(503));
    assert!(gate.host.logged("`token` is not configured"));
}

#[test]
fn token_requests_stay_within_their_budget() {
    let gate = gate();
    let token = minted(SECRET, "open", "alice", NOW_MS - 5_000);
    check_out(&gate, "open", "alice");
    let request = gate
        .host
        .request(0)
        .method("POST")
        .path("/sales/open/checkout");
    let checkout = request.header("x-user-id", "alice").send().cost();
    // Method, path, user, clock, metric, answer.
    assert!(checkout.host_calls_total() <= 6, "{checkout:?}");
    assert!(checkout.fuel < 90_000, "{checkout:?}");
    let refused = buy(&gate, "bob", &token).cost();
    // Method, path, user, clock, token, two metrics, answer.
    assert!(refused.host_calls_total() <= 8, "{refused:?}");
    assert!(refused.fuel < 90_000, "{refused:?}");
}
