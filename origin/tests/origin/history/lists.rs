//! Lists and counts through the API, also during outages.

use axum::body::Body;
use axum::http::Request;
use redis::cmd;
use serde_json::{Value, json};
use weir_history::redis::keys::HistoryKeys;
use weir_history::{COLD_MS, DAY_MS, VIEWS_MAX};
use weir_origin::history::Outcome;

use super::{Clock, list, lose, pairs, record, user};
use crate::support::World;

fn items(body: &Value) -> Vec<(String, u64)> {
    let items = body["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            let sku = item["sku"].as_str().unwrap().to_owned();
            (sku, item["viewed_at_ms"].as_u64().unwrap())
        })
        .collect()
}

fn named(pairs: &[(u64, u64)]) -> Vec<(String, u64)> {
    pairs
        .iter()
        .map(|(sku, at)| (sku.to_string(), *at))
        .collect()
}

#[tokio::test]
async fn user_list_is_newest_first_with_each_product_once() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let now = clock.now_ms();
    record(
        &history,
        &user("alice"),
        &[(1, now - 9), (2, now - 5), (1, now - 3), (3, now - 4)],
    )
    .await;
    record(&history, &user("bob"), &[(7, now)]).await;
    let answer = world.as_user("alice", "GET", "/history").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["cache-control"], "private, no-store");
    assert_eq!(
        items(&answer.body),
        named(&[(1, now - 3), (3, now - 4), (2, now - 5)])
    );
    assert_eq!(answer.body["complete"], true);
    assert_eq!(answer.body.get("next"), None);
    let count = world.as_user("alice", "GET", "/history/count").await;
    assert_eq!(count.body, json!({ "count": 3, "complete": true }));
    // Operators can select any user.
    let named_by = world.admin("GET", "/history?user=bob", &Value::Null).await;
    assert_eq!(items(&named_by.body), named(&[(7, now)]));
    let none = world.as_user("carol", "GET", "/history").await;
    assert_eq!(none.body, json!({ "items": [], "complete": true }));
}

#[tokio::test]
async fn paging_is_stable_between_views_of_equal_time() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let now = clock.now_ms();
    let views: Vec<(u64, u64)> = (10..30).map(|sku| (sku, now - sku / 4)).collect();
    record(&history, &user("alice"), &views).await;
    let (mut all, mut before) = (vec![], String::new());
    loop {
        let path = format!("/history?limit=3{before}");
        let page = world.as_user("alice", "GET", &path).await;
        all.extend(items(&page.body));
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        before = format!("&before={next}");
    }
    assert_eq!(all, named(&list(&history, &user("alice")).await));
    assert_eq!(all.len(), 20);
    let path = format!("/history?before={}", now - 5);
    let older = world.as_user("alice", "GET", &path).await;
    assert!(items(&older.body).iter().all(|(_, at)| *at < now - 5));
}

#[tokio::test]
async fn invalid_history_query_is_refused() {
    let world = World::with_history(|_| ()).await;
    for (path, code) in [
        ("/history?limit=0", "invalid_query"),
        ("/history?limit=201", "invalid_query"),
        ("/history?limit=x", "invalid_query"),
        ("/history?before=x", "invalid_query"),
        ("/history?before=1,", "invalid_query"),
    ] {
        let refused = world.as_user("alice", "GET", path).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (422, code),
            "{path}"
        );
    }
    for path in [
        "/history",
        "/history?user=a&visitor=b",
        "/history?user=",
        "/history?visitor=a%20b",
    ] {
        let refused = world.admin("GET", path, &Value::Null).await;
        assert_eq!(refused.status, 422, "{path}");
    }
    for path in ["/history", "/history/count"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let refused = world.public(request).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (401, "user_missing")
        );
        // The header has no gateway signature.
        let request = Request::get(path).header("x-weir-user", "v1;1;alice");
        let request = request.header("x-weir-user-signature", "k1;00");
        let refused = world.public(request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (403, "user_invalid")
        );
    }
    let untold = world.admin_as("GET", "/history?user=a", "", None).await;
    assert_eq!(untold.status, 401);
    let long = "x".repeat(65);
    for (method, path, body) in [
        ("DELETE", format!("/history/{long}"), json!(null)),
        ("POST", "/history/delete".to_owned(), json!({ "skus": [] })),
        (
            "POST",
            "/history/delete".to_owned(),
            json!({ "skus": [long] }),
        ),
        (
            "POST",
            "/history/delete".to_owned(),
            json!({ "skus": vec!["a"; 201] }),
        ),
        (
            "POST",
            "/history/join".to_owned(),
            json!({ "visitor": "a b" }),
        ),
    ] {
        let refused = world.as_user_with("alice", method, &path, &body).await;
        assert_eq!(refused.status, 422, "{method} {path} {refused:?}");
    }
    let broken = world
        .as_user_with("alice", "POST", "/history/join", &json!({}))
        .await;
    assert_eq!(
        (broken.status.as_u16(), broken.code()),
        (400, "invalid_body")
    );
}

#[tokio::test]
async fn origin_without_history_reports_history_as_disabled() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/history"),
        ("DELETE", "/history"),
        ("DELETE", "/history/1"),
    ] {
        let answer = world.as_user("alice", method, path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "history_off")
        );
    }
}

#[tokio::test]
async fn expired_and_future_views_are_dropped() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    let outcomes = record(
        &history,
        &alice,
        &[
            (1, now - COLD_MS),
            (2, now - COLD_MS + 1),
            (3, now + DAY_MS),
            (4, now + DAY_MS + 1),
            (2, now - COLD_MS + 1),
            (5, u64::MAX),
        ],
    )
    .await;
    let expected = [
        Outcome::Expired,
        Outcome::Latest,
        Outcome::Latest,
        Outcome::Ahead,
        Outcome::Known,
        Outcome::Ahead,
    ];
    assert_eq!(outcomes, expected);
    // An expired view leaves the list.
    assert_eq!(
        list(&history, &alice).await,
        [(3, now + DAY_MS), (2, now - COLD_MS + 1)]
    );
    clock.pass(1);
    assert_eq!(list(&history, &alice).await, [(3, now + DAY_MS)]);
}

#[tokio::test]
async fn views_of_many_users_are_recorded_in_one_call() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let now = clock.now_ms();
    let views: Vec<weir_origin::history::View> = (0..1_500_u64)
        .map(|n| weir_origin::history::View {
            owner: user(&format!("u{}", n % 700)),
            sku: weir_history::Sku::from(n),
            at_ms: now - n,
        })
        .collect();
    let outcomes = history.record(&views).await.unwrap();
    assert_eq!(outcomes, vec![Outcome::Latest; 1_500]);
    let again = history.record(&views).await.unwrap();
    assert_eq!(again, vec![Outcome::Known; 1_500]);
    let of_first = [(0, now), (700, now - 700), (1_400, now - 1_400)];
    assert_eq!(list(&history, &user("u0")).await, of_first);
}

/// Waits for the cached count in Redis and returns it.
async fn cached_count(world: &World, name: &str) -> u64 {
    const LOOKS: usize = 2_000;
    let key = HistoryKeys::new(&world.prefix, &user(name)).count();
    for _ in 0..LOOKS {
        let value = world.redis(cmd("GET").arg(&key)).await;
        let text: Option<String> = redis::from_redis_value(value).unwrap();
        if let Some(count) = text.and_then(|text| text.parse().ok()) {
            return count;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the count is not kept");
}

#[tokio::test]
async fn count_is_cached_until_the_list_changes() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    assert_eq!(history.count(&alice).await.unwrap().count, 2);
    assert_eq!(cached_count(&world, "alice").await, 2);
    // The cached value is used.
    let key = HistoryKeys::new(&world.prefix, &alice).count();
    world.redis(cmd("SET").arg(&key).arg(77)).await;
    assert_eq!(history.count(&alice).await.unwrap().count, 77);
    record(&history, &alice, &[(3, now - 7)]).await;
    assert_eq!(history.count(&alice).await.unwrap().count, 3);
    assert_eq!(cached_count(&world, "alice").await, 3);
    history
        .delete(&alice, &[weir_history::Sku::from(1)])
        .await
        .unwrap();
    assert_eq!(history.count(&alice).await.unwrap().count, 2);
    history.clear(&alice).await.unwrap();
    assert_eq!(history.count(&alice).await.unwrap().count, 0);
    // Without the switch nothing is cached.
    let plain = world
        .history(|settings| {
            clock.set(settings);
            settings.has_count_cache = false;
        })
        .await;
    world.redis(cmd("SET").arg(&key).arg(77)).await;
    assert_eq!(plain.count(&alice).await.unwrap().count, 0);
}

/// A list that changes during a count: the previous count must not be cached.
#[tokio::test]
async fn count_of_a_concurrently_changed_list_is_not_cached() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9)]).await;
    list(&history, &alice).await;
    let hot = history.hot();
    hot.read_count(&alice, "mine").await.unwrap();
    record(&history, &alice, &[(2, now - 8)]).await;
    assert!(!hot.put_count(&alice, "mine", 1).await.unwrap());
    assert_eq!(history.count(&alice).await.unwrap().count, 2);
}

#[tokio::test]
async fn counts_and_lists_are_limited_to_200() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let now = clock.now_ms();
    let views: Vec<(u64, u64)> = (0..450).map(|n| (n, now - n)).collect();
    for some in views.chunks(90) {
        record(&history, &user("alice"), some).await;
    }
    assert_eq!(list(&history, &user("alice")).await, views[..VIEWS_MAX]);
    let count = world.as_user("alice", "GET", "/history/count").await;
    assert_eq!(count.body["count"], VIEWS_MAX);
    let page = world.as_user("alice", "GET", "/history?limit=200").await;
    assert_eq!(items(&page.body).len(), VIEWS_MAX);
}

#[tokio::test]
async fn list_is_marked_incomplete_without_the_cold_store() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let store = world.new_database("cold").await;
    let cold = weir_origin::history::store::HistoryStore::new(
        store.clone(),
        std::sync::Arc::new({
            let clock = clock.clone();
            move || clock.now_ms()
        }),
    );
    let history = world
        .history(|settings| {
            clock.set(settings);
            settings.cold = Some(std::sync::Arc::new(cold));
        })
        .await;
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    history.fold_owner(&alice).await.unwrap();
    lose(&world).await;
    record(&history, &alice, &[(3, now - 7)]).await;
    store.close().await;
    let views = history.views(&alice).await.unwrap();
    assert_eq!(
        (pairs(&views.views), views.is_complete),
        (vec![(3, now - 7)], false)
    );
    let count = history.count(&alice).await.unwrap();
    assert_eq!((count.count, count.is_complete), (1, false));
    // With the switch off, the cold store is not queried.
    let plain = world
        .history(|settings| {
            clock.set(settings);
            settings.has_cold_reads = false;
        })
        .await;
    assert_eq!(list(&plain, &alice).await, [(3, now - 7)]);
}

#[tokio::test]
async fn sql_outage_hides_views_that_may_be_removed() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let database = world.new_database("away").await;
    let set = |settings: &mut weir_origin::history::Settings| clock.set(settings);
    let history = world.history_in(database.clone(), &world.redis_url, set);
    let (now, alice, bob) = (clock.now_ms(), user("alice"), user("bob"));
    record(&history, &alice, &[(1, now - 9)]).await;
    record(&history, &bob, &[(1, now - 9)]).await;
    assert_eq!(list(&history, &bob).await.len(), 1);
    database.close().await;
    // The removals of alice are unknown; those of bob are known.
    let views = history.views(&alice).await.unwrap();
    assert_eq!((views.views.len(), views.is_complete), (0, false));
    assert_eq!(list(&history, &bob).await.len(), 1);
}

#[tokio::test]
async fn redis_outage_serves_lists_from_the_cold_store() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let (now, alice) = (clock.now_ms(), user("alice"));
    record(&history, &alice, &[(1, now - 9), (2, now - 8)]).await;
    history.fold_owner(&alice).await.unwrap();
    history
        .delete(&alice, &[weir_history::Sku::from(2)])
        .await
        .unwrap();
    let database = weir_origin::origin::open_database(&world.database_url())
        .await
        .unwrap();
    let set = |settings: &mut weir_origin::history::Settings| clock.set(settings);
    let away = world.history_in(database, "redis://127.0.0.1:1", set);
    let views = away.views(&alice).await.unwrap();
    assert_eq!(
        (pairs(&views.views), views.is_complete),
        (vec![(1, now - 9)], false)
    );
    let count = away.count(&alice).await.unwrap();
    assert_eq!((count.count, count.is_complete), (1, false));
    let lost = away.record(&[]).await.unwrap();
    assert!(lost.is_empty());
}
