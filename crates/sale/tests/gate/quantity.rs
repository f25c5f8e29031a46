//! Requests for several units.

use weir_base::headers;

use crate::bench::{Bench, Outcome, Reply};
use crate::of_two_shards;

fn buy(bench: &mut Bench, stream: u32, user: &str, quantity: &str) {
    let asks = [("x-user-id", user), (headers::QUANTITY, quantity)];
    bench.request(stream, "POST", "/sales/s/orders", &asks);
}

/// A gate whose sale has a cap of three units per user.
fn of_cap_three() -> Bench {
    let mut bench = Bench::open();
    bench.catalogue = bench.catalogue.replace("\"user_cap\":1", "\"user_cap\":3");
    bench.advance(300);
    bench
}

/// The quantity in the claim: `v1;<sale>;<shard>;<generation>;<quantity>;…`.
fn quantity_of(bench: &Bench, stream: u32) -> String {
    let added = bench.added_headers(stream);
    let (_, claim) = added
        .iter()
        .find(|(name, _)| *name == headers::CLAIM)
        .unwrap();
    claim.split(';').nth(4).unwrap().to_owned()
}

#[test]
fn multi_unit_request_gets_one_claim_with_its_quantity() {
    let mut bench = of_cap_three();
    buy(&mut bench, 1, "alice", "3");
    buy(&mut bench, 2, "bob", "1");
    bench.buy(3, "carol");
    bench.run(Reply::Granted);
    let quantities = [1, 2, 3].map(|stream| quantity_of(&bench, stream));
    assert_eq!(quantities, ["3", "1", "1"]);
}

#[test]
fn invalid_quantity_is_reported_and_excess_is_refused_locally() {
    let mut bench = of_cap_three();
    let wrong = [
        "",
        "0",
        "01",
        "-1",
        "+1",
        "1.0",
        "two",
        " 2",
        "4294967296",
        "99999999999999999999",
    ];
    for (stream, quantity) in (1..).zip(wrong) {
        buy(&mut bench, stream, "alice", quantity);
        let (status, body) = bench.answer(stream);
        assert_eq!(status, 400, "{quantity}");
        assert!(body.contains("invalid_quantity"), "{body}");
    }
    buy(&mut bench, 50, "alice", "4");
    let (status, body) = bench.answer(50);
    assert_eq!(
        (status, body.contains("cap_reached")),
        (409, true),
        "{body}"
    );
    bench.run(Reply::Granted);
    assert_eq!(bench.granted, 0);
}

/// Only Redis knows an attempt's grant, under any cap; the forwarded quantity stays small.
#[test]
fn keyed_attempt_over_the_cap_reaches_redis_for_its_grant() {
    let mut bench = of_cap_three();
    let asks = [
        ("x-user-id", "alice"),
        (headers::QUANTITY, "4000000000"),
        (headers::IDEMPOTENCY_KEY, "attempt-1"),
    ];
    bench.request(1, "POST", "/sales/s/orders", &asks);
    bench.run(Reply::Granted);
    assert_eq!(quantity_of(&bench, 1), "4");
}

fn with_cap(stocks: [i64; 2]) -> (Bench, String) {
    let (mut bench, user) = of_two_shards(stocks);
    bench.catalogue = bench.catalogue.replace("\"user_cap\":1", "\"user_cap\":9");
    bench.advance(300);
    (bench, user)
}

#[test]
fn units_of_several_shards_are_combined_for_a_multi_unit_buyer() {
    let (mut bench, user) = with_cap([1, 9]);
    buy(&mut bench, 1, &user, "3");
    bench.send();
    bench.answer_oldest(Reply::Empty);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    assert_eq!((bench.deposits, quantity_of(&bench, 1).as_str()), (1, "3"));
}

#[test]
fn insufficient_stock_is_reported_and_single_unit_still_sells() {
    let (mut bench, user) = with_cap([1, 1]);
    buy(&mut bench, 1, &user, "3");
    bench.send();
    bench.answer_oldest(Reply::Empty);
    bench.run(Reply::Empty);
    let (status, body) = bench.answer(1);
    assert_eq!((status, body.contains("too_few")), (409, true), "{body}");
    assert_eq!(bench.deposits, 0);
    assert_eq!(bench.counted("rebalances_total.outcome.too_few"), 1);
    buy(&mut bench, 2, &user, "1");
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
}
