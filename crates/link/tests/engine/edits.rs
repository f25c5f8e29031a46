//! Edits reported by polls.

use crate::host::{Host, link};

#[test]
fn edit_is_visible_after_the_next_poll() {
    let mut host = Host::new();
    host.redis
        .records
        .insert("s/abc".into(), link("https://one.example/"));
    host.click("/abc");
    host.run();
    host.redis.edit("s/abc", link("https://two.example/"));
    let before = host.click("/abc");
    assert_eq!(host.location(before), "https://one.example/");
    host.advance(250);
    let after = host.click("/abc");
    host.run();
    assert_eq!(host.location(after), "https://two.example/");
    assert_eq!(host.metric("changes_total"), 1);
}

#[test]
fn link_read_before_an_edit_is_not_cached_after_it() {
    let mut host = Host::new();
    host.redis
        .records
        .insert("s/abc".into(), link("https://one.example/"));
    host.click("/other");
    host.run();
    let stream = host.click("/abc");
    let (&read, _) = host.calls.first_key_value().unwrap();
    host.run_call(read);
    host.redis.edit("s/abc", link("https://two.example/"));
    // The poll overtakes the read's reply.
    host.now_ms += 250;
    host.tick();
    let poll = *host
        .calls
        .keys()
        .find(|batch| host.is_poll(**batch))
        .unwrap();
    host.reply(poll);
    assert_eq!(host.metric("changes_total"), 1);
    host.reply(read);
    assert_eq!(
        host.location(stream),
        "https://one.example/",
        "it came before the edit"
    );
    let next = host.click("/abc");
    host.run();
    assert_eq!(host.location(next), "https://two.example/");
}

#[test]
fn origin_miss_from_before_an_edit_is_not_cached() {
    let mut host = Host::new();
    let stream = host.click("/abc");
    host.tick();
    let (&read, _) = host.calls.first_key_value().unwrap();
    host.reply(read);
    let (&lookup, _) = host.lookups.first_key_value().unwrap();
    host.run_lookup(lookup);
    host.redis.edit("s/abc", link("https://new.example/"));
    host.now_ms += 250;
    host.tick();
    let poll = *host
        .calls
        .keys()
        .find(|batch| host.is_poll(**batch))
        .unwrap();
    host.reply(poll);
    host.respond(lookup);
    host.run();
    assert_eq!(host.status(stream), 404, "it came before the edit");
    let next = host.click("/abc");
    host.run();
    assert_eq!(host.location(next), "https://new.example/");
}

#[test]
fn polls_back_off_until_redis_answers_and_log_once() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.is_connected = false;
    host.advance(50);
    assert!(host.log.is_empty(), "nobody needs domains yet");
    host.click("/abc");
    for _ in 0..100 {
        host.advance(50);
    }
    assert_eq!(host.log.len(), 1, "{:?}", host.log);
    let failed = host.metric("polls_failed_total");
    assert!((20..30).contains(&failed), "{failed}");
    host.is_connected = true;
    host.redis.domains = crate::host::DOMAINS.to_owned();
    host.advance(300);
    assert_eq!(host.log.len(), 3, "{:?}", host.log);
    host.redis.domains = r#"{"version":2,"domains":[{"id":"s","hosts":["S"]}]}"#.into();
    host.advance(300);
    assert!(
        host.log[3].contains("domains[0].hosts[0]"),
        "{:?}",
        host.log
    );
    let stream = host.click("/abc");
    host.run();
    assert_eq!(host.status(stream), 404, "the last domains stay");
}
