//! Links that are not in Redis: the origin is asked, once for each.

use weir_engine::StreamId;
use weir_engine::pump::BATCH_MAX;

use crate::host::{Host, header, link};

const COLD: &str = "https://cold.example/";

/// Requests that wait for one look-up, the first of which it was sent for.
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
fn a_look_up_is_sent_as_the_client_would() {
    let mut host = Host::with(r#"{"redis":{},"origin":{"timeout_ms":500}}"#);
    let more = [
        ("user-agent", "Agent\u{ff}/1"),
        ("accept-language", "zh"),
        ("cookie", "secret"),
    ];
    host.request("POST", "/abc?q=1", &more);
    host.tick();
    let (&read, _) = host.calls.first_key_value().unwrap();
    host.reply(read);
    let fetch = &host.lookups.values().next().unwrap().fetch;
    assert_eq!((&*fetch.cluster, fetch.timeout_ms), ("weir_origin", 500));
    let headers: Vec<_> = fetch
        .headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            (":method", "GET"),
            (":path", "/l/abc?q=1"),
            (":authority", "s.example.com"),
            ("user-agent", "Agent??/1"),
            ("accept-language", "zh"),
            ("x-forwarded-for", "192.0.2.1"),
        ]
    );
    assert_eq!(header(fetch, "cookie"), None);
}

#[test]
fn what_is_unknown_is_remembered_for_a_while() {
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
fn many_requests_for_one_cold_link_are_one_look_up() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    let streams = crowd(&mut host, 150);
    host.run();
    assert!(streams.iter().all(|stream| host.location(*stream) == COLD));
    assert_eq!(host.header(streams[0], "x-origin").as_deref(), Some("1"));
    // The others ask Redis again.
    assert_eq!(host.header(streams[1], "x-origin"), None);
    assert_eq!(host.metric("lookups_total"), 1);
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn many_requests_for_one_unknown_link_are_answered_in_several_turns() {
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
fn followers_are_answered_though_the_client_of_the_look_up_has_gone() {
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
fn a_request_that_was_read_too_late_learns_of_the_look_up_of_another() {
    let mut host = Host::new();
    let first = host.click("/abc");
    host.tick();
    // So many are a batch of their own, beside the first.
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
fn clients_that_have_gone_leave_their_place_to_others() {
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
fn a_failed_look_up_answers_all_who_waited_and_is_not_remembered() {
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
fn a_follower_that_finds_nothing_in_redis_takes_a_look_up_of_its_own() {
    let mut host = Host::new();
    host.cold.insert("s/abc".into(), link(COLD));
    let streams = crowd(&mut host, 3);
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.respond(lookup);
    // Redis has lost it before the followers ask.
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
fn look_ups_that_cannot_be_sent_are_answered_in_turns() {
    let config = r#"{"redis":{},"origin":{"per_second":1000,"burst":1000}}"#;
    let mut host = Host::with(config);
    host.has_origin = false;
    let streams: Vec<_> = (0..200).map(|n| host.click(&format!("/code{n}"))).collect();
    host.run();
    assert!(streams.iter().all(|stream| host.status(*stream) == 503));
    assert_eq!(host.metric("lookups_failed_total"), 200);
}

#[test]
fn more_requests_than_may_wait_are_told_at_once() {
    let config = r#"{"redis":{"waiting_max":10,"batches_max":1},
        "origin":{"per_second":1,"burst":3,"waiting_max":2}}"#;
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
