//! Where links are found, and what happens while Redis is down.

use weir_link::record::Link;

use crate::host::{Host, link};

const TARGET: &str = "https://target.example/page";

#[test]
fn a_link_comes_from_redis_once_and_then_from_memory() {
    let mut host = Host::new();
    host.redis.records.insert("s/abc".into(), link(TARGET));
    let first = host.click("/abc");
    assert_eq!((host.status(first), host.engine.waiting()), (0, 1));
    host.run();
    assert_eq!(
        (host.location(first).as_str(), host.engine.waiting()),
        (TARGET, 0)
    );
    let second = host.click("/abc?x=1");
    assert_eq!(host.location(second), TARGET);
    assert_eq!(host.metric("found_total.place.redis"), 1);
    assert_eq!(host.metric("found_total.place.memory"), 1);
    assert_eq!(host.metric("answers_total.answer.redirect"), 2);
    assert!(host.calls.is_empty());
}

#[test]
fn until_domains_are_known_and_for_other_hosts_requests_go_on() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    let early = host.click("/abc");
    assert!(host.has_passed(early));
    host.redis.domains = crate::host::DOMAINS.to_owned();
    host.advance(300);
    let known = host.click("/abc");
    assert!(!host.has_passed(known));
    let other = host.request(
        "GET",
        "/abc",
        &[(":authority", "ignored: the first counts")],
    );
    assert!(!host.has_passed(other));
    host.run();
    assert_eq!((host.status(known), host.status(other)), (404, 404));
}

#[test]
fn what_an_answer_depends_on_is_kept_while_the_request_waits() {
    let mut host = Host::new();
    let passing = Link {
        pass_query: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/abc".into(), passing);
    let stream = host.click("/abc?a=b");
    host.run();
    assert_eq!(host.location(stream), format!("{TARGET}?a=b"));
    let post = host.request("POST", "/abc", &[]);
    assert_eq!(host.status(post), 405);
}

#[test]
fn while_redis_is_down_stale_links_are_answered_and_others_come_from_the_origin() {
    let config = r#"{"redis":{},"breaker":{"min_requests":2,"open_ms":60000}}"#;
    let mut host = Host::with(config);
    host.redis.records.insert("s/hot".into(), link(TARGET));
    host.cold
        .insert("s/cold".into(), link("https://cold.example/"));
    host.redis.tell_of("s/other");
    host.advance(300);
    host.click("/hot");
    host.run();
    // Redis has lost its stream, and whatever was told in it; then it is gone.
    host.redis.changes.clear();
    host.advance(300);
    host.is_connected = false;
    for _ in 0..3 {
        let hot = host.click("/hot");
        host.run();
        assert_eq!(host.location(hot), TARGET);
        let cold = host.click("/cold");
        host.run();
        assert_eq!(host.location(cold), "https://cold.example/");
        assert_eq!(host.header(cold, "x-origin").as_deref(), Some("1"));
    }
    assert_eq!(host.metric("found_total.place.stale"), 3);
    assert_eq!(host.metric("answers_total.answer.relayed"), 3);
    assert_eq!(host.metric("redis_breaker_total.state.open"), 1);
    // One of two reads has failed, so that no further one is tried.
    assert_eq!(host.metric("redis_failed_total"), 1);
}

#[test]
fn a_link_that_has_gone_is_not_answered_even_if_redis_is_down() {
    let mut host = Host::new();
    host.redis.records.insert("s/abc".into(), link(TARGET));
    host.redis.tell_of("s/other");
    host.advance(300);
    host.click("/abc");
    host.run();
    host.redis.records.clear();
    // Changes were missed, so that the link is read again.
    host.redis.changes.clear();
    host.advance(300);
    host.has_origin = false;
    let ask = |host: &mut Host| {
        let stream = host.click("/abc");
        host.run();
        host.status(stream)
    };
    assert_eq!(ask(&mut host), 503);
    host.is_connected = false;
    assert_eq!(ask(&mut host), 503);
}

#[test]
fn nothing_is_read_for_clients_that_have_gone() {
    let mut host = Host::new();
    let streams: Vec<_> = (0..3).map(|_| host.click("/abc")).collect();
    streams.iter().for_each(|stream| host.close(*stream));
    host.run();
    assert_eq!(host.metric("redis_requests_total"), 0);
    assert_eq!(host.metric("lookups_total"), 0);
}

#[test]
fn renewals_take_no_place_from_requests_that_wait() {
    let config = r#"{"redis":{"waiting_max":1,"batches_max":1},"cache":{"fresh_ms":1000}}"#;
    let mut host = Host::with(config);
    for code in ["s/hot", "s/warm"] {
        host.redis.records.insert(code.into(), link(TARGET));
        host.click(&format!("/{}", &code[2..]));
        host.run();
    }
    let reads = host.metric("redis_requests_total");
    // One read is under way, and one waits: there is no room.
    host.now_ms += 1_001;
    host.click("/one");
    host.tick();
    host.click("/two");
    for path in ["/hot", "/warm"] {
        let stream = host.click(path);
        assert_eq!(host.location(stream), TARGET);
    }
    host.run();
    assert_eq!(host.metric("redis_requests_total"), reads + 2);
}

#[test]
fn a_link_with_a_maximum_of_clicks_is_counted_by_redis_until_it_is_used_up() {
    let mut host = Host::new();
    let twice = Link {
        max_clicks: 2,
        ..link(TARGET)
    };
    host.redis.records.insert("s/two".into(), twice);
    let mut ask = |method: &str| {
        let stream = host.request(method, "/two", &[]);
        host.run();
        host.status(stream)
    };
    assert_eq!(
        ["HEAD", "GET", "HEAD", "GET", "GET", "GET"].map(&mut ask),
        [302, 302, 302, 302, 410, 410]
    );
    assert_eq!(host.metric("found_total.place.redis"), 5);
    assert_eq!(host.metric("found_total.place.memory"), 1);
}
