//! Links that are not in Redis: the origin is called once per link, within a rate limit.

use std::time::Duration;

use weir_host_test::{Reply, Stream, Thread, Upstream};
use weir_link::record::Link;

use super::support::{Gate, TARGET, found, header, link, location, status};

fn known_to_the_origin(gate: &Gate, code: &str) {
    let link = format!("s/{code}");
    gate.origin
        .borrow_mut()
        .links
        .insert(link, "https://cold.example/".into());
}

#[test]
fn origin_answer_is_returned_and_cached() {
    let gate = Gate::new();
    known_to_the_origin(&gate, "abc");
    let request = gate
        .request(0, "/abc?q=1")
        .header("user-agent", "Agent\u{ff}/1");
    let stream = request.header("cookie", "secret").send();
    gate.host.run_until_idle();
    assert_eq!(
        (status(&stream), location(&stream).as_str()),
        (302, "https://cold.example/")
    );
    assert_eq!(gate.location("/abc"), "https://cold.example/");
    let origin = gate.origin.borrow();
    let [requested] = &origin.requested[..] else {
        panic!("{:?}", origin.requested)
    };
    let reply = |name| requested.headers.text(name);
    assert_eq!(reply(":method"), Some("GET"));
    let path = reply(":path").unwrap();
    assert!(
        path.starts_with("/link-records/s/abc?for=click&click="),
        "{path}"
    );
    assert_eq!((reply("cookie"), reply("user-agent")), (None, None));
    assert_eq!(requested.timeout, Some(Duration::from_millis(500)));
}

#[test]
fn unknown_link_is_cached_for_a_limited_time() {
    let gate = Gate::new();
    let stream = gate.click("/abc").reply().unwrap();
    assert_eq!(
        (stream.status, stream.body_text().as_str()),
        (404, "<p>nothing of s")
    );
    assert_eq!(stream.header("x-weir-link"), None);
    for _ in 0..20 {
        assert_eq!(status(&gate.click("/abc")), 404);
    }
    assert_eq!((gate.lookups(), gate.found("memory_unknown")), (1, 20));
    gate.host.advance(Duration::from_secs(6));
    gate.click("/abc");
    assert_eq!(gate.lookups(), 2);
    // A link that is created under a custom code is reported, and available at once.
    gate.edit("s/abc", &link());
    gate.poll();
    assert_eq!(gate.location("/abc"), TARGET);
}

#[test]
fn concurrent_requests_for_a_cold_link_share_one_lookup() {
    let gate = Gate::new();
    gate.origin.borrow_mut().reply = Some(Reply::Hold);
    let streams: Vec<Stream> = (0..150).map(|_| gate.request(0, "/abc").send()).collect();
    gate.host.run_until_idle();
    assert!(streams.iter().all(Stream::is_paused));
    assert_eq!(gate.lookups(), 1);
    let lookup = gate.origin.borrow().requested[0].id;
    gate.host.answer(lookup, found(TARGET));
    gate.host.run_until_idle();
    assert!(streams.iter().all(|stream| location(stream) == TARGET));
    assert_eq!(gate.lookups(), 1);
}

#[test]
fn concurrent_requests_for_an_unknown_link_share_one_lookup() {
    let gate = Gate::new();
    let streams: Vec<Stream> = (0..150).map(|_| gate.request(0, "/abc").send()).collect();
    gate.host.run_until_idle();
    assert!(streams.iter().all(|stream| status(stream) == 404));
    assert_eq!(gate.lookups(), 1);
}

#[test]
fn random_codes_use_bounded_memory_and_bounded_origin_lookups() {
    let gate = Gate::with(
        r#"{ "redis": {}, "cache": { "unknown_max": 100 },
        "origin": { "limit": { "rate": 10, "per": "1s", "burst": 5 } } }"#,
    );
    gate.put("s/hot", &link());
    gate.click("/hot");
    let hot = gate.found("memory");
    let (mut unknown, mut refused) = (0, 0);
    for number in 0..5_000 {
        let stream = gate.click(&format!("/x{number:07}"));
        match status(&stream) {
            404 => unknown += 1,
            503 => {
                refused += 1;
                assert_eq!(header(&stream, "retry-after").unwrap(), "1");
            }
            other => panic!("{other}"),
        }
        stream.disconnect();
    }
    // No time has passed for the limit.
    assert_eq!((gate.lookups(), unknown, refused), (5, 5, 4_995));
    assert_eq!(gate.answered("overloaded"), 4_995);
    let pages = gate.memory_pages();
    for number in 0..20_000 {
        gate.host.advance(Duration::from_micros(100));
        gate.click(&format!("/y{number:07}")).disconnect();
    }
    assert!(gate.lookups() <= 5 + 5 + 21, "{}", gate.lookups());
    assert_eq!(gate.memory_pages(), pages, "memory is flat");
    assert_eq!(gate.location("/hot"), TARGET);
    assert_eq!(
        gate.found("memory"),
        hot + 1,
        "the hot link was not pushed out"
    );
    assert_eq!(gate.host.open_contexts(Thread::Worker(0)), 0);
}

#[test]
fn origin_failure_is_not_cached() {
    let gate = Gate::new();
    for reply in [
        Reply::status(500, "oops"),
        Reply::unreachable(),
        Reply::Fail,
    ] {
        gate.origin.borrow_mut().reply = Some(reply);
        let streams: Vec<Stream> = (0..2).map(|_| gate.request(0, "/abc").send()).collect();
        gate.host.run_until_idle();
        for stream in streams {
            assert_eq!(status(&stream), 503);
            assert_eq!(header(&stream, "retry-after").unwrap(), "1");
        }
    }
    assert_eq!(gate.metric("lookups_failed_total"), 3);
    gate.origin.borrow_mut().reply = Some(Reply::Hold);
    let slow = gate.request(0, "/abc").send();
    gate.host.advance(Duration::from_millis(500));
    assert_eq!(status(&slow), 503);
    gate.host.set_cluster("weir_origin", Upstream::unhealthy());
    assert_eq!(status(&gate.click("/abc")), 503);
    gate.host.remove_cluster("weir_origin");
    gate.host.advance(Duration::from_secs(1));
    assert_eq!(status(&gate.click("/abc")), 503);
    gate.put("s/abc", &link());
    assert_eq!(gate.location("/abc"), TARGET);
}

#[test]
fn disconnect_during_an_origin_lookup_affects_no_other_client() {
    let gate = Gate::new();
    gate.origin.borrow_mut().reply = Some(Reply::Hold);
    let streams: Vec<Stream> = (0..3).map(|_| gate.request(0, "/abc").send()).collect();
    gate.host.run_until_idle();
    streams[0].disconnect();
    streams[1].disconnect();
    let lookup = gate.origin.borrow().requested[0].id;
    gate.host.answer(lookup, found(TARGET));
    gate.host.run_until_idle();
    assert_eq!(location(&streams[2]), TARGET);
    // All of them leave before anything is sent.
    let removed: Vec<Stream> = (0..3).map(|_| gate.request(0, "/abd").send()).collect();
    removed.iter().for_each(Stream::disconnect);
    gate.host.run_until_idle();
    assert_eq!(gate.lookups(), 1);
    gate.host.assert_sound();
}

#[test]
fn origin_lookup_of_another_method_uses_no_click() {
    let gate = Gate::new();
    known_to_the_origin(&gate, "abc");
    let post = gate.request(0, "/abc").method("POST").send();
    let head = gate.request(1, "/abc").method("HEAD").send();
    gate.host.run_until_idle();
    assert_eq!((status(&post), status(&head)), (405, 302));
    let origin = gate.origin.borrow();
    let paths = origin
        .requested
        .iter()
        .map(|call| call.headers.text(":path"));
    assert!(paths.eq([Some("/link-records/s/abc?for=look"); 2]));
}

#[test]
fn unreadable_redis_record_is_looked_up_at_the_origin() {
    let gate = Gate::new();
    known_to_the_origin(&gate, "abc");
    let key = weir_link::redis::keys::LinkKeys::new("weir", &"s/abc".parse().unwrap()).record();
    for record in [
        &b"from a later version"[..],
        b"0 0 {}",
        b"0 0 {\"t\":\"a b\"}",
        b"\xff",
    ] {
        gate.redis::<()>(redis::cmd("SET").arg(&key).arg(record));
        gate.tell_of("s/abc");
        gate.poll();
        assert_eq!(gate.location("/abc"), "https://cold.example/");
    }
    assert_eq!(gate.metric("records_refused_total"), 4);
    gate.edit("s/abc", &Link::to(TARGET));
    gate.poll();
    assert_eq!(gate.location("/abc"), TARGET);
}
