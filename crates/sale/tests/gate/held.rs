//! Requests before the first poll.

use weir_base::headers;
use weir_engine::held::HELD_MAX;
use weir_engine::pump::BATCH_MAX;

use crate::bench::{Bench, Outcome, Reply};

/// A gate without any reply from Redis, with every kind of route.
fn early(more: &str) -> Bench {
    Bench::early(&format!(
        r#", "checkout_routes": [{{ "path": "/sales/{{sale}}/checkout" }}], "status_routes": [{{ "path": "/sales/{{sale}}" }}],
            "token": {{ "keys": [{{ "secret": {{ "env": "T" }} }}] }}{more}"#
    ))
}

#[test]
fn early_request_waits_for_first_poll_and_is_then_decided() {
    let mut bench = early("");
    bench.buy(1, "alice");
    bench.request(2, "GET", "/sales/s", &[]);
    bench.request(3, "POST", "/sales/s/checkout", &[("x-user-id", "bob")]);
    bench.request(4, "POST", "/sales/none/orders", &[("x-user-id", "bob")]);
    let waits = |bench: &Bench| (1..5).all(|stream| bench.outcome(stream).is_none());
    assert!(waits(&bench));
    bench.send();
    assert_eq!(bench.calls, 1, "the first of them makes it look at once");
    assert!(waits(&bench));
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    let names = bench.added_headers(1).into_iter().map(|(name, _)| name);
    assert!(names.into_iter().any(|name| name == headers::CLAIM));
    assert_eq!((bench.answer(2).0, bench.answer(3).0), (200, 200));
    assert!(bench.answer(4).1.contains("unknown_sale"));
    bench.close(1);
    assert!(bench.is_at_rest());
}

/// The SKU in a header is still known after the wait.
#[test]
fn early_normal_order_of_a_sale_sku_is_sent_to_the_sale() {
    let routes = r#", "sku_routes": [{ "path": "/cart", "sku": { "header": "x-sku" } }]"#;
    let mut bench = early(routes);
    bench.catalogue = bench
        .catalogue
        .replace("\"state\"", "\"sku\":\"hat\",\"state\"");
    for (stream, sku) in [(1, "hat"), (2, "scarf")] {
        let headers = [("x-user-id", "alice"), ("x-sku", sku)];
        bench.request(stream, "POST", "/cart", &headers);
        assert_eq!(bench.outcome(stream), None, "it waits for the catalogue");
    }
    bench.send();
    bench.run(Reply::Granted);
    assert!(bench.answer(1).1.contains("sku_in_sale"));
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
}

#[test]
fn held_requests_get_503_after_one_second_without_redis() {
    let mut bench = early("");
    bench.is_down = true;
    bench.buy(1, "alice");
    bench.advance(600);
    bench.buy(2, "bob");
    bench.advance(399);
    assert_eq!((bench.outcome(1), bench.outcome(2)), (None, None));
    bench.advance(1);
    for stream in [1, 2] {
        let (status, body) = bench.answer(stream);
        assert_eq!(status, 503);
        assert!(body.contains("unavailable"), "{body}");
        let retry_after = bench.answer_header(stream, "retry-after");
        assert_eq!(retry_after.as_deref(), Some("1"));
    }
    bench.buy(3, "carol");
    assert_eq!(bench.answer(3).0, 503, "at once");
    assert!(bench.is_at_rest());
}

#[test]
fn failed_poll_is_retried_while_requests_are_held() {
    let mut bench = early("");
    bench.buy(1, "alice");
    bench.send();
    bench.lose_oldest();
    assert_eq!(bench.outcome(1), None);
    bench.advance(50);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
}

/// Every reply ends the wait, even without a valid catalogue, because the origin writes a catalogue at its start.
#[test]
fn any_redis_reply_ends_the_hold_of_requests() {
    let mut bench = early("");
    bench.catalogue = "nonsense".into();
    bench.buy(1, "alice");
    bench.run(Reply::Granted);
    assert_eq!(bench.answer(1).0, 503);
    bench.buy(2, "bob");
    assert_eq!(bench.answer(2).0, 503, "at once");
}

#[test]
fn waiting_requests_are_bounded_in_number_and_size() {
    let mut bench = early("");
    let last = u32::try_from(HELD_MAX).unwrap();
    for stream in 0..last {
        bench.buy(stream, &format!("u{stream}"));
    }
    bench.buy(last, "one-too-many");
    assert_eq!(bench.answer(last).0, 503);
    bench.close(0);
    let long = format!("/sales/s/orders?{}", "q".repeat(8_192));
    bench.request(last + 1, "POST", &long, &[("x-user-id", "alice")]);
    assert_eq!(bench.answer(last + 1).0, 503);
    // Unused headers are not kept.
    let cookie = "c".repeat(9_000);
    let much = [("x-user-id", "alice"), ("cookie", cookie.as_str())];
    bench.request(last + 2, "POST", "/sales/s/orders", &much);
    assert_eq!(bench.outcome(last + 2), None);
    bench.run(Reply::Granted);
    for stream in (1..last).chain([last + 2]) {
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn), "{stream}");
    }
    assert_eq!(bench.granted, HELD_MAX, "nothing was claimed for who left");
    assert!(bench.most_answers_in_an_event <= BATCH_MAX);
}

#[test]
fn client_that_leaves_while_held_claims_nothing() {
    let mut bench = early("");
    bench.buy(1, "alice");
    bench.close_with(1, None);
    assert!(bench.is_at_rest());
    bench.buy(2, "bob");
    bench.disconnected.insert(2);
    bench.run(Reply::Granted);
    assert_eq!((bench.granted, bench.handed_back), (1, 1));
}

#[test]
fn held_request_keeps_all_inputs_of_its_decision() {
    let limits = r#", "limits": { "address": { "rate": 1, "per": "1s", "burst": 1 } }"#;
    let mut bench = early(limits);
    let headers = [
        ("x-user-id", "alice"),
        ("idempotency-key", "a b"),
        ("accept-language", "de"),
    ];
    bench.request(1, "POST", "/sales/s/orders", &headers);
    let forged = [("x-user-id", "alice"), (headers::CLAIM, "forged")];
    let query = "/sales/s/orders?a=1";
    bench.request_from("192.0.2.2", 2, "POST", query, &forged);
    bench.request_from("192.0.2.2", 3, "POST", query, &forged);
    let twice = [("x-user-id", "alice"), ("x-user-id", "bob")];
    bench.request_from("192.0.2.3", 4, "POST", query, &twice);
    bench.run(Reply::Granted);
    assert!(bench.answer(1).1.contains("Idempotency-Key muss"));
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
    let effects: Vec<String> = bench.effects_of(2).map(|it| format!("{it:?}")).collect();
    let has = |text: &str| effects.iter().any(|effect| effect.contains(text));
    assert!(has("RemoveRequestHeader"), "{effects:?}");
    assert!(has(r#"path: "/sales/s/orders""#), "{effects:?}");
    assert_eq!(bench.answer(3).0, 429);
    assert_eq!(bench.answer(4).0, 401);
}

#[test]
fn request_on_another_route_is_not_held() {
    let mut bench = Bench::early_with_route("orders");
    bench.buy_by(1, "alice", Some("shop"));
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    bench.buy_by(2, "alice", Some("orders"));
    assert_eq!(bench.outcome(2), None);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
}
