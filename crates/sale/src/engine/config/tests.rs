use super::*;
use weir_engine::config::parse;

fn environment(name: &str) -> Option<Vec<u8>> {
    match name {
        "SECRET" => Some(b"0123456789abcdef0123456789abcdef".to_vec()),
        "SHORT" => Some(b"0.1.0".to_vec()),
        _ => None,
    }
}

fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
    parse::<Config>(json.as_bytes())?.checked(&environment)
}

const GOOD: &str = r#"{
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "user_header": "X-User-Id",
    "claim": { "keys": [{ "secret": { "env": "SECRET" } }] },
    "redis": {}
}"#;

fn refused(from: &str, to: &str) -> FieldError {
    assert!(GOOD.contains(from), "{from}");
    let json = GOOD.replacen(from, to, 1);
    checked(&json).unwrap_err()
}

#[test]
fn minimal_sale_configuration_gets_the_defaults() {
    let config = checked(GOOD).unwrap();
    assert_eq!(config.user_header, "x-user-id");
    assert_eq!(config.redis.cluster, "weir_redis");
    assert_eq!(config.redis.topology, Topology::Single);
    assert_eq!(
        (config.poll_interval_ms, config.claim_ttl_ms),
        (250, 30_000)
    );
}

#[test]
fn invalid_field_is_refused_by_its_path() {
    let check = |from: &str, to: &str, path: &str| {
        let error = refused(from, to);
        assert_eq!(error.path, path, "{error}");
    };
    check(r#""redis": {}"#, r#""redis": {}, "colour": 1"#, "colour");
    check(
        r#""redis": {}"#,
        r#""redis": { "hosts": 1 }"#,
        "redis.hosts",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "deadline_ms": "1" }"#,
        "redis.deadline_ms",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "deadline_ms": 0 }"#,
        "redis.deadline_ms",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "batches_max": 65 }"#,
        "redis.batches_max",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "waiting_max": 0 }"#,
        "redis.waiting_max",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "cluster": "" }"#,
        "redis.cluster",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "key_prefix": "a{b" }"#,
        "redis.key_prefix",
    );
    check(
        r#""redis": {}"#,
        r#""redis": { "topology": "ring" }"#,
        "redis.topology",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "poll_interval_ms": 1"#,
        "poll_interval_ms",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "retry_after_s": 0"#,
        "retry_after_s",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "status_routes": [{ "path": "/sales" }]"#,
        "status_routes[0].path",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "static_page": { "status": 199 }"#,
        "static_page.status",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "static_page": { "content_type": "a\r\nb: c" }"#,
        "static_page.content_type",
    );
    let added = |field: &str, path: &str| {
        check(
            r#""redis": {}"#,
            &format!(r#""redis": {{}}, {field}"#),
            path,
        );
    };
    added(r#""limits": { "slots": 0 }"#, "limits.slots");
    added(
        r#""limits": { "user": { "rate": 0, "per": "1s", "burst": 1 } }"#,
        "limits.user.rate",
    );
    added(
        r#""limits": { "address": { "rate": 1, "per": "1s", "burst": 0 } }"#,
        "limits.address.burst",
    );
    added(r#""limits": { "user": { "burst": 1 } }"#, "limits.user");
    // Rates and durations have one notation each.
    added(
        r#""limits": { "user": { "rate_per_s": 1, "burst": 1 } }"#,
        "limits.user.rate_per_s",
    );
    added(
        r#""limits": { "user": { "rate": 1, "per": "1 s" } }"#,
        "limits.user.per",
    );
    added(
        r#""limits": { "user": { "rate": 1, "per": 1000 } }"#,
        "limits.user.per",
    );
    added(
        r#""limits": { "identified": { "user": { "rate": 1, "per": "1s", "burst": 0 } } }"#,
        "limits.identified.user.burst",
    );
    added(
        r#""overload": { "in_flight_max": 0 }"#,
        "overload.in_flight_max",
    );
    added(
        r#""overload": { "redis_breaker": { "failure_percent": 101 } }"#,
        "overload.redis_breaker.failure_percent",
    );
    added(
        r#""overload": { "origin_breaker": { "open": 1 } }"#,
        "overload.origin_breaker.open",
    );
    let token = |fields: &str, path: &str| {
        let keys = r#""keys": [{ "secret": { "env": "SECRET" } }]"#;
        let to = format!(r#""redis": {{}}, "token": {{ {keys}, {fields} }}"#);
        check(r#""redis": {}"#, &to, path);
    };
    token(r#""min_age_ms": 60001"#, "token.min_age_ms");
    token(r#""max_age_ms": 1000"#, "token.max_age_ms");
    token(r#""max_age_ms": 86400001"#, "token.max_age_ms");
    check(
        r#""redis": {}"#,
        r#""redis": {}, "token": { "keys": [] }"#,
        "token.keys",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "checkout_routes": [{ "path": "/{sale}" }]"#,
        "token",
    );
    check(r#""X-User-Id""#, r#""""#, "user_header");
    check(r#""X-User-Id""#, r#""x user""#, "user_header");
    check("/sales/{sale}/orders", "/sales", "routes[0].path");
    check(
        r#"{ "path""#,
        r#"{ "method": "", "path""#,
        "routes[0].method",
    );
    check(r#"{ "path": "/sales/{sale}/orders" }"#, "", "routes");
    check(
        "SECRET",
        "WEIR_NO_SUCH_VARIABLE",
        "claim.keys[0].secret.env",
    );
    check("SECRET", "SHORT", "claim.keys[0].secret");
    check(
        r#"{ "secret""#,
        r#"{ "id": "K", "secret""#,
        "claim.keys[0].id",
    );
    check(
        r#"{ "secret": { "env": "SECRET" } }"#,
        r#"{ "secret": { "env": "SECRET" } }, { "secret": { "env": "SECRET" } }"#,
        "claim.keys[1].id",
    );
    check(r#"{ "secret": { "env": "SECRET" } }"#, "", "claim.keys");
    check(r#"{ "keys""#, r#"{ "ttl_ms": 0, "keys""#, "claim.ttl_ms");
    check(
        r#"{ "keys": [{ "secret": { "env": "SECRET" } }] }"#,
        "{}",
        "claim",
    );
    check(
        r#""redis": {}"#,
        r#""redis": {}, "identify_prefixes": ["/a", "b"]"#,
        "identify_prefixes[1]",
    );
}

#[test]
fn omitted_sale_configuration_fields_get_their_defaults() {
    let config = checked(GOOD).unwrap();
    let page = &config.static_page;
    let default = (page.status, page.content_type.as_str());
    assert_eq!(default, (503, "text/html; charset=utf-8"));
    assert!(
        page.body.contains("<p>The sale is paused."),
        "{}",
        page.body
    );
    assert_eq!(config.retry_after_s, 1);
    assert_eq!(
        (config.limits.slots, config.overload.in_flight_max),
        (4_096, 4_096)
    );
    let limits = [config.limits.user, config.limits.address];
    assert_eq!(limits, [None, None]);
    let identified = [
        config.limits.identified_user,
        config.limits.identified_address,
    ];
    let quotas = identified.map(|quota| quota.map(|quota| (quota.rate(), quota.burst())));
    assert_eq!(quotas, [Some((10, 20)), Some((1_000, 2_000))]);
    assert_eq!(config.claim_keys.signer().id(), "k1");
    let token = format!(r#""redis": {{}}, {TOKEN} }}"#);
    let config = checked(&GOOD.replace(r#""redis": {}"#, &token)).unwrap();
    let ages = config.token.unwrap().ages;
    assert_eq!((ages.min_ms, ages.max_ms), (1_000, 600_000));
}

const TOKEN: &str = r#""token": { "keys": [{ "secret": { "env": "SECRET" } }]"#;

#[test]
fn each_bound_is_itself_allowed() {
    let holds = |field: &str, least: u64, most: u64, to: &dyn Fn(u64) -> (&'static str, String)| {
        for (value, is_good) in [
            (least, true),
            (most, true),
            (most + 1, false),
            (least.wrapping_sub(1), false),
        ] {
            let (from, to) = to(value);
            let read = checked(&GOOD.replacen(from, &to, 1));
            assert_eq!(read.is_ok(), is_good, "{field}: {value}");
        }
    };
    let added = |field: &'static str| {
        move |value: u64| {
            let to = format!(
                r#""redis": {{}}, {}"#,
                field.replace('#', &format!("{value}"))
            );
            (r#""redis": {}"#, to)
        }
    };
    holds("claim.ttl_ms", 1, 86_400_000, &|value| {
        (r#"{ "keys""#, format!(r#"{{ "ttl_ms": {value}, "keys""#))
    });
    holds(
        "poll_interval_ms",
        50,
        60_000,
        &added(r#""poll_interval_ms": #"#),
    );
    holds("retry_after_s", 1, 3_600, &added(r#""retry_after_s": #"#));
    holds(
        "status",
        200,
        599,
        &added(r#""static_page": { "status": # }"#),
    );
    holds("slots", 1, 65_536, &added(r#""limits": { "slots": # }"#));
    holds(
        "in_flight_max",
        1,
        1_000_000,
        &added(r#""overload": { "in_flight_max": # }"#),
    );
    holds(
        "max_age_ms",
        8,
        86_400_000,
        &added(
            r#""token": { "keys": [{ "secret": { "env": "SECRET" } }], "min_age_ms": 7, "max_age_ms": # }"#,
        ),
    );
    holds(
        "min_age_ms",
        0,
        60_000,
        &added(r#""token": { "keys": [{ "secret": { "env": "SECRET" } }], "min_age_ms": # }"#),
    );
    for (length, is_good) in [(0, true), (65_536, true), (65_537, false)] {
        let page = format!(
            r#""redis": {{}}, "static_page": {{ "body": "{}" }}"#,
            "x".repeat(length)
        );
        let read = checked(&GOOD.replacen(r#""redis": {}"#, &page, 1));
        assert_eq!(read.is_ok(), is_good, "{length}");
    }
}

#[test]
fn key_ring_takes_eight_keys_and_no_ninth() {
    let ring = |count: usize| {
        let key = |n| format!(r#"{{ "id": "k{n}", "secret": {{ "env": "SECRET" }} }}"#);
        let keys = (0..count).map(key).collect::<Vec<_>>().join(", ");
        checked(&GOOD.replace(r#"{ "secret": { "env": "SECRET" } }"#, &keys))
    };
    assert!(ring(8).unwrap().claim_keys.find("k7").is_some());
    assert_eq!(ring(9).unwrap_err().path, "claim.keys");
}

#[test]
fn request_kind_is_the_first_with_a_matching_route() {
    let more = format!(
        r#""redis": {{}}, {TOKEN} }}, "checkout_routes": [{{ "path": "/sales/{{sale}}/checkout" }}],
            "status_routes": [{{ "path": "/sales/{{sale}}" }}]"#
    );
    let config = checked(&GOOD.replace(r#""redis": {}"#, &more)).unwrap();
    let kind =
        |method: &str, path: &'static str| config.route_kind(method.as_bytes(), path.as_bytes());
    assert_eq!(kind("POST", "/sales/s/orders"), Some(RouteKind::Buy(b"s")));
    let checkout = kind("POST", "/sales/s/checkout");
    assert_eq!(checkout, Some(RouteKind::Checkout(b"s")));
    assert_eq!(kind("GET", "/sales/s"), Some(RouteKind::Status(b"s")));
    for (method, path) in [
        ("GET", "/sales/s/orders"),
        ("POST", "/sales/s"),
        ("GET", "/"),
    ] {
        assert_eq!(kind(method, path), None, "{method} {path}");
    }
}

#[test]
fn inline_secret_in_the_configuration_is_refused() {
    let error = refused(r#"{ "env": "SECRET" }"#, r#""hush""#);
    assert_eq!(error.path, "claim.keys[0].secret");
}
