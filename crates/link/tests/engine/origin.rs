//! Links that are not in Redis: the origin is called once per link.

use weir_engine::StreamId;
use weir_engine::pump::BATCH_MAX;

use weir_link::record::Link;

use crate::host::{Host, header, link};

const COLD: &str = "https://cold.example/";

/// Requests that wait for one lookup; the first one has started it.
fn crowd(host: &mut Host, count: usize) -> Vec<StreamId> {
    let streams = (0..count).map(|_| host.click("/abc")).collect();
    host.tick();
    while let Some((&batch, _)) = host.calls.first_key_value() {
        host.reply(batch);
        host.tick();
    }
    assert_eq!((host.lookups.len(), host.engine.waiting()), (1, count));
    streams
}

#[test]
fn origin_lookup_contains_the_link_and_purpose() {
    let mut host = Host::with(r#"{"redis":{},"origin":{"timeout_ms":500}}"#);
    let stream = |host: &mut Host, method: &str, path: &str| {
        host.request(method, path, &[("cookie", "secret")]);
        host.tick();
        let (&read, _) = host.calls.first_key_value().unwrap();
        host.reply(read);
        let fetch = host.lookups.values().next_back().unwrap().fetch.clone();
        assert_eq!((&*fetch.cluster, fetch.timeout_ms), ("weir_origin", 500));
        let headers = fetch.headers.iter();
        let headers: Vec<_> = headers.map(|(name, _)| *name).collect();
        assert_eq!(headers, [":method", ":path", ":authority"]);
        header(&fetch, ":path").unwrap().to_owned()
    };
    let head = stream(&mut host, "HEAD", "/abc?q=1");
    assert_eq!(head, "/link-records/s/abc?for=look");
    let post = stream(&mut host, "POST", "/abd");
    assert_eq!(post, "/link-records/s/abd?for=look");
    let first = stream(&mut host, "GET", "/abe");
    assert!(
        first.starts_with("/link-records/s/abe?for=click&click="),
        "{first}"
    );
    let second = stream(&mut host, "GET", "/abf");
    assert_ne!(
        first.split_once("click=").unwrap().1,
        second.split_once("click=").unwrap().1
    );
}

#[test]
fn refused_click_was_not_used_and_the_origin_answers() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    let stream = host.click("/abc");
    host.tick();
    let (&read, _) = host.calls.first_key_value().unwrap();
    let place = "script: 9282fe9cd1ad17b421df71a1d74837df7d50241a, on @user_script:1.";
    host.reply_with(read, format!("-READONLY no. {place}\r\n").as_bytes());
    host.run();
    assert_eq!(host.location(stream), COLD);
    assert_eq!(host.engine.unused(), 0, "nothing is to be given back");
    assert_eq!(host.metric("redis_refused_total.reason.readonly"), 1);
    let is_told = |line: &String| line.contains("Redis refuses \"link_read\"");
    assert!(host.log.iter().any(is_told), "{:?}", host.log);
}

#[test]
fn refusals_of_redis_open_the_breaker() {
    let mut host = Host::new();
    for number in 0..100 {
        host.click(&format!("/code-{number}"));
        host.tick();
        let reads: Vec<_> = host.calls.keys().copied().collect();
        for read in reads {
            host.reply_with(read, b"-READONLY no\r\n");
        }
    }
    assert_eq!(host.metric("redis_breaker_total.state.open"), 1);
}

#[test]
fn refused_poll_is_counted() {
    let mut host = Host::new();
    host.click("/abc");
    host.run();
    host.now_ms += 300;
    host.tick();
    let (&poll, _) = host.calls.first_key_value().unwrap();
    let replies = b"$0\r\n\r\n:0\r\n-NOPERM no permissions to run the 'xrange' command\r\n";
    host.reply_with(poll, replies);
    assert_eq!(host.metric("redis_refused_total.reason.noperm"), 1);
    assert_eq!(host.metric("polls_failed_total"), 1);
}

#[test]
fn unknown_link_is_cached_for_a_limited_time() {
    let mut host = Host::new();
    let first = host.click("/abc");
    host.run();
    let again = host.click("/abc");
    assert_eq!((host.status(first), host.status(again)), (404, 404));
    assert_eq!(host.answer(first).unwrap().body, b"<p>nothing of s");
    assert_eq!(host.metric("found_total.place.memory_unknown"), 1);
    host.advance(5_001);
    host.click("/abc");
    host.run();
    assert_eq!(host.metric("lookups_total"), 2);
}

#[test]
fn link_without_clicks_for_its_lifetime_has_ended() {
    let mut host = Host::new();
    let idle = Link {
        life_ms: 3_000,
        ..link(COLD)
    };
    let moved = Link {
        ended_target: "https://over.example/".into(),
        ..idle.clone()
    };
    host.ended = [("s/abc".into(), idle), ("s/moved".into(), moved)].into();
    for _ in 0..2 {
        let (removed, moved) = (host.click("/abc"), host.click("/moved"));
        host.run();
        assert_eq!((host.status(removed), host.status(moved)), (410, 302));
        assert_eq!(host.location(moved), "https://over.example/");
    }
    // It is cached like an unknown code, so that not every click reaches the origin.
    assert_eq!(host.metric("lookups_total"), 2);
    assert_eq!(host.metric("answers_total.answer.gone"), 4);
    host.advance(5_001);
    host.click("/abc");
    host.run();
    assert_eq!(host.metric("lookups_total"), 3);
    // An edit revives it.
    host.redis.edit("s/abc", link(COLD));
    host.advance(250);
    let alive = host.click("/abc");
    host.run();
    assert_eq!(host.location(alive), COLD);
}

#[test]
fn many_requests_for_one_cold_link_share_one_lookup() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    let streams = crowd(&mut host, 150);
    host.run();
    assert!(streams.iter().all(|stream| host.location(*stream) == COLD));
    // The others get the result of the first lookup.
    assert_eq!(host.metric("lookups_total"), 1);
    assert_eq!(host.metric("found_total.place.memory"), 149);
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn requests_for_one_unknown_link_are_answered_in_batches() {
    let mut host = Host::new();
    let streams = crowd(&mut host, 2 * BATCH_MAX + 1);
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.respond(lookup);
    let answered = |host: &Host| {
        streams
            .iter()
            .filter(|one| host.status(**one) == 404)
            .count()
    };
    let counts = std::array::from_fn(|_| {
        host.tick();
        answered(&host)
    });
    assert_eq!(counts, [BATCH_MAX, 2 * BATCH_MAX, 2 * BATCH_MAX + 1]);
}

#[test]
fn followers_are_answered_after_lookup_client_leaves() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    let streams = crowd(&mut host, 3);
    host.close(streams[0]);
    host.close(streams[1]);
    assert_eq!(host.engine.waiting(), 1);
    host.run();
    assert_eq!(host.location(streams[2]), COLD);
    assert_eq!(host.metric("lookups_total"), 1);
}

#[test]
fn late_request_shares_the_result_of_an_earlier_lookup() {
    let mut host = Host::new();
    let first = host.click("/abc");
    host.tick();
    // These fill a batch of their own, next to the first.
    let others: Vec<_> = (0..4).map(|_| host.click("/abc")).collect();
    host.tick();
    let late = *host.calls.last_key_value().unwrap().0;
    host.run_call(late);
    while host.calls.len() > 1 {
        let (&batch, _) = host.calls.first_key_value().unwrap();
        host.reply(batch);
    }
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.respond(lookup);
    host.tick();
    assert_eq!((host.status(first), host.engine.waiting()), (404, 4));
    host.reply(late);
    assert!(others.iter().all(|stream| host.status(*stream) == 404));
    assert_eq!(host.metric("lookups_total"), 1);
}

#[test]
fn disconnected_clients_free_their_waiting_slots() {
    let config = r#"{"redis":{},"origin":{"waiting_max":3}}"#;
    let mut host = Host::with(config);
    let streams = crowd(&mut host, 3);
    let cold = |host: &mut Host| {
        let stream = host.click("/other");
        host.tick();
        while let Some((&batch, _)) = host.calls.first_key_value() {
            host.reply(batch);
        }
        host.status(stream)
    };
    assert_eq!(cold(&mut host), 503, "too many wait");
    host.close(streams[1]);
    assert_eq!(cold(&mut host), 0, "it waits");
}

#[test]
fn failed_lookup_answers_all_waiters_and_is_not_cached() {
    let mut host = Host::new();
    let streams = crowd(&mut host, 3);
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.fail(lookup);
    host.run();
    for stream in streams {
        assert_eq!(host.status(stream), 503);
        assert_eq!(host.header(stream, "retry-after").as_deref(), Some("1"));
    }
    host.cold.insert("s/abc".into(), link(COLD));
    let next = host.click("/abc");
    host.run();
    assert_eq!(host.location(next), COLD);
    assert_eq!(host.metric("lookups_failed_total"), 1);
}

#[test]
fn silent_origin_opens_breaker_and_unknown_link_does_not() {
    for (has_origin, opened) in [(true, 0), (false, 1)] {
        let mut host = Host::new();
        host.has_origin = has_origin;
        for number in 0..5 {
            host.click(&format!("/code{number}"));
            host.run();
        }
        assert_eq!(host.metric("lookups_total"), 5);
        let state = "origin_breaker_total.state.open";
        assert_eq!(host.metric(state), opened, "{has_origin}");
    }
}

#[test]
fn follower_without_redis_entry_starts_its_own_lookup() {
    // The cache is off.
    let mut host = Host::with(r#"{"redis":{},"cache":{"entries_max":0}}"#);
    host.cold.insert("s/abc".into(), link(COLD));
    let streams = crowd(&mut host, 3);
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.respond(lookup);
    // Redis loses it before the followers read it.
    host.redis.records.clear();
    host.tick();
    while let Some((&batch, _)) = host.calls.first_key_value() {
        host.reply(batch);
        host.tick();
    }
    assert_eq!(host.lookups.len(), 2);
    host.run();
    assert!(streams.iter().all(|stream| host.location(*stream) == COLD));
}

#[test]
fn unsendable_lookups_are_all_answered_with_503() {
    let config = r#"{"redis":{},"origin":{"limit":{"rate":1000,"per":"1s","burst":1000}}}"#;
    let mut host = Host::with(config);
    host.has_origin = false;
    let streams: Vec<_> = (0..200).map(|n| host.click(&format!("/code{n}"))).collect();
    host.run();
    assert!(streams.iter().all(|stream| host.status(*stream) == 503));
    assert_eq!(host.metric("lookups_failed_total"), 200);
}

#[test]
fn requests_beyond_the_waiting_limit_are_refused_at_once() {
    let config = r#"{"redis":{"waiting_max":10,"batches_max":1},
        "origin":{"limit":{"rate":1,"per":"1s","burst":3},"waiting_max":2}}"#;
    let mut host = Host::with(config);
    let streams: Vec<_> = (0..20).map(|n| host.click(&format!("/code{n}"))).collect();
    let refused = streams
        .iter()
        .filter(|stream| host.status(**stream) == 503)
        .count();
    assert_eq!((refused, host.engine.waiting()), (8, 12));
    assert_eq!(host.metric("answers_total.answer.overloaded"), 8);
    streams.iter().for_each(|stream| host.close(*stream));
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn origin_answers_are_cached_while_redis_is_down() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    host.is_connected = false;
    let first = host.click("/abc");
    host.run();
    assert_eq!(host.location(first), COLD);
    for _ in 0..1_000 {
        let stream = host.click("/abc");
        assert_eq!(host.location(stream), COLD, "at once");
    }
    assert_eq!(host.metric("lookups_total"), 1);
    // The origin is called again after a while, in the background: an edit arrives although polls report none.
    host.cold
        .insert("s/abc".into(), link("https://edited.example/"));
    host.redis.records.clear();
    host.advance(10_000);
    let before = host.click("/abc");
    assert_eq!(host.location(before), COLD);
    host.run();
    let after = host.click("/abc");
    assert_eq!(host.location(after), "https://edited.example/");
    assert_eq!(host.metric("lookups_total"), 2);
}

#[test]
fn five_thousand_cached_links_are_answered_after_redis_loss() {
    let config = r#"{"redis":{},"origin":{"limit":{"rate":100,"per":"1s","burst":200}}}"#;
    let mut host = Host::with(config);
    let codes: Vec<String> = (0..5_000).map(|n| format!("code{n}")).collect();
    for code in &codes {
        let id = format!("s/{code}");
        host.redis.records.insert(id.clone(), link(COLD));
        host.cold.insert(id, link(COLD));
    }
    let all = |host: &mut Host| {
        for code in &codes {
            let stream = host.click(&format!("/{code}"));
            host.run();
            assert_eq!(host.location(stream), COLD, "{code}");
            host.close(stream);
        }
    };
    host.redis.tell_of("s/another");
    host.advance(250);
    all(&mut host);
    host.redis.flush();
    host.advance(250);
    assert_eq!(host.metric("changes_missed_total"), 2);
    all(&mut host);
    // The rate limit bounds the lookups.
    let lookups = host.metric("lookups_total");
    assert!((100..=300).contains(&lookups), "{lookups}");
    assert_eq!(host.metric("answers_total.answer.overloaded"), 0);
    // They also stay while the origin is down.
    host.redis.flush();
    host.redis.tell_of("s/another");
    host.advance(250);
    host.has_origin = false;
    all(&mut host);
}

#[test]
fn link_deleted_at_origin_is_dropped_after_redis_loss() {
    let mut host = Host::new();
    host.redis.records.insert("s/abc".into(), link(COLD));
    host.redis.tell_of("s/another");
    host.advance(250);
    host.click("/abc");
    host.run();
    // Redis has lost the link and the deletion.
    host.redis.flush();
    host.advance(250);
    let stream = host.click("/abc");
    host.run();
    assert_eq!(host.status(stream), 404);
    let again = host.click("/abc");
    assert_eq!(host.status(again), 404);
}

#[test]
fn unconfirmable_cached_link_is_served_at_once_for_a_while() {
    let mut host = Host::new();
    host.redis.records.insert("s/abc".into(), link(COLD));
    host.redis.tell_of("s/another");
    host.advance(250);
    host.click("/abc");
    host.run();
    host.redis.flush();
    host.advance(250);
    host.has_origin = false;
    let first = host.click("/abc");
    assert_eq!(host.status(first), 0, "it may have been edited");
    host.run();
    let next = host.click("/abc");
    assert_eq!([first, next].map(|stream| host.location(stream)), [COLD; 2]);
}

#[test]
fn link_lost_by_redis_is_looked_up_in_background() {
    let mut host = Host::with(r#"{"redis":{},"cache":{"fresh_ms":1000}}"#);
    host.redis.records.insert("s/abc".into(), link(COLD));
    host.click("/abc");
    host.run();
    host.redis.records.clear();
    host.advance(1_000);
    // The origin does not answer: the link stays cached.
    host.has_origin = false;
    for _ in 0..3 {
        let stream = host.click("/abc");
        assert_eq!(host.location(stream), COLD);
        host.run();
        host.advance(1_000);
    }
    host.has_origin = true;
    host.advance(1_000);
    let stream = host.click("/abc");
    assert_eq!(host.location(stream), COLD);
    host.run();
    let removed = host.click("/abc");
    assert_eq!(host.status(removed), 404);
}
