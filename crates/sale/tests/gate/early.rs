//! Decisions before the host's HTTP stack equal the gate's decisions on the same request, and count once.

use weir_engine::EarlyDecision;

use crate::bench::{Bench, CATALOGUE, Outcome, Reply};

/// An open sale, one that has not started, one in dry-run mode and one that requires tokens.
fn bench() -> Bench {
    let mut bench = Bench::early(
        r#", "checkout_routes": [{ "path": "/sales/{sale}/checkout" }], "status_routes": [{ "path": "/sales/{sale}" }],
            "identify_prefixes": ["/orders/"], "token": { "keys": [{ "secret": { "env": "T" } }] }"#,
    );
    let open = CATALOGUE
        .trim_start_matches(r#"{"sales":["#)
        .trim_end_matches("]}");
    let sales = [
        open.to_owned(),
        open.replace(r#""id":"s""#, r#""id":"later""#)
            .replace(r#""starts_at_ms":1,"#, r#""starts_at_ms":8000000000000,"#),
        open.replace(r#""id":"s""#, r#""id":"dry""#)
            .replace(r#""state":"open""#, r#""state":"shadow""#)
            .replace(r#""starts_at_ms":1,"#, r#""starts_at_ms":8000000000000,"#),
        open.replace(r#""id":"s""#, r#""id":"tokened""#)
            .replace(r#""state""#, r#""token":true,"state""#),
    ];
    bench.catalogue = format!(r#"{{"sales":[{}]}}"#, sales.join(","));
    bench
}

/// A bench whose gate has read the catalogue.
fn ready() -> Bench {
    let mut bench = bench();
    bench.request(1, "GET", "/sales/s", &[]);
    bench.send();
    bench.run(Reply::Granted);
    bench
}

const ALICE: (&str, &str) = ("x-user-id", "alice");

type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const CASES: [Case; 17] = [
    ("POST", "/sales/s/orders", &[ALICE]),
    ("POST", "/sales/none/orders", &[ALICE]),
    ("POST", "/sales/later/orders", &[ALICE]),
    (
        "POST",
        "/sales/later/orders",
        &[ALICE, ("accept", "text/html")],
    ),
    (
        "POST",
        "/sales/later/orders",
        &[ALICE, ("accept-language", "zh")],
    ),
    (
        "POST",
        "/sales/later/orders",
        &[ALICE, ("idempotency-key", "k1")],
    ),
    (
        "POST",
        "/sales/later/orders",
        &[ALICE, ("x-weir-quantity", "0")],
    ),
    ("POST", "/sales/dry/orders", &[ALICE]),
    ("POST", "/sales/tokened/orders", &[ALICE]),
    (
        "POST",
        "/sales/tokened/orders",
        &[ALICE, ("x-weir-order-token", "t1.forged")],
    ),
    ("POST", "/sales/s/orders", &[]),
    (
        "POST",
        "/sales/s/orders",
        &[ALICE, ("x-weir-claim", "forged")],
    ),
    ("POST", "/sales/s/checkout", &[ALICE]),
    ("GET", "/sales/s", &[]),
    ("GET", "/sales/none", &[]),
    ("GET", "/orders/1", &[ALICE]),
    ("GET", "/", &[]),
];

#[test]
fn early_answer_equals_the_normal_one_and_is_counted_once() {
    let mut answered = 0;
    for (method, path, headers) in CASES {
        let (mut early, mut usual) = (ready(), ready());
        let decision = early.decide_early(method, path, headers, true);
        usual.request(9, method, path, headers);
        match decision {
            EarlyDecision::Answer(answer) => {
                answered += 1;
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                assert_eq!((answer.status, body), usual.answer(9), "{path} {headers:?}");
                assert_eq!(early.counts(), usual.counts(), "{path} {headers:?}");
            }
            EarlyDecision::NotConcerned => {
                assert_eq!(usual.outcome(9), Some(Outcome::WentOn), "{path}");
                assert!(usual.added_headers(9).is_empty(), "{path}");
            }
            EarlyDecision::Undecided => {
                // Nothing was counted, because the request arrives again.
                early.request(9, method, path, headers);
                assert_eq!(early.outcome(9), usual.outcome(9), "{path}");
                assert_eq!(early.counts(), usual.counts(), "{path} {headers:?}");
            }
        }
    }
    assert!(answered >= 9, "{answered}");
}

#[test]
fn nothing_is_decided_before_the_catalogue_is_loaded() {
    for (method, path, headers) in CASES {
        let decision = bench().decide_early(method, path, headers, true);
        assert!(!matches!(decision, EarlyDecision::Answer(_)), "{path}");
    }
}

/// A later filter sets the user, so only refusals for every user are possible here.
#[test]
fn request_without_trusted_user_is_refused_only_by_the_sale() {
    let mut bench = ready();
    let mut is_answered = |path: &str, headers: &[(&str, &str)]| {
        let decision = bench.decide_early("POST", path, headers, false);
        matches!(decision, EarlyDecision::Answer(_))
    };
    assert!(is_answered("/sales/later/orders", &[]));
    assert!(is_answered("/sales/none/orders", &[]));
    assert!(!is_answered("/sales/s/orders", &[]));
    assert!(!is_answered("/sales/tokened/orders", &[ALICE]));
    // Redis may know an attempt with an idempotency key.
    assert!(!is_answered(
        "/sales/later/orders",
        &[("idempotency-key", "k1")]
    ));
}

#[test]
fn sold_out_is_answered_early_while_polls_are_current() {
    let mut bench = Bench::open();
    bench.sell_out();
    let decision = bench.decide_early("POST", "/sales/s/orders", &[ALICE], true);
    let EarlyDecision::Answer(answer) = decision else {
        panic!("the sale is empty as far as is known");
    };
    bench.buy(9, "alice");
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!((answer.status, body), bench.answer(9));
    assert!(bench.answer(9).1.contains("sold_out"));
}
