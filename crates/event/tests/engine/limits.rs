//! Rate limits.

use weir_engine::Event;
use weir_engine::redis::UnknownFailure;

use crate::host::{Host, PAGE, SECRET, State};

fn host(limits: &str) -> Host {
    Host::new(&format!(r#""collect":{{}},"limits":{{{limits}}}"#))
}

/// How many of ten requests pass.
fn passed(host: &mut Host, other: &[(&str, &str)]) -> usize {
    (0..10).filter(|_| host.post(other).goes_on()).count()
}

#[test]
fn each_write_key_has_a_separate_limit() {
    let mut host = host(r#""per_key":{"rate":3,"per":"1m"}"#);
    assert_eq!(passed(&mut host, &[]), 3);
    assert_eq!(passed(&mut host, &[("x-weir-write-key", SECRET)]), 3);
    let refused = host.post(&[("origin", PAGE)]);
    assert_eq!(refused.answered().0, 429);
    assert_eq!(refused.header("retry-after").as_deref(), Some("20"));
    assert!(
        refused
            .header("ratelimit")
            .unwrap()
            .starts_with(r#""events-key";r=0;t="#)
    );
    assert!(refused.header("ratelimit-policy").is_some());
    assert_eq!(
        refused.header("access-control-allow-origin").as_deref(),
        Some(PAGE)
    );
    assert_eq!(host.count("weir_events_requests_total.outcome.limited"), 15);
    assert_eq!(
        host.count("weir_ratelimit_limited_total.rule.events-key"),
        15
    );
    // A forged key name has no effect.
    assert_eq!(passed(&mut host, &[("x-weir-event-key", "other")]), 0);
}

#[test]
fn visitor_limit_is_per_key_and_skips_anonymous_events() {
    let mut host = host(r#""per_visitor":{"rate":2,"per":"1m"}"#);
    assert_eq!(passed(&mut host, &[("x-weir-visitor", "v1")]), 2);
    assert_eq!(passed(&mut host, &[(":path", "/events?visitor=v1")]), 0);
    assert_eq!(passed(&mut host, &[("x-weir-visitor", "v2")]), 2);
    assert_eq!(
        passed(
            &mut host,
            &[("x-weir-visitor", "v1"), ("x-weir-write-key", SECRET)]
        ),
        2
    );
    assert_eq!(passed(&mut host, &[]), 10);
    assert_eq!(passed(&mut host, &[("x-weir-visitor", "no name")]), 10);
}

#[test]
fn events_of_an_address_are_limited() {
    let mut host = host(r#""per_address":{"rate":4,"per":"1m"}"#);
    assert_eq!(passed(&mut host, &[]), 4);
    assert_eq!(passed(&mut host, &[("x-forwarded-for", "6.6.6.6")]), 0);
    let mut host = Host::new(
        r#""collect":{},"trusted_hops":1,"limits":{"per_address":{"rate":4,"per":"1m"}}"#,
    );
    assert_eq!(
        passed(&mut host, &[("x-forwarded-for", "192.0.2.1, 10.0.0.1")]),
        4
    );
    assert_eq!(
        passed(
            &mut host,
            &[("x-forwarded-for", "6.6.6.6,192.0.2.1, 10.0.0.1")]
        ),
        0
    );
    assert_eq!(
        passed(&mut host, &[("x-forwarded-for", "192.0.2.2, 10.0.0.1")]),
        4
    );
    let stamps = host
        .post(&[("x-forwarded-for", "198.51.100.9, 10.0.0.1")])
        .stamps();
    assert_eq!(
        stamps.unwrap().address.unwrap().to_string(),
        "198.51.100.0/24"
    );
}

#[test]
fn event_request_is_charged_to_all_limits_or_none() {
    let mut host = host(r#""per_key":{"rate":5,"per":"1m"},"per_visitor":{"rate":1,"per":"1m"}"#);
    assert_eq!(passed(&mut host, &[("x-weir-visitor", "v1")]), 1);
    // The nine refused requests have not used the key's limit of five.
    let visitors: Vec<String> = (2..=9).map(|n| format!("v{n}")).collect();
    let others = visitors
        .iter()
        .filter(|visitor| host.post(&[("x-weir-visitor", visitor)]).goes_on());
    assert_eq!(others.count(), 4);
}

#[test]
fn refused_or_dropped_events_consume_no_limit() {
    let mut host = host(r#""per_key":{"rate":3,"per":"1m"}"#);
    for other in [
        ("content-type", "a/b"),
        ("x-weir-consent", "none"),
        ("content-length", ""),
    ] {
        assert_eq!(passed(&mut host, &[other]), 0);
    }
    assert_eq!(passed(&mut host, &[]), 3);
}

#[test]
fn custom_limit_rules_see_the_key_name() {
    let mut host = host(
        r#""rules":[{"name":"big","key":[{"header":"x-weir-event-key"}],"limit":{"rate":1,"per":"1m"},
            "overrides":[{"key":["erp"],"limit":{"rate":6,"per":"1m"}}]}]"#,
    );
    assert_eq!(passed(&mut host, &[]), 1);
    assert_eq!(passed(&mut host, &[("x-weir-write-key", SECRET)]), 6);
}

const REDIS: &str = r#""store":"redis","redis":{"deadline_ms":20},"per_key":{"rate":3,"per":"1m"}"#;

/// Redis decides. Requests that wait for it get their metadata with the decision.
#[test]
fn request_waiting_for_redis_is_stamped_or_refused() {
    let mut host = host(REDIS);
    let stream = host.request(&[
        (":method", "POST"),
        (":path", "/events"),
        ("content-type", "text/plain"),
        ("content-length", "2"),
        ("x-weir-write-key", "wk_shop_web"),
        ("x-weir-event-kind", "server"),
        ("origin", PAGE),
    ]);
    assert!(matches!(host.stream(stream).state, State::Waiting));
    host.tick();
    let batch = host.calls.pop_front().expect("a call");
    // Without a reply each gateway counts on its own.
    let now_ms = host.now_ms;
    host.handle(Event::RedisReply {
        batch,
        reply: Err(UnknownFailure::Timeout.into()),
        now_ms,
    });
    let went = host.stream(stream);
    assert!(went.goes_on());
    assert_eq!(went.stamps().unwrap().key.as_str(), "shop-web");
    assert_eq!(went.sent("x-weir-event-kind"), ["browser"]);
    assert_eq!(
        host.respond(stream).response["access-control-allow-origin"],
        PAGE
    );
    assert_eq!(
        host.count("weir_ratelimit_fallback_total.rule.events-key"),
        1
    );
}

#[test]
fn client_that_disconnects_while_waiting_is_dropped() {
    let mut host = host(REDIS);
    for _ in 0..100 {
        let stream = host.request(&[
            (":method", "POST"),
            (":path", "/events"),
            ("content-type", "text/plain"),
            ("content-length", "2"),
            ("x-weir-write-key", "wk_shop_web"),
        ]);
        host.end(stream, None);
    }
    host.tick();
    assert_eq!(
        host.count("weir_events_requests_total.outcome.forwarded"),
        0
    );
}

/// Redis is not called for decisions then; it only receives reports of refusals.
#[test]
fn limit_refusals_are_reported_only_when_configured() {
    for (report, calls) in [(true, 1), (false, 0)] {
        let limits = format!(r#""redis":{{}},"report":{report},"per_key":{{"rate":3,"per":"1m"}}"#);
        let mut host = host(&limits);
        assert_eq!(passed(&mut host, &[]), 3);
        host.advance(2_000);
        host.tick();
        assert_eq!(host.calls.len(), calls, "{report}");
    }
}
