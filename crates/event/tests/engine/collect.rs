//! Requests with events.

use weir_event::address::Network;
use weir_event::consent::Consent;
use weir_event::pixel;
use weir_event::stamps::{Kind, REMOVED};

use crate::host::{Host, NOW_MS, PAGE, SECRET, WEB_KEY, config};

fn host() -> Host {
    Host::new(r#""collect":{}"#)
}

#[test]
fn valid_collect_request_is_forwarded_with_stamps() {
    let mut host = host();
    let stream = host.post(&[("x-weir-visitor", "v1"), ("x-user-id", "alice")]);
    assert!(stream.goes_on());
    let stamps = stream.stamps().unwrap();
    assert_eq!(stamps.key.as_str(), "shop-web");
    assert_eq!(stamps.kind, Kind::Browser);
    assert_eq!(stamps.received_ms, NOW_MS);
    assert_eq!(stamps.address, Some(Network::V4([203, 0, 113])));
    assert_eq!(stamps.consent, Consent::Full);
    assert_eq!(stream.sent("x-user-id"), ["alice"]);
    assert_eq!(stream.sent("content-type"), ["application/json"]);
    let stamps = host.post(&[("x-weir-write-key", SECRET)]).stamps().unwrap();
    assert_eq!((stamps.key.as_str(), stamps.kind), ("erp", Kind::Server));
    assert_eq!(
        host.count("weir_events_requests_total.outcome.forwarded"),
        2
    );
}

#[test]
fn forged_stamps_and_private_headers_are_removed() {
    let mut host = host();
    let mut forged: Vec<(&str, &str)> = REMOVED
        .iter()
        .filter(|name| !["x-weir-write-key", "x-weir-consent"].contains(name))
        .flat_map(|name| [(*name, "erp"), (*name, "again")])
        .collect();
    forged.extend([
        ("cookie", "session=1"),
        ("authorization", "Bearer x"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
    ]);
    let stream = host.post(&forged);
    let stamps = stream.stamps().unwrap();
    assert_eq!(
        (stamps.key.as_str(), stamps.received_ms),
        ("shop-web", NOW_MS)
    );
    for removed in [
        "cookie",
        "authorization",
        "x-forwarded-for",
        "x-real-ip",
        "x-weir-write-key",
        "x-weir-visitor",
    ] {
        assert_eq!(stream.sent(removed), [""; 0], "{removed}");
    }
    assert_eq!(host.count("weir_events_forged_total"), 1);
    host.post(&[]);
    assert_eq!(host.count("weir_events_forged_total"), 1);
}

#[test]
fn other_requests_pass_untouched() {
    let mut host = host();
    for path in [
        "/",
        "/events/",
        "/events/types",
        "/events.gifs",
        "/eventsx",
        "*",
    ] {
        let stream = host.request(&[(":method", "POST"), (":path", path), ("cookie", "a=b")]);
        let stream = host.stream(stream);
        assert!(stream.goes_on(), "{path}");
        assert_eq!(stream.sent("cookie"), ["a=b"]);
    }
}

#[test]
fn each_refusal_has_a_status_and_a_reason() {
    let mut host = host();
    let mut check = |other: &[(&str, &str)], status: u16, error: &str, outcome: &str| {
        let stream = host.post(other);
        let (found, body) = stream.answered();
        assert_eq!(found, status, "{other:?}: {body}");
        assert!(body.contains(&format!(r#""error":"{error}""#)), "{body}");
        assert_eq!(stream.header("cache-control").as_deref(), Some("no-store"));
        assert!(host.count(&format!("weir_events_requests_total.outcome.{outcome}")) > 0);
    };
    check(
        &[("x-weir-write-key", "")],
        401,
        "unknown_key",
        "unauthorized",
    );
    check(
        &[("x-weir-write-key", "wk_shop_wec")],
        401,
        "unknown_key",
        "unauthorized",
    );
    check(&[(":method", "GET")], 405, "method_not_allowed", "method");
    check(
        &[(":method", "OPTIONS")],
        405,
        "method_not_allowed",
        "method",
    );
    check(&[(":method", "PUT")], 405, "method_not_allowed", "method");
    check(
        &[("content-type", "")],
        415,
        "unsupported_media_type",
        "content_type",
    );
    check(
        &[("content-type", "text/html")],
        415,
        "unsupported_media_type",
        "content_type",
    );
    check(
        &[("content-type", "application/jsonx")],
        415,
        "unsupported_media_type",
        "content_type",
    );
    check(
        &[("content-encoding", "br")],
        415,
        "unsupported_media_type",
        "content_type",
    );
    check(&[("content-length", "")], 411, "length_required", "length");
    check(&[("content-length", "1048577")], 413, "too_large", "length");
    check(
        &[("content-length", "99999999999999999999")],
        413,
        "too_large",
        "length",
    );
    check(&[("content-length", "-1")], 413, "too_large", "length");
    check(
        &[("x-weir-consent", "yes")],
        400,
        "bad_consent",
        "malformed",
    );
    check(
        &[("origin", "https://evil.example")],
        403,
        "origin_not_allowed",
        "origin_not_allowed",
    );
    check(
        &[("origin", "null")],
        403,
        "origin_not_allowed",
        "origin_not_allowed",
    );
    check(
        &[("origin", PAGE), ("x-weir-write-key", SECRET)],
        403,
        "origin_not_allowed",
        "origin_not_allowed",
    );
    assert_eq!(
        host.count("weir_events_requests_total.outcome.forwarded"),
        0
    );
}

#[test]
fn json_and_text_with_parameters_are_accepted_up_to_max_length() {
    let mut host = host();
    for content_type in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "text/plain;charset=UTF-8",
        "text/plain",
    ] {
        assert!(host.post(&[("content-type", content_type)]).goes_on());
    }
    for encoding in ["identity", "gzip", "GZIP", "zstd"] {
        let headers = [
            ("content-length", "1048576"),
            ("content-encoding", encoding),
        ];
        assert!(host.post(&headers).goes_on(), "{encoding}");
    }
    for encoding in ["gzip, zstd", "deflate"] {
        let headers = [("content-encoding", encoding)];
        assert!(!host.post(&headers).goes_on(), "{encoding}");
    }
}

#[test]
fn beacon_key_in_the_query_is_not_forwarded() {
    let mut host = host();
    let path = format!("/events?key={WEB_KEY}&visitor=v1&consent=anonymous");
    let beacon = [
        (":path", &*path),
        ("x-weir-write-key", ""),
        ("content-type", "text/plain;charset=UTF-8"),
    ];
    let stream = host.post(&beacon);
    assert_eq!(stream.sent(":path"), ["/events"]);
    assert_eq!(stream.stamps().unwrap().consent, Consent::Anonymous);
}

#[test]
fn refused_consent_drops_and_limited_consent_anonymizes_events() {
    let mut host = host();
    let none = host.post(&[("x-weir-consent", "none")]);
    let dropped = r#"{"accepted":0,"duplicates":0,"rejected":0,"verdicts":[],"dropped":true}"#;
    assert_eq!(none.answered(), (202, dropped));
    for response in [
        &[("x-weir-consent", "anonymous")][..],
        &[("sec-gpc", "1")],
        &[("sec-gpc", "1"), ("x-weir-consent", "full")],
    ] {
        let user = [("x-user-id", "alice"), ("x-forwarded-for", "203.0.113.7")];
        let stream = host.post(&[response, &user].concat());
        let stamps = stream.stamps().unwrap();
        assert_eq!((stamps.consent, stamps.address), (Consent::Anonymous, None));
        assert_eq!(stream.sent("x-user-id"), [""; 0]);
        assert_eq!(stream.sent("x-forwarded-for"), [""; 0]);
    }
    assert_eq!(host.count("weir_events_anonymous_total"), 3);
    assert_eq!(host.count("weir_events_requests_total.outcome.dropped"), 1);
    // Now nothing refers to the visitor.
    assert_eq!(
        host.post(&[("dnt", "1")]).stamps().unwrap().consent,
        Consent::Full
    );
}

#[test]
fn signals_and_missing_consent_follow_the_configuration() {
    let keys = config(r#""collect":{},"signals":{"gpc":"drop","dnt":"anonymise"}"#);
    let mut host = Host::with(&keys.replace(
        r#""kind":"browser""#,
        r#""kind":"browser","consent":"anonymous""#,
    ));
    assert_eq!(host.post(&[("sec-gpc", "1")]).answered().0, 202);
    let mut consent = |other: &[(&str, &str)]| host.post(other).stamps().unwrap().consent;
    assert_eq!(consent(&[]), Consent::Anonymous);
    assert_eq!(consent(&[("x-weir-consent", "full")]), Consent::Full);
    assert_eq!(
        consent(&[("x-weir-consent", "full"), ("dnt", "1")]),
        Consent::Anonymous
    );
}

#[test]
fn sampling_of_a_visitor_is_consistent() {
    let keys = config(r#""collect":{}"#)
        .replace(r#""kind":"browser""#, r#""kind":"browser","sample":0.5"#);
    let (mut one, mut other) = (Host::with(&keys), Host::with(&keys));
    let mut retained = 0;
    for n in 0..200 {
        let visitor = format!("v{n}");
        let header = [("x-weir-visitor", &*visitor)];
        let is_kept = one.post(&header).goes_on();
        let path = format!("/events?visitor={visitor}");
        assert_eq!(other.post(&[(":path", &path)]).goes_on(), is_kept);
        if !is_kept {
            let sampled =
                r#"{"accepted":0,"duplicates":0,"rejected":0,"verdicts":[],"sampled":true}"#;
            assert_eq!(one.post(&header).answered(), (202, sampled));
        }
        retained += u32::from(is_kept);
    }
    assert!((70..=130).contains(&retained), "{retained}");
    // Without a visitor the address counts, which is the same here.
    let first = one.post(&[]).goes_on();
    assert!((0..20).all(|_| one.post(&[]).goes_on() == first));
}

#[test]
fn pixel_request_is_one_event() {
    let mut host = host();
    let path =
        format!("/events.gif?type=view&key={WEB_KEY}&visitor=v1&a.sku=a%261&consent=full&_=7");
    let get = [(":method", "GET"), (":path", &*path), ("cookie", "a=b")];
    let stream = host.request(&get);
    let stream = host.stream(stream);
    assert!(stream.goes_on());
    assert_eq!(
        stream.sent(":path"),
        ["/events.gif?type=view&visitor=v1&a.sku=a%261&_=7"]
    );
    assert_eq!(stream.stamps().unwrap().key.as_str(), "shop-web");
    assert_eq!(stream.sent("cookie"), [""; 0]);
    let query = stream.sent(":path")[0]
        .split_once('?')
        .unwrap()
        .1
        .as_bytes();
    assert_eq!(pixel::read(query).unwrap().attributes["sku"], "a&1");

    let dropped = host.request(&[
        (":method", "GET"),
        (":path", &path),
        ("x-weir-consent", "none"),
    ]);
    let dropped = host.stream(dropped);
    assert_eq!(dropped.answer().status, 200);
    assert_eq!(dropped.answer().body, pixel::GIF);
    assert_eq!(dropped.header("content-type").as_deref(), Some("image/gif"));
    let mut status = |method: &str, path: &str| {
        let stream = host.request(&[(":method", method), (":path", path)]);
        host.stream(stream).answered().0
    };
    assert_eq!(status("POST", &path), 405);
    assert_eq!(status("GET", "/events.gif?type=view"), 401);
    assert_eq!(status("GET", &format!("{path}&a.b=ü")), 400);
}

#[test]
fn cross_origin_page_gets_cors_headers() {
    let mut host = host();
    let stream = host.post(&[("origin", PAGE)]);
    assert!(stream.goes_on());
    let stream = host.request(&[
        (":method", "POST"),
        (":path", "/events"),
        ("content-type", "text/plain"),
        ("content-length", "2"),
        ("x-weir-write-key", WEB_KEY),
        ("origin", PAGE),
    ]);
    let response = &host.respond(stream).response;
    assert_eq!(response["access-control-allow-origin"], PAGE);
    assert_eq!(response["vary"], "origin");
    assert!(response["access-control-expose-headers"].contains("retry-after"));
    host.end(stream, Some(202));
    // Refusals too; otherwise the page would retry forever.
    for refused in [
        ("x-weir-write-key", "none"),
        ("content-type", "a/b"),
        ("x-weir-consent", "none"),
    ] {
        let stream = host.post(&[("origin", PAGE), refused]);
        assert_eq!(
            stream.header("access-control-allow-origin").as_deref(),
            Some(PAGE)
        );
    }
    assert_eq!(
        host.post(&[("x-weir-write-key", "none")])
            .header("access-control-allow-origin"),
        None
    );
}

#[test]
fn preflight_is_answered_by_the_gateway() {
    let mut host = host();
    let mut preflight = |path: &str, origin: &str| {
        let stream = host.request(&[
            (":method", "OPTIONS"),
            (":path", path),
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-weir-write-key"),
        ]);
        host.stream(stream).clone()
    };
    let allowed = preflight("/events", PAGE);
    assert_eq!(allowed.answer().status, 204);
    assert_eq!(
        allowed.header("access-control-allow-origin").as_deref(),
        Some(PAGE)
    );
    assert_eq!(
        allowed.header("access-control-allow-methods").as_deref(),
        Some("POST")
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .unwrap()
            .contains("x-weir-write-key")
    );
    assert_eq!(allowed.header("access-control-allow-credentials"), None);
    let with_key = preflight(&format!("/events?key={WEB_KEY}"), PAGE);
    assert_eq!(with_key.answer().status, 204);
    for (path, origin) in [
        ("/events", "https://evil.example"),
        ("/events?key=wk_other_key", PAGE),
        ("/events", ""),
    ] {
        assert_eq!(preflight(path, origin).answered().0, 403, "{path} {origin}");
    }
    assert_eq!(
        host.count("weir_events_requests_total.outcome.preflight"),
        2
    );
}
