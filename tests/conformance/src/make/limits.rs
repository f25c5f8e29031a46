//! Rate limits: each algorithm, in the gateway and in Redis, the keys they count, and the answers to clients.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};
use weir_limit::redis::keys::limit_rules;

use super::{Ask, Draft, EDGE_SECRET, NOW_MS, POLL_INTERVAL_MS, edges};
use crate::vector::Vector;

const ALGORITHMS: [&str; 4] = ["gcra", "sliding_window", "fixed_window", "concurrency"];
const STORES: [&str; 2] = ["local", "redis"];
const PASSES: &str = "goes on";
const REFUSED: &str = "429 rate_limited";

/// A limiter with these rules. Rule names are unique across vectors, because all gateways share one memory.
pub(super) fn limiter(name: &str, engine: &str, mut rules: Value, more: &Value) -> Draft {
    let unique = name.replace('/', "-");
    for (index, rule) in rules.as_array_mut().into_iter().flatten().enumerate() {
        rule["name"] = json!(format!("{index}-{unique}"));
    }
    let mut config = json!({ "rules": rules, "user_header": "x-user-id", "redis": {} });
    for (field, value) in more.as_object().into_iter().flatten() {
        config[field] = value.clone();
    }
    Draft::new(format!("limits/{name}"), engine, config)
}

fn one_rule(name: &str, rule: Value) -> Draft {
    limiter(name, "ratelimit", json!([rule]), &json!({}))
}

pub(super) fn get(path: &str) -> Ask {
    Ask::get(path)
}

fn user(user: &str) -> Ask {
    Ask::get("/").header("x-user-id", user)
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = algorithms();
    drafts.extend(costs());
    drafts.extend(keys());
    drafts.extend(matches());
    drafts.extend(lists());
    drafts.extend(several());
    drafts.extend(quota_headers());
    drafts.extend(without_redis());
    drafts.extend(reloads());
    drafts.extend(of_edges());
    drafts.into_iter().map(Draft::done).collect()
}

fn rule(algorithm: &str, store: &str, rate: u32, burst: Option<u32>) -> Value {
    let mut limit = json!({ "rate": rate, "per": "1s" });
    if let Some(burst) = burst.filter(|_| algorithm == "gcra") {
        limit["burst"] = json!(burst);
    }
    json!({ "limit": limit, "algorithm": algorithm, "store": store })
}

/// Each algorithm at its limits. The first second begins with the first request, because NOW_MS is whole seconds.
fn algorithms() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for store in STORES {
        for algorithm in ALGORITHMS {
            let of = |subject: &str, rate: u32, burst: Option<u32>| {
                let name = format!("{store}/{algorithm}-{subject}");
                one_rule(&name, rule(algorithm, store, rate, burst))
            };
            // Requests end immediately here, so there is never a second one in flight.
            let at_once = algorithm == "concurrency";
            let second = if at_once { PASSES } else { REFUSED };
            drafts.push(
                of("one-a-second", 1, None)
                    .ask(get("/"), PASSES)
                    .ask(get("/"), second),
            );
            drafts.push(
                of("a-millisecond-early", 1, None)
                    .ask(get("/"), PASSES)
                    .after(999)
                    .ask(get("/"), second),
            );
            drafts.push(
                of("in-time", 1, None)
                    .ask(get("/"), PASSES)
                    .after(1_000)
                    .ask(get("/"), PASSES),
            );
            let mut full = of("all-at-once", 3, None);
            for _ in 0..3 {
                full = full.ask(get("/"), PASSES);
            }
            drafts.push(full.ask(get("/"), second).ask(get("/"), second));
            // Half a period later, GCRA has recovered one of two; a fixed or sliding window has recovered none.
            let half = match algorithm {
                "gcra" | "concurrency" => PASSES,
                _ => REFUSED,
            };
            drafts.push(
                of("half-a-period-later", 2, None)
                    .ask(get("/"), PASSES)
                    .ask(get("/"), PASSES)
                    .after(500)
                    .ask(get("/"), half),
            );
            // From the middle of one period to the start of the next, where a fixed window resets.
            let across = match algorithm {
                "fixed_window" | "concurrency" => PASSES,
                _ => REFUSED,
            };
            drafts.push(
                of("across-a-boundary", 1, None)
                    .after(600)
                    .ask(get("/"), PASSES)
                    .after(400)
                    .ask(get("/"), across),
            );
        }
        let burst = one_rule(
            &format!("{store}/gcra-burst-beyond-the-rate"),
            rule("gcra", store, 1, Some(3)),
        );
        drafts.push(
            burst
                .ask(get("/"), PASSES)
                .ask(get("/"), PASSES)
                .ask(get("/"), PASSES)
                .ask(get("/"), REFUSED)
                .after(1_000)
                .ask(get("/"), PASSES)
                .ask(get("/"), REFUSED),
        );
        let mut slow = rule("gcra", store, 1, None);
        slow["limit"]["per"] = json!("1h");
        drafts.push(
            one_rule(&format!("{store}/gcra-one-an-hour"), slow)
                .ask(get("/"), PASSES)
                .ask(get("/"), REFUSED)
                .after(3_599_999)
                .ask(get("/"), REFUSED)
                .after(1)
                .ask(get("/"), PASSES),
        );
    }
    drafts
}

fn costs() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for store in STORES {
        let mut fixed = rule("fixed_window", store, 5, None);
        fixed["cost"] = json!(2);
        drafts.push(
            one_rule(&format!("{store}/cost-of-two"), fixed)
                .ask(get("/"), PASSES)
                .ask(get("/"), PASSES)
                .ask(get("/"), REFUSED),
        );
        let by_header = |subject: &str, value: &str, expected: &str| {
            let mut by_header = rule("fixed_window", store, 5, None);
            by_header["cost_header"] = json!({ "name": "x-cost", "max": 4 });
            one_rule(&format!("{store}/cost-{subject}"), by_header)
                .ask(get("/").header("x-cost", value), PASSES)
                .ask(get("/").header("x-cost", "2"), expected)
        };
        drafts.push(by_header("three", "3", PASSES));
        drafts.push(by_header("four", "4", REFUSED));
        drafts.push(by_header("beyond-the-most", "100", REFUSED));
        drafts.push(by_header("no-number", "many", PASSES));
        drafts.push(by_header("below-nothing", "-1", PASSES));
    }
    drafts
}

/// Requests from an edge: a valid assertion identifies the client.
fn of_edges() -> Vec<Draft> {
    let rule = || {
        let mut rule = rule("fixed_window", "local", 1, None);
        rule["key"] = json!(["address"]);
        rule
    };
    let of = |name: &str, more: &Value| {
        let draft = limiter(&format!("edges/{name}"), "ratelimit", json!([rule()]), more);
        draft.secret(EDGE_SECRET.0)
    };
    let believed = json!({ "edges": edges() });
    let by = |client: &str, secret: &str, at_ms: u64| get("/").stamped(client, secret, at_ms);
    let good = |client: &str| by(client, EDGE_SECRET.1, NOW_MS);
    let forged = |client: &str| by(client, &"forged".repeat(8), NOW_MS);
    let old = |client: &str| by(client, EDGE_SECRET.1, NOW_MS - 61_000);
    vec![
        of("a-stamp-names-the-client", &believed)
            .ask(good("192.0.2.1"), PASSES)
            .ask(good("192.0.2.2"), PASSES)
            .ask(good("192.0.2.1"), REFUSED)
            .ask(get("/").from("192.0.2.1:9"), REFUSED)
            .ask(get("/").from("203.0.113.9:443"), PASSES),
        of("a-forged-stamp-names-nobody", &believed)
            .ask(forged("192.0.2.1"), PASSES)
            .ask(forged("192.0.2.2"), REFUSED),
        of("an-old-stamp-names-nobody", &believed)
            .ask(old("192.0.2.1"), PASSES)
            .ask(old("192.0.2.2"), REFUSED),
        of("without-keys-no-stamp-counts", &json!({}))
            .ask(good("192.0.2.1"), PASSES)
            .ask(good("192.0.2.2"), REFUSED),
    ]
}

/// Shared limits: the first two requests share one, the third does not.
fn keys() -> Vec<Draft> {
    let h = |name: &str, value: &str| get("/").header(name, value);
    let cases: Vec<(&str, Value, [Ask; 3])> = vec![
        (
            "address",
            json!(["address"]),
            [
                get("/").from("192.0.2.1:1"),
                get("/").from("192.0.2.1:2"),
                get("/").from("192.0.2.2:1"),
            ],
        ),
        (
            "network",
            json!(["address"]),
            [
                get("/").from("[2001:db8::1]:1"),
                get("/").from("[2001:db8::ffff:1]:1"),
                get("/").from("[2001:db8:0:1::1]:1"),
            ],
        ),
        (
            "forwarded",
            json!([{ "forwarded": { "trusted_hops": 1 } }]),
            [
                h("x-forwarded-for", "203.0.113.1, 192.0.2.1"),
                h("x-forwarded-for", "198.51.100.7, 203.0.113.1, 192.0.2.1"),
                h("x-forwarded-for", "203.0.113.2, 192.0.2.1"),
            ],
        ),
        ("user", json!(["user"]), [user("a"), user("a"), user("b")]),
        (
            "nobody-is-a-user",
            json!(["user"]),
            [get("/"), get("/"), user("b")],
        ),
        (
            "method",
            json!(["method"]),
            [get("/"), get("/x"), Ask::new("POST", "/")],
        ),
        (
            "header",
            json!([{ "header": "x-key" }]),
            [h("x-key", "1"), h("x-key", "1"), h("x-key", "2")],
        ),
        (
            "header-that-comes-twice",
            json!([{ "header": "x-key" }]),
            [
                h("x-key", "1").header("x-key", "2"),
                h("x-key", "1").header("x-key", "2"),
                h("x-key", "1"),
            ],
        ),
        (
            "header-in-capitals",
            json!([{ "header": "X-Key" }]),
            [h("x-key", "1"), h("X-KEY", "1"), h("X-Key", "2")],
        ),
        (
            "header-of-bytes",
            json!([{ "header": "x-key" }]),
            [
                h("x-key", "\\xff"),
                h("x-key", "\\xff"),
                h("x-key", "\\xfe"),
            ],
        ),
        (
            "query",
            json!([{ "query": "k" }]),
            [get("/?k=1"), get("/?z=2&k=1"), get("/?k=2")],
        ),
        (
            "query-decoded",
            json!([{ "query": "k" }]),
            [get("/?k=a"), get("/?k=%61"), get("/?k=%62")],
        ),
        (
            "query-first-of-a-name",
            json!([{ "query": "k" }]),
            [get("/?k=1&k=2"), get("/?k=1&k=3"), get("/?k=2&k=1")],
        ),
        (
            "cookie",
            json!([{ "cookie": "c" }]),
            [
                h("cookie", "c=1"),
                h("cookie", "b=2; c=1"),
                h("cookie", "c=2; b=1"),
            ],
        ),
        (
            "segment",
            json!([{ "segment": 1 }]),
            [get("/u/1"), get("/v/1/x"), get("/u/2")],
        ),
        (
            "segment-decoded",
            json!([{ "segment": 0 }]),
            [get("/a"), get("/%61"), get("/b")],
        ),
        (
            "two-parts",
            json!(["user", "method"]),
            [
                user("a"),
                user("a"),
                Ask::new("POST", "/").header("x-user-id", "a"),
            ],
        ),
    ];
    let mut drafts = Vec::new();
    for store in STORES {
        for (name, key, [first, same, other]) in &cases {
            let mut rule = rule("fixed_window", store, 1, None);
            rule["key"] = key.clone();
            drafts.push(
                one_rule(&format!("{store}/key-{name}"), rule)
                    .ask(first.clone(), PASSES)
                    .ask(same.clone(), REFUSED)
                    .ask(other.clone(), PASSES),
            );
        }
    }
    drafts
}

/// The requests that a rule matches: it refuses the second of them.
fn matches() -> Vec<Draft> {
    let post = |path: &str| Ask::new("POST", path);
    let cases: Vec<(&str, Value, Ask, bool)> = vec![
        (
            "its-method",
            json!({ "methods": ["POST"] }),
            post("/"),
            true,
        ),
        (
            "another-method",
            json!({ "methods": ["POST"] }),
            get("/"),
            false,
        ),
        (
            "one-of-methods",
            json!({ "methods": ["PUT", "GET"] }),
            get("/"),
            true,
        ),
        (
            "its-path",
            json!({ "path": { "exact": "/a" } }),
            get("/a"),
            true,
        ),
        (
            "its-path-with-query",
            json!({ "path": { "exact": "/a" } }),
            get("/a?b=c"),
            true,
        ),
        (
            "a-longer-path",
            json!({ "path": { "exact": "/a" } }),
            get("/a/"),
            false,
        ),
        (
            "another-case",
            json!({ "path": { "exact": "/a" } }),
            get("/A"),
            false,
        ),
        (
            "its-beginning",
            json!({ "path": { "prefix": "/api" } }),
            get("/api/x"),
            true,
        ),
        (
            "only-in-letters-its-beginning",
            json!({ "path": { "prefix": "/api" } }),
            get("/apix"),
            true,
        ),
        (
            "not-its-beginning",
            json!({ "path": { "prefix": "/api/" } }),
            get("/api"),
            false,
        ),
        (
            "its-template",
            json!({ "path": { "template": "/u/{id}/o" } }),
            get("/u/7/o"),
            true,
        ),
        (
            "too-many-segments",
            json!({ "path": { "template": "/u/{id}/o" } }),
            get("/u/7/8/o"),
            false,
        ),
        (
            "a-header-there",
            json!({ "headers": [{ "name": "x-a" }] }),
            get("/").header("x-a", ""),
            true,
        ),
        (
            "a-header-missing",
            json!({ "headers": [{ "name": "x-a" }] }),
            get("/"),
            false,
        ),
        (
            "a-header-must-be-absent",
            json!({ "headers": [{ "name": "x-a", "present": false }] }),
            get("/"),
            true,
        ),
        (
            "an-absent-header-there",
            json!({ "headers": [{ "name": "x-a", "present": false }] }),
            get("/").header("x-a", "1"),
            false,
        ),
        (
            "all-of-it",
            json!({ "methods": ["GET"], "path": { "exact": "/a" }, "headers": [{ "name": "x-a" }] }),
            get("/a").header("x-a", "1"),
            true,
        ),
    ];
    let draft = |(name, matching, ask, is_concerned): (&str, Value, Ask, bool)| {
        let mut rule = rule("fixed_window", "local", 1, None);
        rule["match"] = matching;
        let expected = if is_concerned { REFUSED } else { PASSES };
        one_rule(&format!("match/{name}"), rule)
            .ask(ask.clone(), PASSES)
            .ask(ask, expected)
    };
    cases.into_iter().map(draft).collect()
}

/// Keys with their own limit, without a limit, and with a limit of zero.
fn lists() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for store in STORES {
        let of = |subject: &str, field: &str, value: Value| {
            let mut rule = rule("fixed_window", store, 2, None);
            rule["key"] = json!(["user"]);
            rule[field] = value;
            one_rule(&format!("{store}/{subject}"), rule)
        };
        drafts.push(
            of("allowed", "allow", json!([["vip"]]))
                .ask(user("vip"), PASSES)
                .ask(user("vip"), PASSES)
                .ask(user("vip"), PASSES),
        );
        drafts.push(
            of("denied", "deny", json!([["bad"]]))
                .ask(user("bad"), "403 denied")
                .ask(user("good"), PASSES),
        );
        let smaller = json!([{ "key": ["slow"], "limit": { "rate": 1, "per": "1s" } }]);
        drafts.push(
            of("smaller-for-one", "overrides", smaller)
                .ask(user("slow"), PASSES)
                .ask(user("slow"), REFUSED)
                .ask(user("other"), PASSES)
                .ask(user("other"), PASSES),
        );
        drafts.push(
            of("shadow", "mode", json!("shadow"))
                .ask(user("a"), PASSES)
                .ask(user("a"), PASSES)
                .ask(user("a"), PASSES),
        );
    }
    drafts
}

/// A request is charged to all its limits or to none.
fn several() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (wide, narrow) in [
        ("local", "local"),
        ("local", "redis"),
        ("redis", "local"),
        ("redis", "redis"),
    ] {
        let all = rule("fixed_window", wide, 2, None);
        let mut each = rule("fixed_window", narrow, 1, None);
        each["key"] = json!(["user"]);
        let name = format!("several/{wide}-and-{narrow}");
        drafts.push(
            limiter(&name, "ratelimit", json!([all, each]), &json!({}))
                .ask(user("a"), PASSES)
                .ask(user("a"), REFUSED)
                .ask(user("b"), PASSES)
                .ask(user("c"), REFUSED),
        );
    }
    drafts
}

/// Quota headers for clients.
fn quota_headers() -> Vec<Draft> {
    let one = || json!([rule("fixed_window", "local", 1, None)]);
    let three = |store: &str| json!([rule("gcra", store, 3, None)]);
    let grpc = Ask::new("POST", "/pkg.Service/Method").header("content-type", "application/grpc");
    let body =
        json!({ "answer": { "status": 503, "content_type": "text/plain", "body": "slow down" } });
    let mut drafts = vec![
        limiter(
            "told/legacy",
            "ratelimit",
            one(),
            &json!({ "headers": { "legacy": true } }),
        )
        .ask(get("/"), PASSES)
        .ask(get("/"), REFUSED),
        limiter("told/an-answer-of-ones-own", "ratelimit", one(), &body)
            .ask(get("/"), PASSES)
            .ask(get("/"), "503"),
        limiter("told/grpc", "ratelimit", one(), &json!({}))
            .ask(grpc.clone(), PASSES)
            .ask(grpc, "200 grpc 8"),
    ];
    for store in STORES {
        let on_allowed = json!({ "headers": { "on_allowed": true } });
        let both = json!({ "headers": { "on_allowed": true, "legacy": true } });
        let of = |name: &str, more: &Value| {
            limiter(
                &format!("told/{store}-{name}"),
                "ratelimit-headers",
                three(store),
                more,
            )
            .ask(get("/"), PASSES)
            .ask(get("/"), PASSES)
            .after(100)
            .ask(get("/"), PASSES)
            .ask(get("/"), REFUSED)
        };
        drafts.push(of("when-allowed", &on_allowed));
        drafts.push(of("when-allowed-in-both-ways", &both));
        drafts.push(of("only-when-refused", &json!({})));
    }
    let debug = json!({ "debug": { "secret": { "env": "WEIR_DEBUG_SECRET" } } });
    for (name, secret) in [
        ("operator", "operators-only-secret"),
        ("not-the-operator", "a-guess-at-the-secret"),
    ] {
        let mut shadow = rule("fixed_window", "local", 1, None);
        shadow["mode"] = json!("shadow");
        let ask = get("/").header("x-weir-debug", secret);
        drafts.push(
            limiter(
                &format!("told/{name}"),
                "ratelimit-headers",
                json!([shadow]),
                &debug,
            )
            .secret("WEIR_DEBUG_SECRET")
            .ask(ask.clone(), PASSES)
            .ask(ask, PASSES),
        );
    }
    drafts
}

/// Decisions while Redis does not answer.
fn without_redis() -> Vec<Draft> {
    let of = |choice: &str, expected: [&str; 2]| {
        let mut rule = rule("fixed_window", "redis", 1, None);
        rule["on_store_error"] = json!(choice);
        let nowhere = json!({ "redis": { "cluster": "nowhere" } });
        limiter(
            &format!("no-redis/{choice}"),
            "ratelimit",
            json!([rule]),
            &nowhere,
        )
        .ask(get("/"), expected[0])
        .ask(get("/"), expected[1])
    };
    vec![
        of("open", [PASSES, PASSES]),
        of("closed", ["503 unavailable", "503 unavailable"]),
        of("local", [PASSES, REFUSED]),
    ]
}

/// Rules stored in Redis.
fn reloads() -> Vec<Draft> {
    let written = |name: &str, rate: u32| {
        let mut rule = rule("fixed_window", "local", rate, None);
        rule["name"] = json!(name);
        json!({ "rules": [rule] }).to_string()
    };
    let of = |name: &str, interval_ms: u64| {
        let more = json!({ "reload": true, "poll_interval_ms": interval_ms });
        limiter(
            &format!("reload/{name}"),
            "ratelimit",
            json!([rule("fixed_window", "local", 1, None)]),
            &more,
        )
    };
    let with = |draft: Draft, text: String| {
        let key = limit_rules(&draft.prefix());
        draft.text(key, text)
    };
    vec![
        of("nothing-in-redis", POLL_INTERVAL_MS)
            .ask(get("/"), PASSES)
            .ask(get("/"), REFUSED),
        with(of("from-redis", POLL_INTERVAL_MS), written("from-redis", 2))
            .ask(get("/"), PASSES)
            .ask(get("/"), PASSES)
            .ask(get("/"), REFUSED),
        with(
            of("what-is-refused-changes-nothing", POLL_INTERVAL_MS),
            "{\"rules\":[{}]}".into(),
        )
        .ask(get("/"), PASSES)
        .ask(get("/"), REFUSED),
        with(
            of("changed-while-it-runs", 50)
                .ask(get("/"), PASSES)
                .ask(get("/"), REFUSED),
            written("changed", 3),
        )
        .after_polls(1_000, 1)
        .ask(get("/"), PASSES)
        .ask(get("/"), PASSES)
        .ask(get("/"), PASSES)
        .ask(get("/"), REFUSED),
    ]
}
