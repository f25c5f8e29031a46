//! Reports of decisions for operators.

use crate::bench::{Bench, Reply};

const WANTED: &str = r#", "report": true, "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
    "token": { "keys": [{ "secret": { "env": "T" } }], "min_age_ms": 1, "max_age_ms": 9 }"#;

fn reported_counts(bench: &mut Bench) -> Vec<(String, u64)> {
    bench.advance(2_000);
    bench.run(Reply::Granted);
    std::mem::take(&mut bench.reported).into_iter().collect()
}

fn expected(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    let counts = counts.iter();
    counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn check_out(bench: &mut Bench, stream: u32, sale: &str) {
    let path = format!("/sales/{sale}/checkout");
    bench.request(stream, "POST", &path, &[("x-user-id", "alice")]);
}

#[test]
fn verdict_counts_are_reported_for_each_existing_sale() {
    let mut bench = Bench::with(WANTED);
    assert_eq!(reported_counts(&mut bench), expected(&[]));
    for stream in 1..4 {
        bench.buy(stream, "alice");
    }
    bench.run(Reply::Granted);
    bench.request(10, "POST", "/sales/s/orders", &[]);
    bench.request(11, "POST", "/sales/none/orders", &[("x-user-id", "alice")]);
    check_out(&mut bench, 12, "s");
    check_out(&mut bench, 13, "none");
    assert_eq!(
        reported_counts(&mut bench),
        expected(&[
            ("decided | granted | s", 3),
            ("decided | invalid_user | s", 1),
            ("decided | token_minted | s", 1),
        ])
    );
    bench.catalogue = bench.catalogue.replace("\"open\"", "\"shadow\"");
    bench.advance(300);
    bench.buy(20, "bob");
    bench.run(Reply::CapReached);
    check_out(&mut bench, 21, "s");
    assert_eq!(
        reported_counts(&mut bench),
        expected(&[
            ("shadow | cap_reached | s", 1),
            ("shadow | token_minted | s", 1),
        ])
    );
}

#[test]
fn undelivered_counts_are_dropped_without_blocking() {
    let mut bench = Bench::with(WANTED);
    bench.buy(1, "alice");
    bench.run(Reply::CapReached);
    bench.is_down = true;
    bench.advance(2_000);
    bench.is_down = false;
    assert_eq!(reported_counts(&mut bench), expected(&[]));
    bench.buy(2, "alice");
    bench.run(Reply::CapReached);
    let again = reported_counts(&mut bench);
    assert_eq!(again, expected(&[("decided | cap_reached | s", 1)]));
}

#[test]
fn counts_are_reported_only_when_enabled() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.run(Reply::CapReached);
    assert_eq!(reported_counts(&mut bench), expected(&[]));
}
