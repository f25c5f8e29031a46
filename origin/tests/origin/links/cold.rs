//! Links that Redis does not have: the origin's answers to gateways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_link::click::decode;
use weir_link::record::Link;
use weir_link::redis::document;
use weir_link::redis::keys::{LinkKeys, link_clicks};
use weir_link::redis::link_read::{Purpose, Read};
use weir_origin::clock::now_ms;
use weir_origin::links::cold::{ColdError, ColdLinks};
use weir_origin::links::model::labels::Labels;
use weir_origin::links::model::stats::{Batch, Clicks, UniquesBySlot};
use weir_origin::links::store::NewLink;

use super::api::DAY_MS;
use super::id;
use crate::support::{Answer, World};

/// The default cooldown of an origin.
const QUARANTINE_MS: u64 = 3_600_000;

async fn world() -> World {
    let domains = json!({"domains": [
        {"id": "s", "hosts": ["s.example.com"], "not_found_page": "<h1>nothing here</h1>"},
        {"id": "t", "hosts": ["t.example.com"]},
    ]});
    World::with_links(domains, |_| ()).await
}

async fn create_link(world: &World, body: Value) -> String {
    let answer = world.admin("POST", "/links", &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["code"].as_str().unwrap().to_owned()
}

async fn follow(world: &World, method: &str, host: &str, path: &str) -> Answer {
    let request = Request::builder().method(method).uri(format!("/l/{path}"));
    let request = request.header("host", host);
    let request = request.header("user-agent", "Mozilla/5.0 (iPhone)");
    let request = request.header("x-forwarded-for", "10.0.0.1, 203.0.113.7");
    world.public(request.body(Body::empty()).unwrap()).await
}

async fn forget(world: &World, code: &str) {
    let keys = LinkKeys::new(&world.prefix, &id(&format!("s/{code}")));
    let mut delete = redis::cmd("DEL");
    world.redis(delete.arg(keys.record())).await;
}

/// Redis loses a link's data, except the marks of clicks.
async fn lose(world: &World, code: &str) {
    let keys = LinkKeys::new(&world.prefix, &id(&format!("s/{code}")));
    let mut delete = redis::cmd("DEL");
    world
        .redis(delete.arg(keys.record()).arg(keys.clicks()))
        .await;
}

async fn is_in_redis(world: &World, code: &str) -> bool {
    let keys = LinkKeys::new(&world.prefix, &id(&format!("s/{code}")));
    world.redis(redis::cmd("EXISTS").arg(keys.record())).await == redis::Value::Int(1)
}

/// The store gets it with a delay; every lookup must find it in the log or in the store.
#[tokio::test(flavor = "multi_thread")]
async fn link_is_found_at_every_moment_between_log_and_store() {
    let world = world().await;
    let finder = world.origin.links().unwrap().finder();
    for _ in 0..100 {
        let target = json!({"target": "https://example.com/a"});
        let code = create_link(&world, target).await;
        let looks = (0..64).map(|n| {
            let (finder, id) = (finder.clone(), id(&format!("s/{code}")));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(400 * n)).await;
                finder.find_here(&id).await.unwrap().is_some()
            })
        });
        for look in looks.collect::<Vec<_>>() {
            assert!(look.await.unwrap());
        }
    }
}

#[tokio::test]
async fn link_lost_by_redis_redirects_and_is_restored() {
    let world = world().await;
    let target = json!({"target": "https://example.com/a", "pass_query": true});
    let code = create_link(&world, target).await;
    forget(&world, &code).await;
    let answer = follow(&world, "GET", "S.example.com:443", &format!("{code}?x=1")).await;
    assert_eq!(answer.status, 302);
    assert_eq!(answer.headers["location"], "https://example.com/a?x=1");
    assert_eq!(answer.headers["cache-control"], "private, no-cache");
    assert!(is_in_redis(&world, &code).await);

    // The click is in the stream for the statistics, with the client's address.
    let key = link_clicks(&world.prefix);
    let entries = loop {
        let mut range = redis::cmd("XRANGE");
        let entries = world.redis(range.arg(&key).arg("-").arg("+")).await;
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            redis::FromRedisValue::from_redis_value(entries).unwrap();
        if !entries.is_empty() {
            break entries;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let rows = decode(&entries[0].1[3]).unwrap();
    assert_eq!((rows.len(), rows[0].clicks), (1, 1));
    assert_eq!(rows[0].link, id(&format!("s/{code}")));
    assert_eq!(rows[0].address, Some("203.0.113.7".parse().unwrap()));
}

#[tokio::test]
async fn unknown_link_is_marked_so_that_gateways_cache_it() {
    let world = world().await;
    let code = create_link(&world, json!({"target": "https://example.com/"})).await;
    for (host, path) in [
        ("s.example.com", "none"),
        ("s.example.com", "a.b"),
        ("t.example.com", code.as_str()),
        ("u.example.com", code.as_str()),
    ] {
        let answer = follow(&world, "GET", host, path).await;
        assert_eq!(answer.status, 404, "{host} {path}");
        assert_eq!(answer.headers["x-weir-link"], "unknown");
        let page = answer.body.as_str().unwrap();
        assert_eq!(page.contains("nothing here"), host == "s.example.com");
    }
    let request = Request::get("/l/none").header("host", "t.example.com");
    let request = request.header("accept-language", "de-DE,de;q=0.9");
    let german = world.public(request.body(Body::empty()).unwrap()).await;
    let page = german.body.as_str().unwrap();
    assert!(
        page.contains("<h1>Diesen Link gibt es nicht</h1>"),
        "{page}"
    );
    let path = format!("/links/{code}");
    world.admin("DELETE", &path, &Value::Null).await;
    let deleted = follow(&world, "GET", "s.example.com", &code).await;
    assert_eq!(deleted.headers["x-weir-link"], "unknown");
    assert!(!is_in_redis(&world, &code).await);
}

#[tokio::test]
async fn ended_or_disabled_link_returns_gone() {
    let world = world().await;
    let off = create_link(&world, json!({"target": "https://example.com/"})).await;
    let path = format!("/links/{off}");
    world
        .admin("PATCH", &path, &json!({"disabled": true}))
        .await;
    forget(&world, &off).await;
    let answer = follow(&world, "GET", "s.example.com", &off).await;
    assert_eq!(
        (answer.status.as_u16(), answer.headers.get("x-weir-link")),
        (410, None)
    );
}

/// It ends at gateways and here at the same time, until the clean-up deletes it.
#[tokio::test]
async fn link_without_clicks_ends_like_any_other() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let time = clock.clone();
    let domains =
        json!({"domains": [{"id": "s", "hosts": ["s.example.com"], "gone_page": "<p>over"}]});
    let world = World::with_links(domains, move |settings| {
        settings.clock = Arc::new(move || time.load(Ordering::Relaxed));
    })
    .await;
    let body = json!({"target": "https://example.com/", "life_days": 1});
    let idle = create_link(&world, body.clone()).await;
    let mut moved = body;
    moved["ended_target"] = json!("https://over.example/");
    let moved = create_link(&world, moved).await;
    clock.fetch_add(DAY_MS + 1, Ordering::Relaxed);
    // Redis has its own clock, so the test expires the keys itself.
    for code in [&idle, &moved] {
        forget(&world, code).await;
    }
    let response = follow(&world, "GET", "s.example.com", &idle).await;
    assert_eq!(
        (
            response.status.as_u16(),
            response.headers.get("x-weir-link")
        ),
        (410, None)
    );
    assert_eq!(response.body, "<p>over");
    let led = follow(&world, "GET", "s.example.com", &moved).await;
    assert_eq!(led.status, 302);
    assert_eq!(led.headers["location"], "https://over.example/");
    assert_eq!(led.headers["cache-control"], "no-store");
    let read = gateway_reading(&world, &format!("s/{idle}?for=renew")).await;
    assert_eq!((read.left_ms, read.clicks_left), (Some(0), None));
    for code in [&idle, &moved] {
        assert!(!is_in_redis(&world, code).await, "it does not live again");
    }
    clock.fetch_add(QUARANTINE_MS, Ordering::Relaxed);
    let links = world.origin.links().unwrap();
    assert_eq!(links.cleaner().clean().await.unwrap().removed, 2);
    let unknown = follow(&world, "GET", "s.example.com", &idle).await;
    assert_eq!(unknown.headers["x-weir-link"], "unknown");
}

/// Also over the cold path: only Redis has the count.
#[tokio::test]
async fn clicks_of_a_link_with_a_maximum_are_counted_exactly() {
    let world = world().await;
    let code = create_link(
        &world,
        json!({"target": "https://example.com/", "max_clicks": 3}),
    )
    .await;
    let mut answers = Vec::new();
    for n in 0..5 {
        if n == 2 {
            forget(&world, &code).await;
        }
        // A HEAD request is not a click.
        let head = follow(&world, "HEAD", "s.example.com", &code).await;
        let get = follow(&world, "GET", "s.example.com", &code).await;
        answers.push((head.status.as_u16(), get.status.as_u16()));
    }
    assert_eq!(
        answers,
        [(302, 302), (302, 302), (302, 302), (410, 410), (410, 410)]
    );
}

async fn record(world: &World, path: &str) -> Answer {
    let request = Request::builder().uri(format!("/link-records/{path}"));
    world.public(request.body(Body::empty()).unwrap()).await
}

/// The gateway's view of the record.
async fn gateway_reading(world: &World, path: &str) -> Read {
    let answer = record(world, path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    document::read(answer.body.as_str().unwrap().as_bytes()).unwrap()
}

#[tokio::test]
async fn gateway_lookup_returns_the_same_data_as_redis() {
    let world = world().await;
    let target = json!({"target": "https://example.com/a", "life_days": 1});
    let code = create_link(&world, target).await;
    forget(&world, &code).await;
    let read = gateway_reading(&world, &format!("s/{code}?for=look")).await;
    let link = Link::decode(&read.record).unwrap();
    assert_eq!(link.target, "https://example.com/a");
    assert_eq!((read.left_ms.is_some(), read.clicks_left), (true, None));
    assert!(is_in_redis(&world, &code).await);
    for path in ["s/none?for=look", "s/a.b?for=look", "u/abc?for=look"] {
        let answer = record(&world, path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.headers["x-weir-link"], "unknown");
    }
    for bad in ["", "?for=click", "?for=take"] {
        let answer = record(&world, &format!("s/{code}{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn repeated_click_request_uses_one_click() {
    let world = world().await;
    let target = json!({"target": "https://example.com/", "max_clicks": 1});
    let code = create_link(&world, target).await;
    let click = format!("s/{code}?for=click&click=00000000000000ab-1");
    assert_eq!(gateway_reading(&world, &click).await.clicks_left, Some(1));
    assert_eq!(gateway_reading(&world, &click).await.clicks_left, Some(1));
    let other = format!("s/{code}?for=click&click=00000000000000ab-2");
    assert_eq!(gateway_reading(&world, &other).await.clicks_left, Some(0));
}

/// Sends clicks like a gateway.
async fn count(world: &World, code: &str, batch: &str, clicks: u32, is_bot: bool) {
    let counted = Clicks {
        link: id(&format!("s/{code}")),
        at_ms: now_ms(),
        count: clicks,
        is_bot,
        values: std::array::from_fn(|_| "x".to_owned()),
    };
    let batch = Batch {
        id: batch.to_owned(),
        clicks: vec![counted],
    };
    let store = world.origin.links().unwrap().store();
    let now_ms = now_ms();
    store
        .clicks()
        .count_clicks(&[batch], &UniquesBySlot::new(), now_ms)
        .await
        .unwrap();
}

#[tokio::test]
async fn used_clicks_are_restored_from_sql_after_redis_loss() {
    let world = world().await;
    let target = json!({"target": "https://example.com/", "max_clicks": 5});
    let code = create_link(&world, target).await;
    count(&world, &code, "1", 3, false).await;
    count(&world, &code, "2", 9, true).await;
    lose(&world, &code).await;
    let remaining = async |n: u32| {
        let path = format!("s/{code}?for=click&click=00000000000000ab-{n}");
        gateway_reading(&world, &path).await.clicks_left.unwrap()
    };
    assert_eq!(
        [remaining(1).await, remaining(2).await, remaining(3).await],
        [2, 1, 0]
    );
    // An edit writes the link to a Redis that has lost it.
    lose(&world, &code).await;
    let path = format!("/links/{code}");
    world.admin("PATCH", &path, &json!({"max_clicks": 4})).await;
    assert_eq!([remaining(4).await, remaining(5).await], [1, 0]);
}

#[tokio::test]
async fn click_limit_added_later_starts_with_all_its_clicks() {
    let world = world().await;
    let code = create_link(&world, json!({"target": "https://example.com/"})).await;
    count(&world, &code, "1", 100, false).await;
    let path = format!("/links/{code}");
    world.admin("PATCH", &path, &json!({"max_clicks": 2})).await;
    let remaining = async |n: u32| {
        let path = format!("s/{code}?for=click&click=00000000000000ab-{n}");
        gateway_reading(&world, &path).await.clicks_left.unwrap()
    };
    assert_eq!(remaining(1).await, 2);
    count(&world, &code, "2", 1, false).await;
    lose(&world, &code).await;
    assert_eq!([remaining(2).await, remaining(3).await], [1, 0]);
}

#[tokio::test]
async fn unresponsive_redis_is_not_queried_for_a_while() {
    let world =
        World::with_links_alone(json!({"domains": [{"id": "s", "hosts": ["s.example.com"]}]}))
            .await;
    let links = world.origin.links().unwrap();
    for (code, max_clicks) in [("abc", 0), ("max", 3)] {
        let new = NewLink {
            id: id(&format!("s/{code}")),
            record: format!(r#"0 {max_clicks} {{"t":"https://example.com/"}}"#),
            labels: Labels::default(),
            life_ms: 0,
            ends_at_ms: 0,
            created_at_ms: 1,
        };
        assert!(links.store().log().insert(&new).await.unwrap());
    }
    // The answer does not need Redis, so it is given; soon without a call to Redis.
    for _ in 0..5 {
        let read = gateway_reading(&world, "s/abc?for=look").await;
        assert_eq!(read.clicks_left, None);
    }
    let click = Purpose::Click(ColdLinks::new_click());
    let error = links.cold().visit(&id("s/max"), click).await.unwrap_err();
    assert!(matches!(error, ColdError::NotAsked), "{error}");
}

#[tokio::test]
async fn api_states_the_click_outcome_with_and_without_redis() {
    let world = world().await;
    let state = async |code: &str| {
        let path = format!("/links/{code}");
        let link = world.admin("GET", &path, &Value::Null).await.body;
        let listed = world.admin("GET", "/links", &Value::Null).await.body;
        let listed = listed["links"].as_array().unwrap().clone();
        let listed = listed.into_iter().find(|one| one["code"] == code);
        let listed = listed.unwrap();
        let gateway_reading = |link: &Value| (link["state"].clone(), link["clicks_left"].clone());
        assert_eq!(gateway_reading(&link), gateway_reading(&listed));
        gateway_reading(&link)
    };
    let target = "https://example.com/";
    let code = create_link(&world, json!({ "target": target, "max_clicks": 2 })).await;
    assert_eq!(state(&code).await, (json!("active"), json!(2)));
    let click = async || follow(&world, "GET", "s.example.com", &code).await.status;
    assert_eq!(click().await, 302);
    assert_eq!(state(&code).await, (json!("active"), json!(1)));
    assert_eq!(click().await, 302);
    assert_eq!(state(&code).await, (json!("used_up"), json!(0)));
    // Redis has lost it; SQL has counted one click.
    count(&world, &code, "1", 1, false).await;
    lose(&world, &code).await;
    assert_eq!(state(&code).await, (json!("active"), json!(1)));
    let edit = async |changes: Value| {
        let path = format!("/links/{code}");
        world.admin("PATCH", &path, &changes).await.body["state"].clone()
    };
    assert_eq!(edit(json!({ "disabled": true })).await, "disabled");
    assert_eq!(
        edit(json!({ "disabled": false, "max_clicks": 1 })).await,
        "used_up"
    );

    let brief = create_link(&world, json!({ "target": target, "life_ms": 1_000 })).await;
    assert_eq!(state(&brief).await, (json!("active"), Value::Null));
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(state(&brief).await, (json!("ended"), Value::Null));
    // A gateway has renewed it, which SQL does not have yet.
    let record = LinkKeys::new(&world.prefix, &id(&format!("s/{brief}"))).record();
    world.redis(redis::cmd("SET").arg(record).arg("x")).await;
    assert_eq!(state(&brief).await, (json!("active"), Value::Null));
}

/// Asserts that the answer is a page for browsers.
fn is_page(answer: &Answer, page: &str) {
    let header = |name| {
        answer
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap())
    };
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.body.as_str().unwrap_or_default(), page);
    assert_eq!(header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(header("retry-after"), Some("1"));
    assert_eq!(header("cache-control"), Some("no-store"));
    assert_eq!(header("x-weir-link"), None, "it may be a link");
}

#[tokio::test]
async fn outage_of_redis_or_sql_shows_the_error_page_of_the_domain() {
    let later = json!({"domains": [
        {"id": "s", "hosts": ["s.example.com"], "unavailable_page": "<p>later"},
    ]});
    let world = World::with_links_alone(later).await;
    // Only Redis counts its clicks.
    let new = NewLink {
        id: id("s/max"),
        record: r#"0 3 {"t":"https://example.com/"}"#.to_owned(),
        labels: Labels::default(),
        life_ms: 0,
        ends_at_ms: 0,
        created_at_ms: 1,
    };
    let store = world.origin.links().unwrap().store();
    assert!(store.log().insert(&new).await.unwrap());
    let ask = async |method: &str| follow(&world, method, "s.example.com", "max").await;
    is_page(&ask("GET").await, "<p>later");
    is_page(&ask("HEAD").await, "");
    // A gateway, which has the page itself, gets the reason.
    let gateway_reading = record(&world, "s/max?for=click&click=00000000000000ab-1").await;
    assert_eq!(
        (gateway_reading.status.as_u16(), gateway_reading.code()),
        (503, "redis_unavailable")
    );
    // SQL is down, too: no link can be looked up.
    let mut sql = world.sql().await;
    sql.execute("ALTER TABLE links RENAME TO gone", &[]).await;
    let answer = follow(&world, "GET", "s.example.com", "other").await;
    is_page(&answer, "<p>later");
    let gateway_reading = record(&world, "s/other?for=look").await;
    assert_eq!(
        (gateway_reading.status.as_u16(), gateway_reading.code()),
        (503, "sql_unavailable")
    );
}

#[tokio::test]
async fn origin_serves_domain_files_and_pages_like_gateways() {
    let world = world().await;
    let mut domain = world
        .admin("GET", "/link-domains/s", &Value::Null)
        .await
        .body;
    domain["home"] = "https://home.example/".into();
    domain["assetlinks"] = json!([{ "relation": [] }]);
    domain["gone_page"] = "<p>over".into();
    let put = world.admin("PUT", "/link-domains/s", &domain).await;
    assert_eq!(put.status, 200, "{put:?}");
    let ask = async |path: &str| follow(&world, "GET", "s.example.com", path).await;
    let home = ask("").await;
    assert_eq!(home.status, 302);
    assert_eq!(home.headers["location"], "https://home.example/");
    assert_eq!(ask("robots.txt").await.status, 200);
    assert_eq!(ask("favicon.ico").await.status, 204);
    let file = ask(".well-known/assetlinks.json").await;
    assert_eq!(file.body, json!([{ "relation": [] }]));
    let file = ask(".well-known/apple-app-site-association").await;
    assert_eq!(file.status, 404);
    let code = create_link(&world, json!({ "target": "https://example.com/" })).await;
    let path = format!("/links/{code}");
    world
        .admin("PATCH", &path, &json!({ "disabled": true }))
        .await;
    let removed = ask(&code).await;
    assert_eq!(
        (removed.status.as_u16(), &removed.body),
        (410, &json!("<p>over"))
    );
}
