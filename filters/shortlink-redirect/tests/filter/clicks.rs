//! Clicks are counted here and sent in batches, each once.

use std::time::Duration;

use redis::cmd;
use weir_host_test::{Call, Reply, Upstream};
use weir_link::agent::{Browser, Device, Os};
use weir_link::record::Link;
use weir_link::redis::keys::link_clicks;

use super::support::{Gate, link, status};

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0";

fn flush(gate: &Gate) {
    gate.host.advance(Duration::from_millis(1_100));
}

#[test]
fn click_record_contains_the_visitor_data() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    for address in ["192.0.2.7:1", "192.0.2.7:2", "[2001:db8::1]:3"] {
        let request = gate
            .request(0, "/abc")
            .property(&["source", "address"], address);
        let request = request
            .header("user-agent", FIREFOX)
            .header("accept-language", "zh-CN,en;q=0.5");
        request.header("referer", "https://Page.example/x?y").send();
        gate.host.run_until_idle();
    }
    flush(&gate);
    let batches = gate.batches();
    let [(_, rows)] = &batches[..] else {
        panic!("{batches:?}")
    };
    let mut observed: Vec<_> = rows
        .iter()
        .map(|row| (row.address.unwrap().to_string(), row.clicks))
        .collect();
    observed.sort();
    assert_eq!(
        observed,
        [("192.0.2.7".into(), 2), ("2001:db8::1".into(), 1)]
    );
    let row = &rows[0];
    assert_eq!(
        (row.agent.device, row.agent.os, row.agent.browser),
        (Device::Desktop, Os::Linux, Browser::Firefox)
    );
    assert_eq!(
        (row.referrer.as_str(), row.language.as_str()),
        ("page.example", "zh-CN")
    );
    assert_eq!(row.link, "s/abc".parse().unwrap());
    assert_eq!(gate.metric("clicks_total.outcome.sent"), 3);
}

#[test]
fn client_address_is_read_from_the_proxy_chain() {
    let gate = Gate::with(r#"{ "redis": {}, "clicks": { "trusted_hops": 1 } }"#);
    gate.put("s/abc", &link());
    for chain in ["6.6.6.6, 192.0.2.7, 10.0.0.1", "10.0.0.1", ", 10.0.0.1"] {
        let request = gate.request(0, "/abc").header("x-forwarded-for", chain);
        request
            .property(&["source", "address"], "192.0.2.9:1")
            .send();
        gate.host.run_until_idle();
    }
    flush(&gate);
    let (_, rows) = &gate.batches()[0];
    let mut observed: Vec<_> = rows
        .iter()
        .map(|row| (row.address.unwrap().to_string(), row.clicks))
        .collect();
    observed.sort();
    // Without an entry in the chain, the connection's address is used.
    assert_eq!(observed, [("192.0.2.7".into(), 1), ("192.0.2.9".into(), 2)]);
}

#[test]
fn failed_lookups_and_head_requests_are_not_counted_as_clicks() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    gate.put(
        "s/gone",
        &Link {
            is_disabled: true,
            ..link()
        },
    );
    gate.click("/gone");
    gate.click("/unknown");
    gate.request(0, "/abc").method("HEAD").send();
    gate.host.run_until_idle();
    flush(&gate);
    assert_eq!(gate.batches(), []);
    gate.click("/abc");
    flush(&gate);
    assert_eq!(gate.clicks(), 1);
}

#[test]
fn two_workers_send_separate_batches_without_lost_clicks() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    for number in 0..1_000 {
        gate.request(number % 2, "/abc").send();
        gate.host.run_until_idle();
    }
    flush(&gate);
    let batches = gate.batches();
    assert_eq!(batches.len(), 2);
    assert_ne!(batches[0].0.counter, batches[1].0.counter);
    assert_eq!(gate.clicks(), 1_000);
}

#[test]
fn batch_without_a_reply_is_resent_with_the_same_id() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    gate.click("/abc");
    flush(&gate);
    gate.click("/abc");
    gate.click("/abc");
    // The batch arrives, and the reply is lost.
    let stream_key = String::from_utf8(link_clicks("weir")).unwrap();
    gate.set_redis(false);
    let is_batch = |call: &Call| call.body_text().contains(&stream_key);
    let sent = (0..30).find_map(|_| {
        gate.host.advance(Duration::from_millis(50));
        gate.host.calls().into_iter().find(is_batch)
    });
    let sent = sent.expect("a batch is under way");
    gate.replay(&sent.body);
    gate.host.answer(sent.id, Reply::unreachable());
    gate.host.run_until_idle();
    gate.set_redis(true);
    flush(&gate);
    flush(&gate);
    let batches = gate.batches();
    assert_eq!(batches.len(), 3, "it stands there twice");
    assert_eq!(batches[1], batches[2]);
    assert_eq!(gate.clicks(), 3);
    assert_eq!(gate.metric("clicks_total.outcome.sent"), 3);
}

#[test]
fn redis_outage_queues_clicks_up_to_a_limit() {
    let gate = Gate::with(r#"{ "redis": {}, "clicks": { "flush_ms": 1000, "batches_max": 3 } }"#);
    gate.put("s/abc", &link());
    gate.click("/abc");
    flush(&gate);
    gate.host.set_cluster("weir_redis", Upstream::unhealthy());
    for _ in 0..10 {
        gate.click("/abc");
        gate.host.advance(Duration::from_millis(1_000));
    }
    gate.set_redis(true);
    gate.host.advance(Duration::from_secs(3));
    let dropped = gate.metric("clicks_total.outcome.dropped");
    assert!((5..=7).contains(&dropped), "{dropped}");
    assert_eq!(
        gate.clicks() + dropped,
        11,
        "what was not dropped has arrived"
    );
    assert_eq!(gate.metric("clicks_total.outcome.counted"), 11);
}

#[test]
fn click_counting_is_optional() {
    let gate = Gate::with(r#"{ "redis": {}, "clicks": { "enabled": false } }"#);
    gate.put("s/abc", &link());
    assert_eq!(status(&gate.click("/abc")), 302);
    flush(&gate);
    let exists: bool = gate.redis(cmd("EXISTS").arg(link_clicks("weir")));
    assert!(!exists);
}
