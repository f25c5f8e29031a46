//! Where links are found, and what happens during a Redis outage.

use std::collections::BTreeSet;

use weir_base::key::{KeyRing, SigningKey};
use weir_engine::Engine;
use weir_link::click_tag::ClickTag;
use weir_link::record::{Link, PasswordGuard, RedirectStatus};

use crate::host::{Host, link};

const TARGET: &str = "https://target.example/page";

/// Ticks poll, send batches of clicks, and check deadlines.
#[test]
fn tick_interval_is_the_shortest_due_interval() {
    let tick_ms = |poll_ms: u64, flush_ms: u64, deadline_ms: u64| {
        let mut host = Host::with(&format!(
            r#"{{"redis":{{"deadline_ms":{deadline_ms}}},"poll_interval_ms":{poll_ms},
            "clicks":{{"flush_ms":{flush_ms}}}}}"#
        ));
        let before = host.engine.tick_ms();
        host.click("/abc");
        (before, host.engine.tick_ms())
    };
    let longest = 60_000;
    assert_eq!(tick_ms(400, longest, longest), (Some(400), Some(400)));
    assert_eq!(tick_ms(400, 100, longest), (Some(400), Some(100)));
    assert_eq!(tick_ms(400, longest, 80), (Some(400), Some(20)));
}

#[test]
fn link_is_read_from_redis_once_and_then_from_memory() {
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
fn requests_pass_through_until_their_domain_is_loaded() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.advance(0);
    let early = host.click("/abc");
    assert!(
        host.has_passed(early),
        "Redis has answered: there is nothing"
    );
    host.redis.domains = crate::host::DOMAINS.to_owned();
    host.advance(300);
    let stream = host.click("/abc");
    assert!(!host.has_passed(stream));
    let other = host.request(
        "GET",
        "/abc",
        &[(":authority", "ignored: the first counts")],
    );
    assert!(!host.has_passed(other));
    host.run();
    assert_eq!((host.status(stream), host.status(other)), (404, 404));
}

/// A worker that has just started: its first click must not get another service's 404.
#[test]
fn requests_before_the_first_poll_wait_for_it() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.redis.records.insert("s/abc".into(), link(TARGET));
    host.redis.domains = crate::host::DOMAINS.to_owned();
    let streams: Vec<_> = (0..200).map(|_| host.click("/abc")).collect();
    let page = host.click("/nothing");
    let remaining = host.click("/abc");
    let other = host.request_to("shop.example", "/abc");
    host.close(remaining);
    assert_eq!(host.engine.waiting(), 202);
    assert!(!host.has_passed(other));
    host.advance(0);
    for stream in streams {
        assert_eq!(host.location(stream), TARGET);
    }
    assert_eq!((host.status(page), host.status(remaining)), (404, 0));
    assert!(host.has_passed(other));
    assert_eq!(host.engine.waiting(), 0);
}

/// Other services behind the listener must not wait long without Redis.
#[test]
fn requests_without_redis_wait_one_second_only_at_startup() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.is_connected = false;
    let early = host.click("/abc");
    host.advance(999);
    assert!(!host.has_passed(early));
    let later = host.click("/abc");
    host.advance(1);
    assert!(host.has_passed(early) && host.has_passed(later));
    let last = host.click("/abc");
    assert!(host.has_passed(last));
    assert_eq!(host.engine.waiting(), 0);
}

#[test]
fn held_requests_are_bounded_by_memory() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    let long = format!("/{}", "a".repeat(1_024));
    let long = host.click(&long);
    assert!(host.has_passed(long), "no link is that long");
    let streams: Vec<_> = (0..1_025).map(|_| host.click("/abc")).collect();
    let passed = streams.iter().filter(|stream| host.has_passed(**stream));
    assert_eq!(passed.count(), 1);
    assert_eq!(host.engine.waiting(), 1_024);
    host.advance(0);
    assert!(streams.iter().all(|stream| host.has_passed(*stream)));
}

#[test]
fn waiting_request_keeps_the_inputs_of_its_answer() {
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
fn stale_links_are_served_and_others_ask_origin_without_redis() {
    let config = r#"{"redis":{},"breaker":{"min_requests":2,"open_ms":60000}}"#;
    let mut host = Host::with(config);
    host.redis.records.insert("s/hot".into(), link(TARGET));
    host.cold
        .insert("s/cold".into(), link("https://cold.example/"));
    host.redis.tell_of("s/other");
    host.advance(300);
    host.click("/hot");
    host.run();
    // Redis has lost its stream with all changes; then it is down.
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
    }
    assert_eq!(host.metric("found_total.place.stale"), 3);
    assert_eq!(host.metric("found_total.place.origin"), 1);
    assert_eq!(host.metric("found_total.place.memory"), 2);
    assert_eq!(host.metric("redis_breaker_total.state.open"), 1);
    // One of two reads has failed, so the breaker allows no further one.
    assert_eq!(host.metric("redis_failed_total"), 1);
}

#[test]
fn link_lost_by_redis_is_served_while_removal_is_unconfirmed() {
    let mut host = Host::new();
    host.redis.records.insert("s/abc".into(), link(TARGET));
    host.redis.tell_of("s/other");
    host.advance(300);
    host.click("/abc");
    host.run();
    host.redis.records.clear();
    // Changes were missed, so the link is read again.
    host.redis.changes.clear();
    host.advance(300);
    host.has_origin = false;
    let ask = |host: &mut Host| {
        let stream = host.click("/abc");
        host.run();
        host.status(stream)
    };
    assert_eq!(ask(&mut host), 302);
    host.is_connected = false;
    assert_eq!(ask(&mut host), 302);
    // A link that was never cached is different.
    let stream = host.click("/abd");
    host.run();
    assert_eq!(host.status(stream), 503);
    (host.is_connected, host.has_origin) = (true, true);
    host.advance(60_000);
    ask(&mut host);
    assert_eq!(ask(&mut host), 404, "the origin says so");
}

#[test]
fn disconnected_clients_cause_no_redis_reads() {
    let mut host = Host::new();
    let streams: Vec<_> = (0..3).map(|_| host.click("/abc")).collect();
    streams.iter().for_each(|stream| host.close(*stream));
    host.run();
    assert_eq!(host.metric("redis_requests_total"), 0);
    assert_eq!(host.metric("lookups_total"), 0);
}

#[test]
fn cache_refreshes_take_no_queue_slots_of_waiting_requests() {
    let config = r#"{"redis":{"waiting_max":1,"batches_max":1},"cache":{"fresh_ms":1000}}"#;
    let mut host = Host::with(config);
    for code in ["s/hot", "s/warm"] {
        host.redis.records.insert(code.into(), link(TARGET));
        host.click(&format!("/{}", &code[2..]));
        host.run();
    }
    let reads = host.metric("redis_requests_total");
    // One read is in flight, and one waits: the queue is full.
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
fn click_limit_is_counted_by_redis_until_used_up() {
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

#[test]
fn permanent_redirect_is_cached_only_until_the_link_expires() {
    let mut host = Host::new();
    let status = RedirectStatus::MovedPermanently;
    let permanent = Link {
        status,
        ..link(TARGET)
    };
    host.redis.records.insert("s/abc".into(), permanent);
    host.redis.left_ms = Some(10_000);
    // From Redis, and then from memory.
    for seconds in [10, 6] {
        let stream = host.click("/abc");
        host.run();
        let cache = host.header(stream, "cache-control").unwrap();
        assert_eq!(cache, format!("public, max-age={seconds}"));
        host.advance(4_000);
    }
    assert_eq!(host.metric("found_total.place.memory"), 1);
}

#[test]
fn only_clicks_extend_the_expiry_of_a_link() {
    let mut host = Host::with(r#"{"redis":{},"cache":{"fresh_ms":1000}}"#);
    host.redis.records.insert("s/abc".into(), link(TARGET));
    let bot = ("user-agent", "Googlebot/2.1");
    let prefetch = ("sec-purpose", "prefetch");
    let looks: [(&str, &[(&str, &str)]); 4] = [
        ("HEAD", &[]),
        ("POST", &[]),
        ("GET", &[bot]),
        ("GET", &[prefetch]),
    ];
    for _ in 0..2 {
        for (method, headers) in looks {
            host.request(method, "/abc", headers);
            host.run();
            host.advance(1_000);
        }
    }
    assert_eq!(host.redis.renewals, 0);
    host.click("/abc");
    host.run();
    assert_eq!(host.redis.renewals, 1);
}

#[test]
fn only_clicks_count_against_the_click_limit() {
    let mut host = Host::new();
    let once = Link {
        max_clicks: 1,
        ..link(TARGET)
    };
    host.redis.records.insert("s/one".into(), once);
    let mut ask = |method: &str, headers: &[(&str, &str)]| {
        let stream = host.request(method, "/one", headers);
        host.run();
        host.status(stream)
    };
    assert_eq!(ask("POST", &[]), 405);
    assert_eq!(ask("HEAD", &[]), 302);
    assert_eq!(ask("GET", &[("user-agent", "WhatsApp/2.23")]), 302);
    assert_eq!(ask("GET", &[("sec-purpose", "prefetch;prerender")]), 503);
    assert_eq!([ask("GET", &[]), ask("GET", &[])], [302, 410]);
}

#[test]
fn pages_for_links_without_target_use_the_client_language() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.redis.domains = r#"{"version":2,"domains":[{"id":"s","hosts":["s.example.com"]}]}"#.into();
    host.advance(50);
    let disabled = Link {
        is_disabled: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/off".into(), disabled);
    let mut title = |path: &str, language: &str, has_origin: bool| {
        host.has_origin = has_origin;
        let stream = host.request("GET", path, &[("accept-language", language)]);
        host.run();
        let answer = host.answer(stream).unwrap();
        let page = String::from_utf8(answer.body.clone()).unwrap();
        let title = page
            .split("<h1>")
            .nth(1)
            .and_then(|text| text.split("</h1>").next());
        (answer.status, title.unwrap().to_owned())
    };
    // From Redis, and then from memory.
    for _ in 0..2 {
        let removed = title("/off", "de", true);
        assert_eq!(removed, (410, "Dieser Link ist abgelaufen".into()));
    }
    assert_eq!(title("/off", "zh-CN", true), (410, "链接已失效".into()));
    let missing = title("/nothing/here", "de-AT,en;q=0.8", true);
    assert_eq!(missing, (404, "Diesen Link gibt es nicht".into()));
    assert_eq!(
        title("/nothing/here", "fr", true),
        (404, "No such link".into())
    );
    let failed = title("/abc", "de", false);
    assert_eq!(failed, (503, "Bitte versuchen Sie es gleich erneut".into()));
}

#[test]
fn domain_serves_its_own_pages_for_missing_links() {
    let mut host = Host::unaware(r#"{"redis":{}}"#);
    host.redis.domains = r#"{"version":2,"domains":[{"id":"s","hosts":["s.example.com"],
        "gone_page":"<p>over","unavailable_page":"<p>later","home":"https://home.example/",
        "robots":"User-agent: x\n"}]}"#
        .into();
    host.advance(50);
    let disabled = Link {
        is_disabled: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/off".into(), disabled);
    host.has_origin = false;
    let mut ask = |path: &str| {
        let stream = host.click(path);
        host.run();
        let answer = host.answer(stream).unwrap();
        let body = String::from_utf8(answer.body.clone()).unwrap();
        let [location, retry_after] =
            ["location", "retry-after"].map(|name| host.header(stream, name));
        (answer.status, body, location.or(retry_after))
    };
    // From Redis, and then from memory.
    for _ in 0..2 {
        assert_eq!(ask("/off"), (410, "<p>over".into(), None));
    }
    assert_eq!(ask("/abc"), (503, "<p>later".into(), Some("1".into())));
    let (status, body, _) = ask("/nothing/here");
    assert!(status == 404 && body.contains("No such link"), "{body}");
    let home = Some("https://home.example/".to_owned());
    assert_eq!(ask("/"), (302, String::new(), home));
    assert_eq!(ask("/robots.txt"), (200, "User-agent: x\n".into(), None));
    assert_eq!(ask("/favicon.ico"), (204, String::new(), None));
    assert_eq!(host.metric("answers_total.answer.file"), 3);
}

#[test]
fn password_link_is_answered_by_origin_and_uses_no_click() {
    let mut host = Host::new();
    let face = Link {
        guard: Some(PasswordGuard::default()),
        max_clicks: 3,
        ..Link::to("")
    };
    host.redis.records.insert("s/abc".into(), face.clone());
    let first = host.click("/abc");
    host.run();
    host.advance(50);
    host.run();
    assert!(host.has_passed(first));
    assert_eq!(host.metric("clicks_total.outcome.returned"), 1);
    // From the cache, for every method: the form is sent with POST.
    let plain = Link {
        max_clicks: 0,
        ..face
    };
    host.redis.records.insert("s/abd".into(), plain);
    for method in ["GET", "POST", "HEAD", "GET"] {
        let stream = host.request(method, "/abd", &[]);
        host.run();
        assert!(host.has_passed(stream), "{method}");
    }
    assert_eq!(host.metric("found_total.place.memory"), 3);
    assert_eq!(host.metric("answers_total.answer.guarded"), 5);
    assert_eq!(host.metric("clicks_total.outcome.counted"), 0);
}

#[test]
fn password_link_missing_in_redis_is_forwarded_to_origin() {
    let mut host = Host::new();
    let face = Link {
        guard: Some(PasswordGuard::default()),
        ..Link::to("")
    };
    host.cold.insert("s/abc".into(), face.clone());
    let stream = host.click("/abc");
    host.run();
    assert!(host.has_passed(stream));
    // A disabled link is reported as such, with or without a password.
    let disabled = Link {
        is_disabled: true,
        ..face
    };
    host.redis.records.insert("s/off".into(), disabled);
    let stream = host.click("/off");
    host.run();
    assert_eq!(host.status(stream), 410);
}

#[test]
fn each_click_on_a_tracked_link_gets_a_unique_click_tag() {
    let key = SigningKey::new("k1", &[7; 32]).unwrap();
    let keys = KeyRing::new(vec![key]).unwrap();
    let mut host = Host::new();
    host.engine = host.engine.naming_clicks(Some(keys.clone()));
    let tracked = Link {
        is_tracked: true,
        ..link(TARGET)
    };
    host.redis.records.insert("s/abc".into(), tracked);
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        let click = host.click("/abc");
        host.run();
        let location = host.location(click);
        let name = location
            .strip_prefix(&format!("{TARGET}?weir_click="))
            .unwrap();
        let tag = ClickTag::read(&keys, name.as_bytes()).unwrap();
        assert_eq!(
            (tag.link.to_string(), tag.at_ms),
            ("s/abc".to_owned(), host.now_ms)
        );
        names.insert(name.to_owned());
    }
    assert_eq!(names.len(), 3);
    // HEAD requests and automatic clients are not clicks.
    for (method, agent) in [("HEAD", "x"), ("GET", "Googlebot/2.1")] {
        let looked = host.request(method, "/abc", &[("user-agent", agent)]);
        host.run();
        assert_eq!(host.location(looked), TARGET);
    }
}
