//! Links through the API: creation, lists, and the resulting state of Redis and the cold store.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use weir_link::record::Link;
use weir_link::redis::keys::{LinkKeys, link_changes, link_domains};
use weir_link::scramble::{Numbering, Scramble};
use weir_origin::clock::now_ms;

use super::id;
use crate::support::{Answer, World};

pub(super) const DAY_MS: u64 = 86_400_000;

fn domains() -> Value {
    json!({"domains": [
        {"id": "s", "hosts": ["s.example.com"], "app_schemes": ["weixin"], "denied_hosts": ["evil.example"]},
        {"id": "t", "hosts": ["t.example.com"], "length": 5, "life_days": 0, "status": 301, "pass_query": true,
         "app_schemes": ["weixin"]},
    ]})
}

pub(super) async fn world() -> World {
    World::with_links(domains(), |_| ()).await
}

pub(super) async fn create_link(world: &World, body: Value) -> Value {
    let answer = world.admin("POST", "/links", &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body
}

pub(super) async fn in_redis(world: &World, name: &str) -> Option<Link> {
    let key = LinkKeys::new(&world.prefix, &id(name)).record();
    match world.redis(redis::cmd("GET").arg(key)).await {
        redis::Value::BulkString(record) => Some(Link::decode(&record).unwrap()),
        _ => None,
    }
}

pub(super) async fn pttl(world: &World, name: &str) -> i64 {
    let key = LinkKeys::new(&world.prefix, &id(name)).record();
    match world.redis(redis::cmd("PTTL").arg(key)).await {
        redis::Value::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

/// The links in change notifications to gateways.
pub(super) async fn changes(world: &World) -> Vec<String> {
    let mut range = redis::cmd("XRANGE");
    let entries = world
        .redis(range.arg(link_changes(&world.prefix)).arg("-").arg("+"))
        .await;
    let entries: Vec<(String, Vec<(String, String)>)> =
        redis::FromRedisValue::from_redis_value(entries).unwrap();
    let field = |(_, fields): (_, Vec<(String, String)>)| {
        assert_eq!(fields[0].0, "l");
        fields[0].1.clone()
    };
    entries.into_iter().map(field).collect()
}

pub(super) fn name(link: &Value) -> String {
    let part = |field: &str| link[field].as_str().unwrap().to_owned();
    format!("{}/{}", part("domain"), part("code"))
}

pub(super) async fn get(world: &World, name: &str) -> Answer {
    let (domain, code) = name.split_once('/').unwrap();
    let path = format!("/links/{code}?domain={domain}");
    world.admin("GET", &path, &Value::Null).await
}

#[tokio::test]
async fn new_link_is_in_redis_at_once_and_in_the_cold_store_soon() {
    let world = world().await;
    let before_ms = now_ms();
    let link = create_link(&world, json!({"target": "https://example.com/a?b=c"})).await;
    assert_eq!(link["code"].as_str().unwrap().len(), 7);
    let url = format!("https://s.example.com/{}", link["code"].as_str().unwrap());
    assert_eq!(link["url"], url);
    assert_eq!(
        (&link["status"], &link["version"]),
        (&json!(302), &json!(1))
    );
    let expires_at_ms = link["expires_at_ms"].as_u64().unwrap();
    assert!(expires_at_ms >= before_ms + 30 * DAY_MS);

    let name = name(&link);
    let stored = in_redis(&world, &name).await.unwrap();
    assert_eq!(stored.target, "https://example.com/a?b=c");
    assert_eq!(stored.life_ms, 30 * DAY_MS);
    let remaining = pttl(&world, &name).await;
    assert!(
        (29 * DAY_MS as i64..=30 * DAY_MS as i64).contains(&remaining),
        "{remaining}"
    );
    let mut found = get(&world, &name).await.body;
    assert_eq!(found["expires_at_ms"], expires_at_ms);
    found["flag"] = link["flag"].clone();
    assert_eq!(found["target"], link["target"]);
    // No gateway caches an unused code, so no notification is needed.
    assert!(changes(&world).await.is_empty());
}

#[tokio::test]
async fn domain_defaults_apply_and_request_overrides_them() {
    let world = world().await;
    let link = create_link(
        &world,
        json!({"target": "https://example.com/", "domain": "t"}),
    )
    .await;
    assert_eq!(link["code"].as_str().unwrap().len(), 5);
    assert_eq!(
        (&link["status"], &link["pass_query"]),
        (&json!(301), &json!(true))
    );
    assert_eq!(
        (&link["life_ms"], &link["expires_at_ms"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(pttl(&world, &name(&link)).await, -1);
    let link = create_link(
        &world,
        json!({"target": "https://example.com/", "domain": "t", "length": 8, "life_ms": 60_000,
            "status": 307, "pass_query": false, "max_clicks": 3, "tags": ["a", "ü"],
            "apps": [{"platform": "wechat", "url": "weixin://dl/x", "fallback": "https://example.com/app"}],
            "rules": [{"platforms": ["ios"], "languages": ["zh"], "target": "https://example.com/zh"}]}),
    )
    .await;
    assert_eq!(link["code"].as_str().unwrap().len(), 8);
    let stored = in_redis(&world, &name(&link)).await.unwrap();
    assert_eq!((stored.status.code(), stored.pass_query), (307, false));
    assert_eq!((stored.life_ms, stored.max_clicks), (60_000, 3));
    assert_eq!(stored.apps[0].url, "weixin://dl/x");
    assert_eq!(stored.rules[0].languages, ["zh"]);
    let remaining = pttl(&world, &name(&link)).await;
    assert!((1..=60_000).contains(&remaining), "{remaining}");
}

#[tokio::test]
async fn invalid_link_is_refused_by_field_and_creates_nothing() {
    let world = world().await;
    let target = "https://example.com/";
    for (body, code, field) in [
        (
            json!({"target": "javascript:alert(1)"}),
            "target_scheme",
            "target",
        ),
        (
            json!({"target": "https://a@b.example/"}),
            "target_userinfo",
            "target",
        ),
        (
            json!({"target": "https://a.example/\n"}),
            "target_control_character",
            "target",
        ),
        (
            json!({"target": "https:\\\\a.example"}),
            "target_backslash",
            "target",
        ),
        (
            json!({"target": "https://s.example.com/abc"}),
            "target_own_domain",
            "target",
        ),
        (
            json!({"target": "https://t.example.com/abc"}),
            "target_own_domain",
            "target",
        ),
        (
            json!({"target": "https://www.evil.example/"}),
            "target_denied_host",
            "target",
        ),
        (
            json!({"target": format!("{target}{}", "a".repeat(2048))}),
            "target_too_long",
            "target",
        ),
        (
            json!({"target": target, "domain": "u"}),
            "unknown_domain",
            "domain",
        ),
        (
            json!({"target": target, "code": "abc", "length": 5}),
            "invalid_link",
            "length",
        ),
        (
            json!({"target": target, "code": "a b"}),
            "invalid_link",
            "code",
        ),
        (
            json!({"target": target, "life_ms": 1, "life_days": 1}),
            "invalid_link",
            "life_ms",
        ),
        (
            json!({"target": target, "life_ms": 999}),
            "invalid_link",
            "life_ms",
        ),
        (
            json!({"target": target, "life_days": 3_651}),
            "invalid_link",
            "life_days",
        ),
        (
            json!({"target": target, "max_clicks": 0}),
            "invalid_link",
            "max_clicks",
        ),
        (
            json!({"target": target, "expires_at_ms": 1}),
            "invalid_link",
            "expires_at_ms",
        ),
        (
            json!({"target": target, "tags": ["a", "a"]}),
            "invalid_link",
            "tags[1]",
        ),
        (
            json!({"target": target, "tags": [""]}),
            "invalid_link",
            "tags[0]",
        ),
        (
            json!({"target": target, "apps": [{"platform": "ios", "url": "evilapp://x"}]}),
            "target_scheme",
            "apps[0].url",
        ),
        (
            json!({"target": target, "apps": [{"platform": "ios", "url": "weixin://x", "fallback": "weixin://y"}]}),
            "target_scheme",
            "apps[0].fallback",
        ),
        (
            json!({"target": target, "rules": [{"languages": ["zh", "!"], "target": target}]}),
            "invalid_link",
            "rules[0].languages",
        ),
        (
            json!({"target": target, "rules": [{"target": "https://evil.example/"}]}),
            "target_denied_host",
            "rules[0].target",
        ),
    ] {
        let answer = world.admin("POST", "/links", &body).await;
        assert_eq!(answer.status, 422, "{body} {answer:?}");
        assert_eq!(answer.code(), code, "{body}");
        assert!(
            answer.detail().starts_with(&format!("{field} ")),
            "{answer:?}"
        );
    }
    let body = json!({"target": target, "code": "spring}"});
    let answer = world.admin("POST", "/links", &body).await;
    assert_eq!(
        answer.detail(),
        "code has the invalid character '}' at position 7: use 0-9, A-Z, a-z, - and _"
    );
    for (body, detail) in [
        (
            r#"{"target": "https://example.com/", "colour": 1}"#,
            "colour: unknown field",
        ),
        (
            r#"{"target": "https://example.com/", "max_clicks": -1}"#,
            "max_clicks: invalid value",
        ),
        (
            r#"{"target": "https://example.com/", "rules": [{"target": 7}]}"#,
            "rules[0].target: invalid type",
        ),
        ("{", "EOF"),
        ("[]", "the list has 0 links, must have 1 to 1000"),
        ("7", "invalid type"),
    ] {
        let answer = world.admin_text("POST", "/links", body).await;
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::BAD_REQUEST, "invalid_body")
        );
        assert!(answer.detail().starts_with(detail), "{body} {answer:?}");
    }
    let page = world.admin("GET", "/links", &Value::Null).await.body;
    assert_eq!(page, json!({"links": [], "next": null}));
}

#[tokio::test]
async fn homograph_is_accepted_and_flagged() {
    let world = world().await;
    let link = create_link(&world, json!({"target": "https://pаypal.com/"})).await;
    assert_eq!(link["flag"], "idn_homograph");
    assert!(link["target"].as_str().unwrap().starts_with("https://xn--"));
}

#[tokio::test]
async fn homograph_is_flagged_in_every_target_on_every_read() {
    let world = world().await;
    let bad = "https://pаypal.com/";
    let page = "https://example.com/";
    let flags = async |more: Value| {
        let mut link = json!({ "target": page });
        let fields = link.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let create_link = create_link(&world, link).await;
        let read = get(&world, &name(&create_link)).await.body;
        (create_link["flag"].clone(), read["flag"].clone())
    };
    let flagged = (json!("idn_homograph"), json!("idn_homograph"));
    for more in [
        json!({ "target": bad }),
        json!({ "rules": [{ "languages": ["zh"], "target": bad }] }),
        json!({ "apps": [{ "platform": "ios", "url": "weixin://x", "fallback": bad }] }),
        json!({ "apps": [{ "platform": "ios", "url": bad }] }),
    ] {
        assert_eq!(flags(more.clone()).await, flagged, "{more}");
    }
    let sound = json!({ "rules": [{ "languages": ["zh"], "target": "https://例え.jp/" }] });
    assert_eq!(flags(sound).await, (Value::Null, Value::Null));
}

#[tokio::test]
async fn batch_answers_in_order_and_invalid_item_affects_no_other() {
    let world = world().await;
    let item = |n: u32| json!({"target": format!("https://example.com/{n}"), "tags": ["batch"]});
    let mut batch: Vec<Value> = (0..1_000).map(item).collect();
    batch[7] = json!({"target": "javascript:alert(1)"});
    batch[8] = json!({"target": "https://example.com/", "unknown": 1});
    batch[9] = json!({"target": "https://example.com/9", "code": "custom-9"});
    let answer = world.admin("POST", "/links", &json!(batch)).await;
    assert_eq!(answer.status, 207);
    let answers = answer.body.as_array().unwrap();
    assert_eq!(answers.len(), 1_000);
    assert_eq!(answers[7]["error"], "target_scheme");
    assert_eq!(
        (&answers[8]["error"], &answers[8]["status"]),
        (&json!("invalid_body"), &json!(400))
    );
    assert_eq!(answers[9]["code"], "custom-9");
    let mut names = BTreeSet::new();
    for (n, link) in answers
        .iter()
        .enumerate()
        .filter(|(n, _)| ![7, 8].contains(n))
    {
        assert_eq!(link["target"], format!("https://example.com/{n}"));
        assert!(names.insert(name(link)), "{link}");
    }
    for n in [0, 9, 999] {
        let link = in_redis(&world, &name(&answers[n])).await.unwrap();
        assert_eq!(link.target, format!("https://example.com/{n}"));
    }
    assert_eq!(get(&world, &name(&answers[999])).await.status, 200);

    let all = world
        .admin("POST", "/links", &json!([item(1), item(2)]))
        .await;
    assert_eq!(all.status, 201);
    let too_many: Vec<Value> = (0..1_001).map(item).collect();
    let answer = world.admin("POST", "/links", &json!(too_many)).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn idempotency_key_replays_the_first_response() {
    let world = world().await;
    let body = json!({"target": "https://example.com/"});
    let key = [("idempotency-key", "order 17")];
    let first = world.admin_with("POST", "/links", &body, &key).await;
    assert_eq!(first.status, 201);
    let again = world.admin_with("POST", "/links", &body, &key).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.headers["location"], first.headers["location"]);

    let other = json!({"target": "https://example.com/other"});
    let conflict = world.admin_with("POST", "/links", &other, &key).await;
    assert_eq!(
        (conflict.status.as_u16(), conflict.code()),
        (422, "idempotency_mismatch")
    );
    // After a refusal the key can be used again.
    let key = [("idempotency-key", "order 18")];
    let bad = world
        .admin_with("POST", "/links", &json!({"target": ""}), &key)
        .await;
    assert_eq!(bad.status, 422);
    let good = world.admin_with("POST", "/links", &body, &key).await;
    assert_eq!(good.status, 201);
    assert_ne!(good.body["code"], first.body["code"]);
    // Also for a batch.
    let key = [("idempotency-key", "batch")];
    let batch = json!([body, other]);
    let first = world.admin_with("POST", "/links", &batch, &key).await;
    let again = world.admin_with("POST", "/links", &batch, &key).await;
    assert_eq!(first.body, again.body);
    for bad in ["", &"k".repeat(256)] {
        let answer = world
            .admin_with("POST", "/links", &body, &[("idempotency-key", bad)])
            .await;
        assert_eq!(answer.code(), "invalid_idempotency_key");
    }
}

#[tokio::test]
async fn concurrent_requests_with_one_key_create_one_link() {
    let world = world().await;
    let body = json!({"target": "https://example.com/"});
    let key = [("idempotency-key", "k")];
    let one = || world.admin_with("POST", "/links", &body, &key);
    let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
    let mut codes = BTreeSet::new();
    for answer in [a, b, c, d] {
        match answer.status.as_u16() {
            201 => drop(codes.insert(answer.body["code"].to_string())),
            409 => assert_eq!(answer.code(), "idempotency_under_way"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(codes.len(), 1);
}

#[tokio::test]
async fn chosen_code_is_unique_and_announced_to_gateways() {
    let world = world().await;
    let body = json!({"target": "https://example.com/", "code": "summer-24"});
    let link = create_link(&world, body.clone()).await;
    assert_eq!(link["url"], "https://s.example.com/summer-24");
    let again = world.admin("POST", "/links", &body).await;
    assert_eq!((again.status.as_u16(), again.code()), (409, "code_taken"));
    // The same code in another domain is another link.
    let other = json!({"target": "https://example.com/t", "code": "summer-24", "domain": "t"});
    create_link(&world, other).await;
    assert_eq!(changes(&world).await, ["s/summer-24", "t/summer-24"]);
    let link = in_redis(&world, "t/summer-24").await.unwrap();
    assert_eq!(link.target, "https://example.com/t");
}

/// Codes at both ends of the range, with and without scrambling.
#[tokio::test]
async fn chosen_code_never_collides_with_a_generated_one() {
    for scramble in [None, Some(Scramble::new(&[7; 32]).unwrap())] {
        let numbering = scramble.map_or_else(Numbering::plain, Numbering::scrambled);
        let ours = numbering.clone();
        let world = World::with_links(domains(), |settings| settings.numbering = ours).await;
        let code = |index| {
            let length = weir_link::code::Length::MIN;
            let code = numbering.code(length, length.capacity(), index);
            code.unwrap().to_string()
        };
        let body = |code: &str| json!({"target": "https://example.com/", "code": code});
        // Numbers are ready once a link was created: the first segments are reserved.
        create_link(
            &world,
            json!({"target": "https://example.com/", "length": 5}),
        )
        .await;
        let reserved = world.admin("POST", "/links", &body(&code(999))).await;
        assert_eq!(reserved.code(), "code_taken");
        create_link(&world, body(&code(916_132_000))).await;
    }
}

#[tokio::test]
async fn links_are_listed_by_pages_and_tags() {
    let world = world().await;
    for n in 0..5 {
        let tag = if n % 2 == 0 { "even" } else { "odd" };
        let body = json!({"target": format!("https://example.com/{n}"), "code": format!("code-{n}"), "tags": [tag]});
        create_link(&world, body).await;
    }
    let page = async |query: &str| {
        let path = format!("/links?{query}");
        world.admin("GET", &path, &Value::Null).await
    };
    let codes = |page: &Value| -> Vec<String> {
        let links = page["links"].as_array().unwrap().iter();
        links
            .map(|link| link["code"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = page("tag=even&limit=2").await.body;
    assert_eq!(codes(&first).len(), 2);
    let next = first["next"].as_str().unwrap();
    let second = page(&format!("tag=even&limit=2&after={next}")).await.body;
    assert_eq!((codes(&second).len(), &second["next"]), (1, &Value::Null));
    let observed: BTreeSet<String> = codes(&first).into_iter().chain(codes(&second)).collect();
    assert_eq!(
        observed.into_iter().collect::<Vec<_>>(),
        ["code-0", "code-2", "code-4"]
    );
    assert_eq!(page("after=x").await.code(), "invalid_query");
    assert_eq!(page("limit=x").await.code(), "invalid_query");
}

#[tokio::test]
async fn domains_are_published_to_redis_for_gateways() {
    let world = world().await;
    let key = link_domains(&world.prefix);
    let deadline = Instant::now() + Duration::from_secs(60);
    let published: Value = loop {
        if let redis::Value::BulkString(json) = world.redis(redis::cmd("GET").arg(&key)).await {
            break serde_json::from_slice(&json).unwrap();
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(published["domains"][1]["hosts"], json!(["t.example.com"]));
    assert!(published["version"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn origin_without_links_reports_links_as_disabled() {
    let world = World::new().await;
    let answer = world
        .admin("POST", "/links", &json!({"target": "https://example.com/"}))
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "links_off"));
}
