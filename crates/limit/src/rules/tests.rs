use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;
use crate::{Algorithm, Quota, State};
use weir_base::FieldError;

#[derive(Clone, Default)]
struct FakeRequest {
    method: Vec<u8>,
    path: Vec<u8>,
    headers: BTreeMap<String, Vec<u8>>,
    address: Vec<u8>,
    user: Option<Vec<u8>>,
}

impl Request for FakeRequest {
    fn method(&self) -> &[u8] {
        &self.method
    }
    fn path(&self) -> &[u8] {
        &self.path
    }
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers.get(name).cloned()
    }
    fn address(&self) -> Vec<u8> {
        self.address.clone()
    }
    fn user(&self) -> Option<Vec<u8>> {
        self.user.clone()
    }
}

fn get(path: &str) -> FakeRequest {
    FakeRequest {
        method: b"GET".to_vec(),
        path: path.as_bytes().to_vec(),
        address: b"192.0.2.1:1234".to_vec(),
        ..FakeRequest::default()
    }
}

fn with(request: &FakeRequest, name: &str, value: &str) -> FakeRequest {
    let mut request = request.clone();
    request
        .headers
        .insert(name.into(), value.as_bytes().to_vec());
    request
}

fn read(json: &str) -> Result<Rules, FieldError> {
    let config: RulesConfig = serde_json::from_str(json).unwrap();
    config.checked(false)
}

/// A rule with these fields.
fn rule(fields: &str) -> Rule {
    let json = format!(r#"{{"rules":[{{"name":"r","limit":{{"rate":10,"per":"1s"}},{fields}}}]}}"#);
    read(&json).unwrap().get(0).unwrap().clone()
}

fn key(rule: &Rule, request: &FakeRequest) -> Vec<u8> {
    match rule.apply(request) {
        RuleMatch::Hit(ask) => ask.key,
        other => panic!("{other:?}"),
    }
}

fn concerns(fields: &str, request: &FakeRequest) -> bool {
    rule(fields).apply(request) != RuleMatch::Not
}

#[test]
fn minimal_rule_counts_all_requests_together() {
    let rule = rule(r#""mode":"enforce""#);
    let RuleMatch::Hit(ask) = rule.apply(&get("/")) else {
        panic!("it concerns everything")
    };
    assert_eq!((ask.key, ask.cost), (vec![], 1));
    assert_eq!(
        ask.quota,
        Quota::new(Algorithm::Gcra, 10, 1_000, 10).unwrap()
    );
    assert_eq!(
        (rule.store, rule.mode, rule.slots),
        (Store::Local, Mode::Enforce, 4_096)
    );
}

#[test]
fn rule_matches_only_when_all_conditions_match() {
    let check = |matching: &str, request: &FakeRequest, expected| {
        assert_eq!(
            concerns(&format!(r#""match":{matching}"#), request),
            expected,
            "{matching}"
        );
    };
    check(r#"{"methods":["POST","GET"]}"#, &get("/"), true);
    check(r#"{"methods":["PUT"]}"#, &get("/"), false);
    check(r#"{"path":{"exact":"/a"}}"#, &get("/a?b"), true);
    check(r#"{"path":{"exact":"/a"}}"#, &get("/a/"), false);
    check(r#"{"path":{"prefix":"/api"}}"#, &get("/apix?/b"), true);
    check(r#"{"path":{"prefix":"/api/"}}"#, &get("/ap?/api/"), false);
    let template = r#"{"path":{"template":"/users/{id}/orders"}}"#;
    check(template, &get("/users/7/orders?x=/y"), true);
    for other in [
        "/users//orders",
        "/users/7/orders/",
        "/users/7",
        "/users/7/8/orders",
        "/Users/7/orders",
    ] {
        check(template, &get(other), false);
    }
    let headers = r#"{"headers":[{"name":"X-Api-Key"},{"name":"x-internal","present":false}]}"#;
    let with_key = with(&get("/"), "x-api-key", "");
    check(headers, &with_key, true);
    check(headers, &get("/"), false);
    check(headers, &with(&with_key, "x-internal", "1"), false);
    check(
        r#"{"methods":["GET"],"path":{"exact":"/b"}}"#,
        &get("/a"),
        false,
    );
}

#[test]
fn every_key_part_distinguishes_requests() {
    let base = get("/a/b?q=1&r=2");
    let with_user = |name: &str| FakeRequest {
        user: Some(name.as_bytes().to_vec()),
        ..base.clone()
    };
    let from = |address: &str| FakeRequest {
        address: address.as_bytes().to_vec(),
        ..base.clone()
    };
    let check = |part: &str, one: &FakeRequest, other: &FakeRequest, are_alike: bool| {
        let rule = rule(&format!(r#""key":[{part}]"#));
        assert_eq!(key(&rule, one) == key(&rule, other), are_alike, "{part}");
    };
    check(
        r#""method""#,
        &base,
        &FakeRequest {
            method: b"PUT".to_vec(),
            ..base.clone()
        },
        false,
    );
    check(r#""user""#, &with_user("a"), &with_user("b"), false);
    check(r#""user""#, &with_user(""), &base, true);
    check(
        r#"{"header":"X-Key"}"#,
        &with(&base, "x-key", "1"),
        &with(&base, "x-key", "2"),
        false,
    );
    check(
        r#"{"header":"x-key"}"#,
        &with(&base, "x-key", ""),
        &base,
        false,
    );
    check(r#"{"query":"q"}"#, &base, &get("/?q=2"), false);
    check(
        r#"{"query":"q"}"#,
        &base,
        &get("/other?x&%71=%31&q=2"),
        true,
    );
    check(r#"{"query":"q"}"#, &get("/?q"), &get("/?q="), true);
    check(r#"{"query":"q"}"#, &get("/?q"), &get("/"), false);
    check(
        r#"{"cookie":"c"}"#,
        &with(&base, "cookie", "a=1; c=2"),
        &with(&base, "cookie", "c=2;a=0"),
        true,
    );
    check(
        r#"{"cookie":"c"}"#,
        &with(&base, "cookie", "c=1"),
        &with(&base, "cookie", "c=2"),
        false,
    );
    check(
        r#"{"cookie":"c"}"#,
        &with(&base, "cookie", "cc=2"),
        &base,
        true,
    );
    check(r#"{"segment":1}"#, &base, &get("/x/b"), true);
    check(r#"{"segment":1}"#, &base, &get("/a/%62?"), true);
    check(r#"{"segment":1}"#, &base, &get("/a/c"), false);
    check(r#"{"segment":1}"#, &get("/a"), &get("/a/"), false);
    check(r#""address""#, &base, &from("192.0.2.1:9"), true);
    check(r#""address""#, &base, &from("192.0.2.2:1234"), false);
    check(
        r#""address""#,
        &from("[2001:db8::1]:1"),
        &from("[2001:db8::ffff]:2"),
        true,
    );
    check(
        r#""address""#,
        &from("[2001:db8::1]:1"),
        &from("[2001:db8:0:1::1]:1"),
        false,
    );
}

#[test]
fn rule_reports_whether_it_needs_the_user() {
    assert!(rule(r#""key":["address","user"]"#).needs_user());
    assert!(!rule(r#""key":["address",{"header":"user"}]"#).needs_user());
}

#[test]
fn different_value_lists_have_different_keys() {
    let rule = rule(r#""key":[{"header":"a"},{"header":"b"}]"#);
    let of = |a: &str, b: &str| key(&rule, &with(&with(&get("/"), "a", a), "b", b));
    assert_ne!(of("xy", ""), of("x", "y"));
    assert_ne!(of("", ""), key(&rule, &with(&get("/"), "a", "")));
}

#[test]
fn client_address_is_taken_only_from_trusted_proxies() {
    let rule = rule(r#""key":[{"forwarded":{"trusted_hops":1}}]"#);
    let of = |chain: &str| key(&rule, &with(&get("/"), "x-forwarded-for", chain));
    let peer = key(&rule, &get("/"));
    // The last is the peer, a trusted proxy, which saw the one before it; earlier addresses come from the client.
    assert_eq!(
        of("203.0.113.9, 192.0.2.1"),
        of("6.6.6.6,203.0.113.9,192.0.2.1")
    );
    assert_ne!(of("203.0.113.9, 192.0.2.1"), of("203.0.113.8, 192.0.2.1"));
    for too_short in ["", "192.0.2.1", "nonsense, 192.0.2.1", ",192.0.2.1"] {
        assert_eq!(of(too_short), peer, "{too_short}");
    }
    let long = format!("{}203.0.113.9, 192.0.2.1", "6.6.6.6, ".repeat(10_000));
    assert_eq!(of(&long), of("203.0.113.9, 192.0.2.1"));
}

#[test]
fn named_keys_have_own_limits_no_limit_or_are_denied() {
    let rule = rule(
        r#""key":[{"header":"caller"},"address"],
        "overrides":[{"key":["big","192.0.2.1"],"limit":{"rate":100,"per":"1s","burst":200}}],
        "allow":[["probe","192.0.2.1"]], "deny":[["bad","192.0.2.1"]]"#,
    );
    let applied = |caller: &str| rule.apply(&with(&get("/"), "caller", caller));
    let burst = |caller: &str| match applied(caller) {
        RuleMatch::Hit(ask) => ask.quota.burst(),
        other => panic!("{other:?}"),
    };
    assert_eq!((burst("big"), burst("small")), (200, 10));
    assert_eq!(
        (applied("probe"), applied("bad")),
        (RuleMatch::Not, RuleMatch::Denied)
    );
}

#[test]
fn cost_comes_from_rule_or_from_bounded_header() {
    let cost = |rule: &Rule, request: &FakeRequest| match rule.apply(request) {
        RuleMatch::Hit(ask) => ask.cost,
        other => panic!("{other:?}"),
    };
    assert_eq!(cost(&rule(r#""cost":3"#), &get("/")), 3);
    let by_header = rule(r#""cost_header":{"name":"X-Cost","max":7}"#);
    let of = |value: &str| cost(&by_header, &with(&get("/"), "x-cost", value));
    assert_eq!(cost(&by_header, &get("/")), 1);
    assert_eq!(
        (of(" 5 "), of("8"), of("99999999999"), of("0")),
        (5, 7, 7, 1)
    );
    assert_eq!((of("-3"), of("a"), of("1.5"), of("")), (1, 1, 1, 1));
}

/// The path in the error for a rule with these fields.
fn refused(fields: &str) -> String {
    let error = read(&format!(r#"{{"rules":[{{"name":"r",{fields}}}]}}"#)).unwrap_err();
    assert!(error.problem.len() > 10, "{error}");
    let path = error.path.strip_prefix("rules[0].");
    path.unwrap_or(&error.path).to_string()
}

#[test]
fn invalid_field_is_refused_by_its_path() {
    let limit = |limit: &str| refused(&format!(r#""limit":{limit}"#));
    assert_eq!(limit(r#"{"rate":0,"per":"1s"}"#), "limit.rate");
    assert_eq!(limit(r#"{"rate":1000001,"per":"1s"}"#), "limit.rate");
    assert_eq!(limit(r#"{"rate":1,"per":"0s"}"#), "limit.per");
    assert_eq!(limit(r#"{"rate":1,"per":"367d"}"#), "limit.per");
    assert_eq!(limit(r#"{"rate":1,"per":"1s","burst":0}"#), "limit.burst");
    assert_eq!(
        limit(r#"{"rate":1,"per":"366d","burst":1000000}"#),
        "limit.burst"
    );
    let bursting = r#""limit":{"rate":1,"per":"1s","burst":2}"#;
    assert_eq!(
        refused(&format!(r#"{bursting},"algorithm":"fixed_window""#)),
        "limit.burst"
    );
    let check = |fields: &str, path: &str| {
        let fields = format!(r#""limit":{{"rate":10,"per":"1s"}},{fields}"#);
        assert_eq!(refused(&fields), path, "{fields}");
    };
    check(r#""slots":0"#, "slots");
    check(r#""slots":65537"#, "slots");
    check(r#""cost":0"#, "cost");
    check(r#""cost":11"#, "cost");
    check(
        r#""cost":1,"cost_header":{"name":"c","max":2}"#,
        "cost_header",
    );
    check(r#""cost_header":{"name":"","max":2}"#, "cost_header.name");
    check(r#""cost_header":{"name":"c","max":11}"#, "cost_header.max");
    check(r#""on_store_error":"open""#, "on_store_error");
    check(r#""lease":{"max":2}"#, "lease");
    check(r#""store":"redis","lease":{"max":1}"#, "lease.max");
    check(r#""store":"redis","lease":{"max":11}"#, "lease.max");
    check(
        r#""store":"redis","lease":{"max":2,"lasts":"2s"}"#,
        "lease.lasts",
    );
    check(
        r#""store":"redis","algorithm":"concurrency","lease":{"max":2}"#,
        "lease",
    );
    for method in ["", "get", "Post", "FOO", "GET "] {
        let rule = format!(r#""match":{{"methods":["GET","{method}"]}}"#);
        check(&rule, "match.methods[1]");
    }
    check(r#""match":{"path":{"exact":"a"}}"#, "match.path");
    check(r#""match":{"path":{"prefix":"/a?b"}}"#, "match.path");
    check(r#""match":{"path":{"template":"/a{b}"}}"#, "match.path");
    check(r#""match":{"path":{"template":"/{}"}}"#, "match.path");
    check(
        r#""match":{"headers":[{"name":"a b"}]}"#,
        "match.headers[0].name",
    );
    check(r#""key":["user",{"header":"a:b"}]"#, "key[1].header");
    check(r#""key":[{"query":""}]"#, "key[0].query");
    check(r#""key":[{"cookie":"a=b"}]"#, "key[0].cookie");
    check(r#""key":[{"segment":64}]"#, "key[0].segment");
    check(
        r#""key":[{"forwarded":{"trusted_hops":0}}]"#,
        "key[0].forwarded.trusted_hops",
    );
    check(
        r#""key":["user","user","user","user","user","user","user","user","user"]"#,
        "key",
    );
    check(r#""allow":[[]]"#, "allow[0]");
    check(r#""key":["user"],"deny":[["a","b"]]"#, "deny[0]");
    check(r#""key":["address"],"deny":[["localhost"]]"#, "deny[0][0]");
    check(r#""key":["user"],"allow":[["a"]],"deny":[["a"]]"#, "deny");
    let other = r#"{"key":["a"],"limit":{"rate":2,"per":"1s"}}"#;
    check(
        &format!(r#""key":["user"],"overrides":[{other},{other}]"#),
        "overrides[1].key",
    );
    check(
        &format!(r#""key":["user"],"cost":3,"overrides":[{other}]"#),
        "cost",
    );
    let none = other.replace(":2,", ":0,");
    check(
        &format!(r#""key":["user"],"overrides":[{none}]"#),
        "overrides[0].limit.rate",
    );
}

#[test]
fn rule_names_are_plain_and_unique() {
    let named = |names: &[&str]| {
        let rule = |name: &&str| format!(r#"{{"name":"{name}","limit":{{"rate":1,"per":"1s"}}}}"#);
        let rules: Vec<_> = names.iter().map(rule).collect();
        read(&format!(r#"{{"rules":[{}]}}"#, rules.join(","))).map_err(|error| error.path)
    };
    assert_eq!(named(&["a", "b_2-C"]).unwrap().iter().count(), 2);
    assert_eq!(named(&["a", "a"]).unwrap_err(), "rules[1].name");
    for bad in ["", "a b", "a.b", "ü", &"x".repeat(65)] {
        assert_eq!(named(&[bad]).unwrap_err(), "rules[0].name", "{bad}");
    }
    let many: Vec<_> = (0..=RULES_MAX).map(|n| n.to_string()).collect();
    assert_eq!(
        named(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err(),
        "rules"
    );
}

#[test]
fn number_of_named_keys_of_a_rule_is_bounded() {
    let path_of = |field: &str, count: usize| {
        let keys: Vec<_> = (0..count).map(|n| format!(r#"["{n}"]"#)).collect();
        let list = match field {
            "overrides" => keys
                .iter()
                .map(|key| format!(r#"{{"key":{key},"limit":{{"rate":1,"per":"1s"}}}}"#))
                .collect::<Vec<_>>(),
            _ => keys,
        };
        let json = format!(
            r#"{{"rules":[{{"name":"r","key":["user"],"limit":{{"rate":1,"per":"1s"}},"{field}":[{}]}}]}}"#,
            list.join(",")
        );
        read(&json).map(|_| ()).map_err(|error| error.path)
    };
    for field in ["allow", "deny", "overrides"] {
        assert_eq!(path_of(field, LISTED_MAX), Ok(()));
        let refused = Err(format!("rules[0].{field}"));
        assert_eq!(path_of(field, LISTED_MAX + 1), refused);
    }
}

/// Gateways of two versions share a limit only if both compute the same key: half of SHA-256.
#[test]
fn redis_key_name_is_stable() {
    let digest = |fields: &str| match rule(fields).apply(&get("/")) {
        RuleMatch::Hit(hit) => hit.digest(),
        other => panic!("{other:?}"),
    };
    // The digest of no bytes, from FIPS 180-4.
    let of_nothing = 0xe3b0_c442_98fc_1c14_9afb_f4c8_996f_b924_u128;
    assert_eq!(digest(r#""key":[]"#), of_nothing.to_be_bytes());
    assert_ne!(digest(r#""key":["method"]"#), of_nothing.to_be_bytes());
}

#[test]
fn unknown_rule_fields_are_refused() {
    for bad in [
        r#"{"rules":[],"colour":1}"#,
        r#"{"rules":[{"name":"a","limit":{"rate":1,"per":"1s"},"colour":1}]}"#,
        r#"{"rules":[{"name":"a","limit":{"rate":1,"per":"1 s"}}]}"#,
        r#"{"rules":[{"name":"a","limit":{"rate":1,"per":"1s"},"algorithm":"leaky"}]}"#,
        r#"{"rules":[{"name":"a","limit":{"rate":1,"per":"1s"},"key":["phase"]}]}"#,
        r#"{"rules":[{"name":"a"}]}"#,
        r#"{}"#,
    ] {
        assert!(serde_json::from_str::<RulesConfig>(bad).is_err(), "{bad}");
    }
}

#[test]
fn second_redis_rule_is_refused_on_a_cluster() {
    let rule = |name: &str, store: &str| {
        format!(r#"{{"name":"{name}","store":"{store}","limit":{{"rate":1,"per":"1s"}}}}"#)
    };
    let checked = |stores: [&str; 3], one_slot_a_call| {
        let rules = [
            rule("a", stores[0]),
            rule("b", stores[1]),
            rule("c", stores[2]),
        ]
        .join(",");
        let config: RulesConfig =
            serde_json::from_str(&format!(r#"{{"rules":[{rules}]}}"#)).unwrap();
        config.checked(one_slot_a_call).map_err(|error| error.path)
    };
    let two = ["redis", "local", "redis"];
    assert_eq!(checked(two, true).unwrap_err(), "rules[2].store");
    assert_eq!(
        checked(two, false)
            .unwrap()
            .iter()
            .filter(|rule| rule.needs_redis())
            .count(),
        2
    );
    assert!(checked(["local", "redis", "local"], true).is_ok());
}

#[test]
fn header_fields_list_the_results_of_all_rules() {
    let mut policy = String::new();
    fields::append_policy(&mut policy, "a", &Quota::per_second(10, 30));
    let day = Quota::new(Algorithm::FixedWindow, 5, 86_400_000, 1).unwrap();
    fields::append_policy(&mut policy, "b-2", &day);
    assert_eq!(policy, r#""a";q=30;w=3, "b-2";q=5;w=86400"#);
    let quota = Quota::per_second(10, 25);
    let mut state = State::new(&quota, 1_000);
    let mut limit = String::new();
    fields::append_limit(&mut limit, "a", &state.check(&quota, 1), false);
    state.charge(&quota, 25);
    fields::append_limit(&mut limit, "b", &state.check(&quota, 1), true);
    assert_eq!(limit, r#""a";r=25, "b";r=0;t=1"#);
}

proptest! {
    /// No input causes a panic, and equal requests have equal keys.
    #[test]
    fn no_request_panics_a_rule(
        path in prop::collection::vec(any::<u8>(), 0..80), header in prop::collection::vec(any::<u8>(), 0..80),
        address in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let rule = rule(
            r#""match":{"path":{"template":"/{a}/b"}}, "cost_header":{"name":"h","max":3},
            "key":["address",{"forwarded":{"trusted_hops":2}},{"query":"q"},{"cookie":"c"},{"segment":1},{"header":"h"}]"#,
        );
        let mut request = FakeRequest { path, address, ..get("/") };
        for name in ["h", "cookie", "x-forwarded-for"] {
            request.headers.insert(name.into(), header.clone());
        }
        prop_assert_eq!(rule.apply(&request), rule.apply(&request));
    }
}

#[test]
fn operator_key_text_shows_the_client_but_no_password() {
    let rules = read(
        r#"{"rules":[{"name":"r","limit":{"rate":1,"per":"1s"},"key":["user","address","method",
            {"segment":1},{"header":"x-api-key"},{"cookie":"sid"},{"query":"token"}]}]}"#,
    );
    let rules = rules.unwrap();
    let rule = rules.get(0).unwrap();
    let mut request = with(&get("/a/b%20c?token=hunter2"), "x-api-key", "hunter2");
    request.user = Some(b"alice".to_vec());
    let displayed = rule.describe_key(&key(rule, &request));
    assert_eq!(
        displayed,
        "alice, 192.0.2.1, GET, b c, header x-api-key #f52fbd32, \u{2013}, query token #f52fbd32"
    );
    request.user = Some(vec![b'x'; 300]);
    request.address = b"/tmp/socket".to_vec();
    let displayed = rule.describe_key(&key(rule, &request));
    let begins = format!("{}, no address, ", "x".repeat(64));
    assert!(displayed.starts_with(&begins), "{displayed}");
    // An invalid key has no text.
    assert_eq!(rule.describe_key(b"\xff\0\0\0no"), "");
}
