//! Order tokens: issued at the checkout, and sent with the order.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::json;
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::challenge::{self, VALID_MS};
use weir_sale::token::mint;

use super::sale::{ENGINE, buy, config, gate};
use super::{Ask, Draft, NOW_MS, SECRETS};
use crate::vector::Vector;

/// The header with a token.
const TOKEN: &str = "x-weir-order-token";

/// The header with a solution.
const SOLUTION: &str = "x-weir-solution";

/// The vector whose answers contain tokens: the matrix passes each host's token to the other hosts.
pub const MINTS: &str = "token/matrix/minted";
/// The vector that accepts a token: see [`MINTS`].
pub const ACCEPTS: &str = "token/matrix/accepted";

fn ring(id: &str, secret: &str) -> KeyRing {
    let (_, secret) = SECRETS
        .iter()
        .find(|(name, _)| *name == secret)
        .expect("a secret");
    let key = SigningKey::new(id, secret.as_bytes()).expect("a key");
    KeyRing::new(vec![key]).expect("a ring")
}

/// A token signed with the first key.
pub fn minted(sale: &str, user: &str, at_ms: u64) -> String {
    minted_with(&ring("t2", "WEIR_TOKEN_SECRET"), sale, user, at_ms)
}

fn minted_with(ring: &KeyRing, sale: &str, user: &str, at_ms: u64) -> String {
    let (sale, user) = (
        SaleId::new(sale).expect("a sale"),
        UserId::new(user).expect("a user"),
    );
    mint(ring, &sale, &user, at_ms)
}

fn with_token(name: impl std::fmt::Display) -> Draft {
    gate(
        format!("token/{name}"),
        config(),
        json!({ "token": true }),
        3,
    )
}

fn checkout(user: &str) -> Ask {
    Ask::new("POST", "/sales/s/checkout").header("x-user-id", user)
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = checkouts();
    drafts.extend(ages());
    drafts.extend(others());
    drafts.extend(damaged());
    drafts.extend(challenges());
    drafts.into_iter().map(Draft::done).collect()
}

fn checkouts() -> Vec<Draft> {
    let of = |name: &str, change: serde_json::Value, expected: &str| {
        gate(format!("token/checkout/{name}"), config(), change, 2).ask(checkout("alice"), expected)
    };
    let mut without_keys = config();
    without_keys
        .as_object_mut()
        .expect("an object")
        .remove("token");
    without_keys["checkout_routes"] = json!([]);
    vec![
        with_token("matrix/minted").ask(checkout("alice"), "200 token_minted"),
        with_token("matrix/accepted").after(1_000).ask(
            buy("alice").header(TOKEN, minted("s", "alice", NOW_MS)),
            "goes on: granted",
        ),
        of("open", json!({ "token": true }), "200 token_minted"),
        of("of-a-sale-that-wants-none", json!({}), "200 token_minted"),
        of("shadow", json!({ "state": "shadow" }), "200 token_minted"),
        of("drain", json!({ "state": "drain" }), "403 draining"),
        of("closed", json!({ "state": "closed" }), "403 closed"),
        of("over", json!({ "ends_at_ms": NOW_MS }), "410 ended"),
        of(
            "a-millisecond-before",
            json!({ "starts_at_ms": NOW_MS + 1 }),
            "403 not_started",
        ),
        gate("token/checkout/nobody", config(), json!({}), 2)
            .ask(Ask::new("POST", "/sales/s/checkout"), "401 invalid_user"),
        gate("token/checkout/unknown-sale", config(), json!({}), 2).ask(
            Ask::new("POST", "/sales/other/checkout").header("x-user-id", "alice"),
            "404 unknown_sale",
        ),
        Draft::new(
            "token/checkout/keys-are-missing",
            ENGINE,
            without_keys.clone(),
        )
        .secret("WEIR_CLAIM_SECRET")
        .ask(checkout("alice"), "goes on"),
        with_token("checkout/sold-out-is-told-there").ask(buy("alice"), "403 invalid_token"),
    ]
}

/// Challenges at a checkout, and the tokens for their solutions.
fn challenges() -> Vec<Draft> {
    let of = |name: &str| {
        let work = json!({ "token": true, "challenge": { "proof_of_work": { "bits": 8 } } });
        gate(format!("token/challenge/{name}"), config(), work, 2)
    };
    let solved = |user: &str, at_ms| checkout(user).header(SOLUTION, solution(user, at_ms));
    let (requested, minted) = ("403 challenge_required", "200 token_minted");
    vec![
        of("asked").ask(checkout("alice"), requested),
        of("solved").ask(solved("alice", NOW_MS), minted),
        of("solved-and-asked-again")
            .ask(solved("alice", NOW_MS), minted)
            .after(1_000)
            .ask(solved("alice", NOW_MS), minted),
        of("solved-for-another-user").ask(
            checkout("bob").header(SOLUTION, solution("alice", NOW_MS)),
            requested,
        ),
        of("solved-too-late").ask(solved("alice", NOW_MS - VALID_MS), requested),
        of("not-well-formed").ask(checkout("alice").header(SOLUTION, "1"), requested),
        gate(
            "token/challenge/captcha-of-nobody",
            config(),
            json!({ "token": true, "challenge": { "captcha": {} } }),
            2,
        )
        .ask(checkout("alice"), "503 unavailable"),
    ]
}

/// The first solution of the challenge that `user` gets at this time.
fn solution(user: &str, at_ms: u64) -> String {
    const BITS: u8 = 8;
    let ring = ring("t2", "WEIR_TOKEN_SECRET");
    let (sale, user) = (
        SaleId::new("s").expect("a sale"),
        UserId::new(user).expect("a user"),
    );
    let requested = challenge::ask(&ring, &sale, &user, BITS, at_ms);
    let mut solutions = (0_u32..).map(|counter| format!("{requested}:{counter}"));
    let is_one =
        |text: &String| challenge::check(&ring, text.as_bytes(), &sale, &user, BITS, at_ms).is_ok();
    solutions.find(is_one).expect("a solution")
}

/// A token is valid only between its minimum and maximum age.
fn ages() -> Vec<Draft> {
    let of = |name: &str, age_ms: i64, expected: &str| {
        let at_ms = NOW_MS.saturating_add_signed(-age_ms);
        let ask = buy("alice").header(TOKEN, minted("s", "alice", at_ms));
        with_token(format!("age/{name}")).ask(ask, expected)
    };
    vec![
        of("fresh", 0, "403 token_too_young"),
        of("a-millisecond-too-young", 999, "403 token_too_young"),
        of("just-old-enough", 1_000, "goes on: granted"),
        of("a-minute", 60_000, "goes on: granted"),
        of("just-not-expired", 600_000, "goes on: granted"),
        of("a-millisecond-too-old", 600_001, "403 invalid_token"),
        of("within-the-skew", -2_000, "403 token_too_young"),
        of("from-the-future", -2_001, "403 invalid_token"),
        with_token("age/it-grows-up")
            .ask(
                buy("alice").header(TOKEN, minted("s", "alice", NOW_MS)),
                "403 token_too_young",
            )
            .after(1_000)
            .ask(
                buy("alice").header(TOKEN, minted("s", "alice", NOW_MS)),
                "goes on: granted",
            )
            .after(1_000)
            .ask(
                buy("alice").header(TOKEN, minted("s", "alice", NOW_MS)),
                "goes on: granted_again",
            ),
    ]
}

fn others() -> Vec<Draft> {
    let old = NOW_MS - 5_000;
    let of = |name: &str, token: String, expected: &str| {
        with_token(format!("other/{name}")).ask(buy("alice").header(TOKEN, token), expected)
    };
    vec![
        of(
            "the-second-key",
            minted_with(&ring("t1", "WEIR_OLD_TOKEN_SECRET"), "s", "alice", old),
            "goes on: granted",
        ),
        of(
            "an-unknown-key",
            minted_with(&ring("t9", "WEIR_TOKEN_SECRET"), "s", "alice", old),
            "403 invalid_token",
        ),
        of(
            "the-other-keys-secret",
            minted_with(&ring("t2", "WEIR_OLD_TOKEN_SECRET"), "s", "alice", old),
            "403 invalid_token",
        ),
        of("another-user", minted("s", "bob", old), "403 invalid_token"),
        of(
            "another-sale",
            minted("z", "alice", old),
            "403 invalid_token",
        ),
        gate("token/other/nobody-asks-for-it", config(), json!({}), 2)
            .ask(buy("alice").header(TOKEN, "nonsense"), "goes on: granted"),
        gate(
            "token/other/shadow-asks-for-nothing",
            config(),
            json!({ "token": true, "state": "shadow" }),
            2,
        )
        .ask(buy("alice"), "goes on"),
    ]
}

/// Invalid tokens, byte by byte.
fn damaged() -> Vec<Draft> {
    let good = minted("s", "alice", NOW_MS - 5_000);
    let (head, tag) = good.rsplit_once('.').expect("three parts");
    let flipped = |at: usize| {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("text")
    };
    let tokens = [
        ("nothing", String::new()),
        ("a-word", "token".into()),
        ("two-parts", head.to_owned()),
        ("four-parts", format!("{good}.x")),
        ("a-part-without-bytes", format!("{head}.")),
        ("padded", format!("{good}=")),
        ("cut-by-one", good[..good.len() - 1].to_owned()),
        ("one-too-long", format!("{good}A")),
        ("not-base64", format!("{head}.***")),
        (
            "tag-of-another",
            format!("{head}.{}", "A".repeat(tag.len())),
        ),
        ("payload-changed", flipped(8)),
        ("tag-changed", flipped(good.len() - 5)),
        ("key-changed", flipped(0)),
        ("not-utf8", "\\xff\\xfe.\\xff.\\xff".into()),
        ("too-long-to-look-at", "x".repeat(513)),
    ];
    let of = |(name, token): (&str, String)| {
        let ask = buy("alice").header(TOKEN, token);
        with_token(format!("damaged/{name}")).ask(ask, "403 invalid_token")
    };
    let twice = buy("alice")
        .header(TOKEN, good.clone())
        .header(TOKEN, good.clone());
    tokens
        .map(of)
        .into_iter()
        .chain([
            with_token("damaged/twice").ask(twice, "403 invalid_token"),
            with_token("damaged/not-at-all")
                .ask(buy("alice").header(TOKEN, good.clone()), "goes on: granted"),
        ])
        .collect()
}
