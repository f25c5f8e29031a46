//! Clicks: each is counted exactly once, whatever becomes of batches.

use weir_link::click::decode;
use weir_link::record::Link;

use crate::host::{Host, link};

const TARGET: &str = "https://target.example/";

fn with_link(config: &str) -> Host {
    let mut host = Host::with(config);
    host.redis.records.insert("s/abc".into(), link(TARGET));
    host
}

#[test]
fn clicks_from_redis_and_from_memory_are_rows_of_one_batch() {
    let mut host = with_link(r#"{"redis":{}}"#);
    for method in ["GET", "HEAD", "GET", "HEAD", "GET"] {
        host.request(method, "/abc", &[("referer", "https://Page.example/x?y")]);
        host.run();
    }
    let gone = Link {
        is_disabled: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/gone".into(), gone);
    host.click("/gone");
    host.click("/unknown");
    host.run();
    host.advance(1_000);
    let [(_, payload)] = &host.redis.batches[..] else {
        panic!("{:?}", host.redis.batches)
    };
    let rows = decode(payload).unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.clicks, row.referrer.as_str()), (3, "page.example"));
    assert_eq!(row.address, Some([192, 0, 2, 1].into()));
    assert_eq!(host.metric("clicks_total.outcome.counted"), 3);
    assert_eq!(host.metric("clicks_total.outcome.sent"), 3);
}

#[test]
fn the_address_may_be_that_of_the_header() {
    let mut host = with_link(r#"{"redis":{},"clicks":{"trusted_hops":1}}"#);
    for chain in ["192.0.2.7, 10.0.0.1", "10.0.0.1"] {
        for _ in 0..2 {
            host.request("GET", "/abc", &[("x-forwarded-for", chain)]);
            host.run();
        }
    }
    host.advance(1_000);
    let mut rows = decode(&host.redis.batches[0].1).unwrap();
    rows.sort_by_key(|row| row.address);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.address.unwrap().to_string(), row.clicks))
        .collect();
    // Where the header has none, it is the connection's.
    assert_eq!(seen, [("192.0.2.1".into(), 2), ("192.0.2.7".into(), 2)]);
}

#[test]
fn a_batch_whose_reply_is_lost_is_sent_again_by_its_name() {
    let mut host = with_link(r#"{"redis":{}}"#);
    host.click("/abc");
    host.run();
    host.now_ms += 1_000;
    host.tick();
    host.tick();
    let batch = *host
        .calls
        .keys()
        .find(|batch| !host.is_poll(**batch))
        .unwrap();
    host.run_call(batch);
    host.lose(batch);
    host.click("/abc");
    host.advance(1_000);
    host.advance(1_000);
    let ids: Vec<_> = host
        .redis
        .batches
        .iter()
        .map(|(id, _)| id.as_str())
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
    assert_eq!(host.clicks(), 2);
    assert_eq!(host.metric("clicks_total.outcome.sent"), 2);
}

#[test]
fn clicks_may_be_left_uncounted() {
    let mut host = with_link(r#"{"redis":{},"clicks":{"enabled":false}}"#);
    let stream = host.click("/abc");
    host.run();
    assert_eq!(host.status(stream), 302);
    host.advance(1_000);
    assert!(host.redis.batches.is_empty());
    assert_eq!(host.metric("clicks_total.outcome.counted"), 0);
}
