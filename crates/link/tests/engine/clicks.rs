//! Clicks: each is counted exactly once, even if batches fail or are repeated.

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
fn clicks_from_redis_and_memory_share_one_batch() {
    let mut host = with_link(r#"{"redis":{}}"#);
    for method in ["GET", "HEAD", "GET", "HEAD", "GET"] {
        host.request(method, "/abc", &[("referer", "https://Page.example/x?y")]);
        host.run();
    }
    let removed = Link {
        is_disabled: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/gone".into(), removed);
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
fn client_address_can_be_read_from_a_header() {
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
    let observed: Vec<_> = rows
        .iter()
        .map(|row| (row.address.unwrap().to_string(), row.clicks))
        .collect();
    // Without a header entry, the connection's address is used.
    assert_eq!(observed, [("192.0.2.1".into(), 2), ("192.0.2.7".into(), 2)]);
}

#[test]
fn batch_with_lost_reply_is_resent_with_the_same_id() {
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
fn click_counting_is_optional() {
    let mut host = with_link(r#"{"redis":{},"clicks":{"enabled":false}}"#);
    let stream = host.click("/abc");
    host.run();
    assert_eq!(host.status(stream), 302);
    host.advance(1_000);
    assert!(host.redis.batches.is_empty());
    assert_eq!(host.metric("clicks_total.outcome.counted"), 0);
}

/// One link with this click limit; a batch of reads is in flight for a click on it.
fn with_maximum(max_clicks: u64) -> Host {
    with_maximum_and(r#"{"redis":{}}"#, max_clicks)
}

fn with_maximum_and(config: &str, max_clicks: u64) -> Host {
    let mut host = Host::with(config);
    let link = Link {
        max_clicks,
        ..link(TARGET)
    };
    host.redis.records.insert("s/max".into(), link.clone());
    host.cold.insert("s/max".into(), link);
    // The first batch needs a turn.
    host.click("/other");
    host.run();
    host
}

fn read_under_way(host: &Host) -> weir_engine::BatchId {
    let mut reads = host.calls.keys().filter(|batch| !host.is_poll(**batch));
    *reads.next().unwrap()
}

#[test]
fn click_with_late_reply_is_used_once_by_the_lookup() {
    let mut host = with_maximum(1);
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.run_call(read);
    host.lose(read);
    host.run();
    assert_eq!(host.location(stream), TARGET);
    let next = host.click("/max");
    host.run();
    assert_eq!(host.status(next), 410);
    assert_eq!(host.redis.used["s/max"], 1);
}

#[test]
fn click_executed_after_the_lookup_is_not_used_again() {
    let mut host = with_maximum(2);
    let stream = host.click("/max");
    let read = read_under_way(&host);
    // Redis stalls: the read times out here, and runs there later.
    host.lose_unrun(read);
    host.run();
    assert_eq!(host.location(stream), TARGET);
    host.run_late();
    assert_eq!(host.redis.used["s/max"], 1);
}

#[test]
fn click_without_a_redirect_is_returned() {
    let mut host = with_maximum(1);
    host.has_origin = false;
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.run_call(read);
    host.lose(read);
    host.run();
    assert_eq!((host.status(stream), host.redis.used["s/max"]), (503, 1));
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
    assert_eq!(host.metric("clicks_total.outcome.returned"), 1);
    let next = host.click("/max");
    host.run();
    assert_eq!(host.location(next), TARGET);
}

#[test]
fn click_return_is_retried_until_redis_confirms_it() {
    let mut host = with_maximum(1);
    host.has_origin = false;
    host.click("/max");
    let read = read_under_way(&host);
    host.run_call(read);
    host.lose(read);
    host.run();
    host.is_connected = false;
    for _ in 0..20 {
        host.advance(250);
    }
    host.is_connected = true;
    host.advance(250);
    assert_eq!(host.redis.used["s/max"], 0);
    host.advance(250);
    assert_eq!(host.metric("clicks_total.outcome.returned"), 1);
}

#[test]
fn click_of_a_disconnected_client_is_returned() {
    let mut host = with_maximum(1);
    let stream = host.click("/max");
    host.close(stream);
    host.run();
    assert_eq!(host.redis.used["s/max"], 1);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
    // Again during an origin lookup.
    host.redis.records.clear();
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.reply(read);
    host.close(stream);
    host.run();
    host.advance(100);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
}

#[test]
fn click_with_lost_reply_is_returned_when_client_left() {
    let mut host = with_maximum(1);
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.close(stream);
    host.run_call(read);
    host.lose(read);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
}

#[test]
fn click_with_lost_reply_is_returned_when_lookup_is_impossible() {
    let mut host = with_maximum_and(ONE_LOOK_UP, 1);
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.run_call(read);
    host.lose(read);
    assert_eq!((host.status(stream), host.redis.used["s/max"]), (503, 1));
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
}

/// The only lookup is the one that [`with_maximum_and`] makes.
const ONE_LOOK_UP: &str = r#"{"redis":{},"origin":{"limit":{"rate":1,"per":"1h","burst":1}}}"#;

/// A click was free again, and Redis used it for this request, but only the cache can answer: all clicks are used.
#[test]
fn click_with_lost_reply_is_returned_when_memory_refuses_it() {
    let mut host = with_maximum(1);
    host.redis.tell_of("s/another");
    host.advance(250);
    for status in [302, 410] {
        let stream = host.click("/max");
        host.run();
        assert_eq!(host.status(stream), status);
    }
    host.redis.used.clear();
    // Changes were missed: the cache must revalidate.
    host.redis.changes.clear();
    host.redis.tell_of("s/another");
    host.advance(250);
    let stream = host.click("/max");
    let read = read_under_way(&host);
    host.run_call(read);
    host.lose(read);
    assert_eq!((host.status(stream), host.redis.used["s/max"]), (410, 1));
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
}

/// Otherwise Redis would, after an outage, receive returns for all requests that it never got.
#[test]
fn click_never_sent_to_redis_is_not_returned() {
    for leaves in [false, true] {
        let mut host = with_maximum_and(ONE_LOOK_UP, 1);
        host.is_connected = false;
        let stream = host.click("/max");
        host.tick();
        if leaves {
            host.close(stream);
        }
        host.is_connected = true;
        host.run();
        assert_eq!(host.status(stream), if leaves { 0 } else { 503 });
        let requests = host.metric("redis_requests_total");
        host.advance(100);
        assert_eq!(host.metric("redis_requests_total"), requests, "{leaves}");
    }
}

/// The client has left when the answer arrives, and the engine has not been notified.
#[test]
fn click_with_undeliverable_answer_is_returned() {
    let mut host = with_maximum(1);
    let stream = host.click("/max");
    host.closed.insert(stream);
    host.run();
    assert_eq!(host.redis.used["s/max"], 1);
    host.close(stream);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
    assert_eq!(host.metric("clicks_total.outcome.returned"), 1);
    // From the origin, too.
    host.redis.records.clear();
    let stream = host.click("/max");
    host.closed.insert(stream);
    host.run();
    host.advance(100);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 0);
    // Statistics do not count them either: SQL derives the used clicks from the statistics.
    let stream = host.click("/max");
    host.run();
    assert_eq!(host.status(stream), 302);
    host.advance(1_000);
    assert_eq!(host.clicks(), 1);
}

/// Hosts report undeliverable answers right after the effects of the event that answered.
#[test]
fn click_with_delivered_answer_stays_used() {
    let mut host = with_maximum(1);
    let stream = host.click("/max");
    host.run();
    host.tick();
    host.undeliver(stream);
    host.advance(100);
    host.advance(100);
    assert_eq!(host.redis.used["s/max"], 1);
}

#[test]
fn click_available_again_is_found_soon() {
    let mut host = with_maximum(1);
    let used = host.click("/max");
    host.run();
    let refused = host.click("/max");
    host.run();
    assert_eq!((host.status(used), host.status(refused)), (302, 410));
    host.redis.used.clear();
    host.advance(1_000);
    host.click("/max");
    host.run();
    let stream = host.click("/max");
    host.run();
    assert_eq!(host.location(stream), TARGET);
}
