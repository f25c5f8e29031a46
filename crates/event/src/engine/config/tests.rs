use super::*;
use alloc::string::ToString;
use weir_engine::config::parse;

/// Environment variables: two secrets, and one that is too short.
pub(crate) fn variable(name: &str) -> Option<Vec<u8>> {
    match name {
        "ERP" => Some(b"0123456789abcdef".into()),
        "SHORT" => Some(b"0123456789".into()),
        _ => None,
    }
}

fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
    parse::<Config>(json.as_bytes())?.checked(&variable)
}

const WEB: &str = r#"{"name":"web","kind":"browser","key":"wk_web_1","origins":["*"]}"#;

fn with(fields: &str) -> Result<CheckedConfig, FieldError> {
    checked(&format!(r#"{{"keys":[{WEB}],"collect":{{}},{fields}}}"#))
}

#[test]
fn unset_event_settings_have_defaults() {
    let config = checked(&format!(r#"{{"keys":[{WEB}],"collect":{{}}}}"#)).unwrap();
    let collect = config.collect.unwrap();
    assert_eq!(
        (&*collect.path, &*collect.pixel_path, &*config.user_header),
        ("/events", "/events.gif", "x-user-id")
    );
    assert_eq!(config.keys[0].sample, Rate::ALL);
    assert_eq!(config.keys[0].consent, Consent::Full);
    assert_eq!(config.signals.consent(true, true), Consent::Anonymous);
    assert_eq!(config.signals.consent(false, true), Consent::Full);
    assert_eq!(config.limits.rules.iter().count(), 0);
}

#[test]
fn example_event_config_is_accepted() {
    let config = checked(
        r#"{"keys":[{"name":"shop-web","kind":"browser","key":"wk_shop_web_1","origins":["https://shop.example"]},
                {"name":"erp","kind":"server","secret":{"env":"ERP"}}],
            "collect":{},
            "limits":{"per_key":{"rate":1000,"per":"1s"},"per_visitor":{"rate":10,"per":"1s"}},
            "observe":{"routes":[{"path":"/products/{sku}"}],"key":"shop-web"}}"#,
    )
    .unwrap();
    assert_eq!(config.limits.rules.iter().count(), 2);
    let observe = config.observe.unwrap();
    assert_eq!(observe.routes[0].1.as_str(), "view");
    assert_eq!(observe.outbox.cluster, "weir_origin");
}

#[test]
fn invalid_field_is_refused_by_its_path() {
    let check = |fields: &str, path: &str| {
        let error = with(fields).unwrap_err();
        assert_eq!(error.path, path, "{error}");
        assert!(error.problem.len() > 10, "{error}");
    };
    check(r#""colour":1"#, "colour");
    check(r#""user_header":"a b""#, "user_header");
    check(r#""trusted_hops":17"#, "trusted_hops");
    check(r#""signals":{"gpc":"nothing"}"#, "signals.gpc");
    check(
        r#""limits":{"per_key":{"rate":0,"per":"1s"}}"#,
        "limits.per_key.rate",
    );
    check(
        r#""limits":{"store":"redis","per_key":{"rate":1,"per":"1s"}}"#,
        "limits.store",
    );
    check(r#""limits":{"report":true}"#, "limits.report");
    check(
        r#""limits":{"redis":{"deadline_ms":0}}"#,
        "limits.redis.deadline_ms",
    );
    check(
        r#""limits":{"breaker":{"probes":0}}"#,
        "limits.breaker.probes",
    );
    check(
        r#""limits":{"rules":[{"name":"a b","limit":{"rate":1,"per":"1s"}}]}"#,
        "limits.rules[0].name",
    );
    let observe = |fields: &str| format!(r#""observe":{{"key":"web",{fields}}}"#);
    check(&observe(r#""routes":[]"#), "observe.routes' length");
    check(
        &observe(r#""routes":[{"path":"/p"}]"#),
        "observe.routes[0].path",
    );
    check(
        &observe(r#""routes":[{"path":"/p/{sku}","type":"A"}]"#),
        "observe.routes[0].type",
    );
    let outbox = |fields: &str| {
        observe(&format!(
            r#""routes":[{{"path":"/p/{{sku}}"}}],"outbox":{{{fields}}}"#
        ))
    };
    check(&outbox(r#""cluster":"""#), "observe.outbox.cluster");
    check(&outbox(r#""path":"events""#), "observe.outbox.path");
    check(&outbox(r#""timeout_ms":0"#), "observe.outbox.timeout_ms");
    check(&outbox(r#""flush_ms":99"#), "observe.outbox.flush_ms");
    check(&outbox(r#""events_max":1001"#), "observe.outbox.events_max");
    check(&outbox(r#""bytes_max":1"#), "observe.outbox.bytes_max");
    check(&outbox(r#""batches_max":0"#), "observe.outbox.batches_max");
    check(
        r#""observe":{"key":"other","routes":[{"path":"/p/{sku}"}]}"#,
        "observe.key",
    );
    check(
        r#""observe":{"key":"web","visitor_cookie":"a b","routes":[{"path":"/p/{sku}"}]}"#,
        "observe.visitor_cookie",
    );
}

#[test]
fn collect_and_pixel_paths_are_valid_and_distinct() {
    let collect = |fields: &str| {
        let json = format!(r#"{{"keys":[{WEB}],"collect":{{{fields}}}}}"#);
        checked(&json).unwrap_err().path
    };
    assert_eq!(collect(r#""path":"events""#), "collect.path");
    assert_eq!(collect(r#""pixel_path":"/a?b""#), "collect.pixel_path");
    assert_eq!(collect(r#""path":"/events.gif""#), "collect.pixel_path");
    let nothing = checked(&format!(r#"{{"keys":[{WEB}]}}"#)).unwrap_err();
    assert!(
        nothing.to_string().contains("`collect` or `observe`"),
        "{nothing}"
    );
}

#[test]
fn invalid_write_keys_are_refused_with_their_path() {
    let check = |keys: &str, path: &str| {
        let error = checked(&format!(r#"{{"keys":[{keys}],"collect":{{}}}}"#)).unwrap_err();
        assert_eq!(error.path, path, "{error}");
        // Errors do not reveal secrets.
        assert!(!error.to_string().contains("0123456789"), "{error}");
    };
    check("", "keys' length");
    check(&format!("{WEB},{WEB}"), "keys[1].name");
    let other = WEB.replace(r#""web""#, r#""app""#);
    check(&format!("{WEB},{other}"), "keys[1]");
    let browser = |fields: &str| format!(r#"{{"name":"a","kind":"browser",{fields}}}"#);
    check(&browser(r#""key":"wk_web_1""#), "keys[0].origins");
    check(&browser(r#""origins":["*"]"#), "keys[0].key");
    check(&browser(r#""origins":["*"],"key":"short""#), "keys[0].key");
    check(
        &browser(r#""origins":["*"],"key":"with a space""#),
        "keys[0].key",
    );
    check(
        &browser(r#""origins":["*"],"secret":{"env":"ERP"}"#),
        "keys[0].secret",
    );
    check(
        &browser(r#""origins":["a"],"key":"wk_web_1""#),
        "keys[0].origins[0]",
    );
    check(
        &browser(r#""origins":["*"],"key":"wk_web_1","sample":1.1"#),
        "keys[0].sample",
    );
    check(
        &browser(r#""origins":["*"],"key":"wk_web_1","consent":"yes""#),
        "keys[0].consent",
    );
    let server = |fields: &str| format!(r#"{{"name":"a","kind":"server"{fields}}}"#);
    check(&server(""), "keys[0].secret");
    check(&server(r#","secret":{"env":"NONE"}"#), "keys[0].secret.env");
    check(&server(r#","secret":{"env":"SHORT"}"#), "keys[0].secret");
    check(&server(r#","key":"0123456789abcdef""#), "keys[0].key");
    check(
        &server(r#","secret":{"env":"ERP"},"origins":["*"]"#),
        "keys[0].origins",
    );
}
