//! Responses for links, and when edits take effect.

use std::time::Duration;

use redis::cmd;
use weir_host_test::{Reply, StreamState};
use weir_link::record::{App, Link, Platform, RedirectStatus, Rule};
use weir_link::redis::keys::LinkKeys;

use super::support::{CONFIG, DOMAINS, Gate, TARGET, header, link, location, status};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148";

#[test]
fn link_is_read_from_redis_once_and_then_from_memory() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    let first = gate.request(0, "/abc").send();
    assert!(first.is_paused());
    gate.host.run_until_idle();
    assert_eq!((status(&first), location(&first).as_str()), (302, TARGET));
    assert_eq!(
        header(&first, "cache-control").unwrap(),
        "private, no-cache"
    );
    // Answered within its own callback.
    assert_eq!(location(&gate.request(0, "/abc?x=1").send()), TARGET);
    assert_eq!((gate.found("redis"), gate.found("memory")), (1, 1));
    assert_eq!(gate.answered("redirect"), 2);
    assert_eq!(gate.lookups(), 0);
}

#[test]
fn domain_has_its_own_links_and_its_own_page() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    assert_eq!(gate.location("/abc"), TARGET);
    let ask = |host: &str, path: &str| {
        let stream = gate.request(0, path).header(":authority", host).send();
        gate.host.run_until_idle();
        stream
    };
    assert_eq!(location(&ask("S.example.COM:8443", "/abc")), TARGET);
    let other = ask("t.example.com", "/abc").reply().unwrap();
    assert_eq!(other.status, 404);
    assert!(other.body_text().contains("No such link"));
    let own = ask("s.example.com", "/no-such").reply().unwrap();
    assert_eq!(
        (own.status, own.body_text().as_str()),
        (404, "<p>nothing of s")
    );
    let passed = gate.answered("passed");
    assert!(ask("other.example.com", "/abc").is_continued());
    assert_eq!(gate.answered("passed"), passed + 1);
}

#[test]
fn app_association_files_are_served_per_domain() {
    let gate = Gate::new();
    let ask = |host: &str, path: &str| {
        let stream = gate.request(0, path).header(":authority", host).send();
        stream.reply().unwrap()
    };
    let file = ask("s.example.com", "/.well-known/apple-app-site-association");
    assert_eq!(
        (file.status, file.body_text().as_str()),
        (200, r#"{"applinks":{"details":[]}}"#)
    );
    assert_eq!(file.header("content-type"), Some("application/json"));
    assert_eq!(
        ask("t.example.com", "/.well-known/apple-app-site-association").status,
        404
    );
    let file = ask("t.example.com", "/.well-known/assetlinks.json");
    assert_eq!(file.body_text(), r#"[{"relation":[]}]"#);
    assert_eq!(
        ask("s.example.com", "/.well-known/assetlinks.json").status,
        404
    );
    assert_eq!(gate.answered("file"), 2);
}

#[test]
fn domain_has_its_own_pages_for_ended_and_unknown_links() {
    let gate = Gate::new();
    gate.publish(
        r#"{"version":2,"domains":[{"id":"s","hosts":["s.example.com"],"gone_page":"<p>over",
        "unavailable_page":"<p>later","home":"https://home.example/","robots":"Disallow: /\n"}]}"#,
    );
    gate.host.advance(Duration::from_millis(300));
    gate.host.run_until_idle();
    let disabled = Link {
        is_disabled: true,
        ..link()
    };
    gate.put("s/off", &disabled);
    gate.origin.borrow_mut().reply = Some(Reply::status(500, ""));
    let ask = |path: &str| {
        let reply = gate.click(path).reply().unwrap();
        (reply.status, reply.body_text())
    };
    assert_eq!(ask("/off"), (410, "<p>over".into()));
    assert_eq!(ask("/no-such"), (503, "<p>later".into()));
    assert_eq!(ask("/robots.txt"), (200, "Disallow: /\n".into()));
    assert_eq!(ask("/favicon.ico"), (204, String::new()));
    assert_eq!(location(&gate.click("/")), "https://home.example/");
}

#[test]
fn in_app_visitors_get_a_page_to_open_a_browser() {
    let gate = Gate::new();
    let app = App {
        platform: Platform::Any,
        url: "openapp://x".into(),
        fallback: None,
    };
    gate.put(
        "s/app",
        &Link {
            apps: vec![app],
            ..link()
        },
    );
    // Once from Redis, once from memory.
    for _ in 0..2 {
        let request = gate.request(0, "/app").header("accept-language", "zh-CN");
        let agent = format!("{IPHONE} MicroMessenger/8.0.50");
        let stream = request.header("user-agent", &agent).send();
        gate.host.run_until_idle();
        let page = stream.reply().unwrap();
        let text = page.body_text();
        assert!(!text.contains("<script>"), "{text}");
        assert!(text.contains("“在浏览器打开”"), "{text}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    }
}

#[test]
fn redirect_follows_the_status_query_rules_and_apps_of_a_link() {
    let gate = Gate::new();
    for redirect in RedirectStatus::ALL {
        let code = format!("code-{}", redirect.code());
        gate.put(
            &format!("s/{code}"),
            &Link {
                status: redirect,
                ..link()
            },
        );
        let stream = gate.click(&format!("/{code}"));
        assert_eq!(status(&stream), redirect.code());
        let is_kept = header(&stream, "cache-control")
            .unwrap()
            .contains("max-age=3600");
        assert_eq!(is_kept, redirect.is_permanent());
    }
    gate.put(
        "s/query",
        &Link {
            pass_query: true,
            ..link()
        },
    );
    assert_eq!(gate.location("/query?a=b"), format!("{TARGET}?a=b"));
    let rule = Rule {
        platforms: vec![],
        languages: vec!["zh".into()],
        target: "https://zh.example/".into(),
        ..Rule::default()
    };
    let app = App {
        platform: Platform::Ios,
        url: "openapp://x".into(),
        fallback: None,
    };
    gate.put(
        "s/both",
        &Link {
            rules: vec![rule],
            apps: vec![app],
            ..link()
        },
    );
    let chinese = gate
        .request(0, "/both")
        .header("accept-language", "zh-CN")
        .send();
    gate.host.run_until_idle();
    assert_eq!(location(&chinese), "https://zh.example/");
    let page = gate
        .request(0, "/both")
        .header("user-agent", IPHONE)
        .send()
        .reply()
        .unwrap();
    assert_eq!(page.status, 200);
    assert!(page.body_text().contains(r#"href="openapp://x""#));
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .contains("script-src 'sha256-")
    );
    assert_eq!(gate.answered("app"), 1);
}

#[test]
fn only_followed_redirects_use_up_the_click_limit() {
    let gate = Gate::new();
    gate.put(
        "s/two",
        &Link {
            max_clicks: 2,
            ..link()
        },
    );
    let ask = |method: &str| {
        let stream = gate.request(0, "/two").method(method).send();
        gate.host.run_until_idle();
        stream
    };
    for _ in 0..3 {
        assert_eq!(status(&ask("HEAD")), 302);
    }
    for _ in 0..2 {
        let click = ask("GET");
        assert_eq!(header(&click, "cache-control").unwrap(), "no-store");
    }
    assert_eq!(status(&ask("HEAD")), 410);
    let redis = gate.found("redis");
    assert_eq!(status(&ask("GET")), 410);
    assert_eq!(
        gate.found("redis"),
        redis,
        "that it is used up is remembered"
    );
    gate.edit(
        "s/two",
        &Link {
            max_clicks: 3,
            ..link()
        },
    );
    gate.poll();
    assert_eq!(status(&ask("GET")), 302);
    assert_eq!(status(&ask("GET")), 410);
}

#[test]
fn ended_link_returns_410() {
    let gate = Gate::new();
    gate.put(
        "s/disabled",
        &Link {
            is_disabled: true,
            ..link()
        },
    );
    gate.put(
        "s/expired",
        &Link {
            expires_at_ms: 1,
            ..link()
        },
    );
    for path in ["/disabled", "/expired", "/disabled"] {
        let reply = gate.click(path).reply().unwrap();
        assert_eq!(
            (reply.status, reply.header("cache-control")),
            (410, Some("no-store"))
        );
    }
    assert_eq!(gate.answered("gone"), 3);
    let post = gate.request(0, "/abc").method("POST").send();
    gate.put("s/abc", &link());
    gate.host.run_until_idle();
    assert_eq!(
        (status(&post), header(&post, "allow").unwrap().as_str()),
        (405, "GET, HEAD")
    );
}

#[test]
fn edit_reaches_all_workers_after_the_next_poll() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    let ask = |worker| {
        let stream = gate.request(worker, "/abc").send();
        gate.host.run_until_idle();
        stream
    };
    assert_eq!(location(&ask(0)), TARGET);
    assert_eq!(location(&ask(1)), TARGET);
    gate.edit("s/abc", &Link::to("https://other.example/"));
    assert_eq!(location(&ask(0)), TARGET, "it has not been told of yet");
    gate.poll();
    assert_eq!(location(&ask(0)), "https://other.example/");
    assert_eq!(location(&ask(1)), "https://other.example/");
    gate.edit(
        "s/abc",
        &Link {
            is_disabled: true,
            ..link()
        },
    );
    gate.poll();
    assert_eq!((status(&ask(0)), status(&ask(1))), (410, 410));
    // Two edits in two workers. The main thread reads none.
    assert_eq!(gate.metric("changes_total"), 4);
}

#[test]
fn link_read_before_an_edit_is_not_cached_after_it() {
    let gate = Gate::with(r#"{ "redis": { "deadline_ms": 5000 }, "poll_interval_ms": 1000 }"#);
    gate.put("s/abc", &link());
    gate.host.advance(Duration::from_millis(990));
    gate.set_redis(false);
    let stream = gate.request(0, "/abc").send();
    gate.host.run_until_idle();
    let mut calls = gate.host.calls().into_iter();
    let read = calls
        .find(|call| call.body_text().contains("{s/abc}"))
        .unwrap();
    // The read returns the state before the edit, but the edit is reported first.
    gate.set_redis(true);
    gate.edit("s/abc", &Link::to("https://other.example/"));
    gate.host.advance(Duration::from_millis(2_000));
    assert!(gate.metric("changes_total") > 0);
    let record = String::from_utf8(link().encode()).unwrap();
    let reply = format!("*3\r\n${}\r\n{record}\r\n:-1\r\n:-1\r\n", record.len());
    assert!(gate.host.answer(read.id, Reply::ok(reply)));
    gate.host.run_until_idle();
    assert_eq!(location(&stream), TARGET, "it asked before the edit");
    assert_eq!(gate.location("/abc"), "https://other.example/");
}

#[test]
fn missed_changes_cause_a_full_reload() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    gate.put("s/abd", &link());
    gate.tell_of("s/zzz");
    gate.poll();
    gate.click("/abc");
    gate.click("/abd");
    // Redis has lost its stream with all changes.
    gate.redis::<i64>(cmd("DEL").arg(weir_link::redis::keys::link_changes("weir")));
    gate.put("s/abc", &Link::to("https://other.example/"));
    gate.poll();
    assert_eq!(gate.location("/abc"), "https://other.example/");
    // A stale link is better than none.
    gate.set_redis(false);
    gate.origin.borrow_mut().reply = Some(Reply::unreachable());
    let stale = gate.request(0, "/abd").send();
    gate.host.advance(Duration::from_millis(130));
    assert_eq!(location(&stale), TARGET);
    assert_eq!(gate.found("stale"), 1);
}

#[test]
fn cached_link_is_refreshed_once_near_its_expiry() {
    let gate = Gate::new();
    const LIFE_MS: u64 = 10 * 3_600_000;
    gate.put(
        "s/abc",
        &Link {
            life_ms: LIFE_MS,
            ..link()
        },
    );
    let key = LinkKeys::new("weir", &"s/abc".parse().unwrap()).record();
    gate.click("/abc");
    let calls = |gate: &Gate| gate.found("redis");
    let before = calls(&gate);
    for _ in 0..50 {
        gate.click("/abc");
    }
    assert_eq!(calls(&gate), before, "hot links cost Redis nothing");
    // More than an hour later by the gateway's clock; Redis' own clock is unchanged.
    gate.redis::<i64>(cmd("PEXPIRE").arg(&key).arg(LIFE_MS - 3_700_000));
    gate.host.advance(Duration::from_secs(61 * 60));
    for _ in 0..50 {
        assert_eq!(gate.location("/abc"), TARGET);
    }
    let remaining: u64 = gate.redis(cmd("PTTL").arg(&key));
    assert!(remaining > LIFE_MS - 3_600_000, "{remaining}");
    assert_eq!(calls(&gate), before + 1);
}

#[test]
fn expired_link_is_unknown() {
    let gate = Gate::new();
    gate.put(
        "s/abc",
        &Link {
            life_ms: 60_000,
            ..link()
        },
    );
    assert_eq!(gate.location("/abc"), TARGET);
    let key = LinkKeys::new("weir", &"s/abc".parse().unwrap()).record();
    gate.redis::<i64>(cmd("DEL").arg(&key));
    gate.host.advance(Duration::from_secs(61));
    assert_eq!(status(&gate.click("/abc")), 404);
}

#[test]
fn new_domains_apply_after_a_poll_and_invalid_ones_never() {
    let gate = Gate::unaware(CONFIG);
    assert!(
        gate.click("/abc").is_continued(),
        "nothing is known of domains"
    );
    gate.publish(DOMAINS);
    gate.poll();
    assert_eq!(status(&gate.click("/abc")), 404);
    gate.publish(r#"{"version":2,"domains":[{"id":"s","hosts":["S.EXAMPLE"]}]}"#);
    gate.host.advance(Duration::from_secs(1));
    assert!(gate.host.logged("domains[0].hosts[0]"));
    assert_eq!(status(&gate.click("/abd")), 404, "those of before count");
    gate.publish(r#"{"version":3,"domains":[{"id":"u","hosts":["u.example.com"]}]}"#);
    gate.host.advance(Duration::from_secs(1));
    assert!(matches!(
        gate.click("/abc").state(),
        StreamState::Continued(_)
    ));
}
