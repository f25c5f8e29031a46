//! Clean-up, with a clock that the test controls: ended links are deleted, and links in Redis stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use weir_link::code::Length;
use weir_link::segment::{Plan, Times};
use weir_origin::clock::now_ms;
use weir_origin::links::jobs::clean::CleanSummary;

use super::id;
use crate::support::World;

const DAY_MS: u64 = 86_400_000;

const TIMES: Times = Times {
    hold_ms: 10_000,
    quarantine_ms: 60_000,
};

async fn world(clock: &Arc<AtomicU64>) -> World {
    let clock = clock.clone();
    let domains =
        json!({"domains": [{"id": "s", "hosts": ["s.example.com"], "life_days": 1, "length": 5}]});
    World::with_links(domains, move |settings| {
        settings.clock = Arc::new(move || clock.load(Ordering::Relaxed));
        settings.times = TIMES;
        settings.plans[0] = Plan::new(Length::MIN, 20, 10).unwrap();
    })
    .await
}

async fn create_link(world: &World, body: Value) -> u16 {
    world.admin("POST", "/links", &body).await.status.as_u16()
}

async fn cleaned(world: &World) -> (u64, u64) {
    let links = world.origin.links().unwrap();
    links.log().drained().await;
    let CleanSummary { removed, alive } = links.cleaner().clean().await.unwrap();
    (removed, alive)
}

#[tokio::test]
async fn link_is_deleted_after_it_ended_in_redis_and_cooldown_passed() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let later = |ms| clock.fetch_add(ms, Ordering::Relaxed);
    let body = json!({"target": "https://example.com/", "code": "summer-24"});
    assert_eq!(create_link(&world, body.clone()).await, 201);

    later(DAY_MS + TIMES.quarantine_ms);
    assert_eq!(cleaned(&world).await, (0, 0));
    later(1);
    // The test's clock is a day ahead of the clock in Redis, which still has the link as if it had been clicked.
    assert_eq!(cleaned(&world).await, (0, 1));
    assert_eq!(create_link(&world, body.clone()).await, 409);

    let links = world.origin.links().unwrap();
    links.records().forget(&id("s/summer-24")).await.unwrap();
    assert_eq!(cleaned(&world).await, (0, 0));
    later(DAY_MS + TIMES.quarantine_ms + 1);
    assert_eq!(cleaned(&world).await, (1, 0));
    assert_eq!(create_link(&world, body).await, 201);
}

#[tokio::test]
async fn code_of_a_deleted_link_is_free_after_quarantine() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let body = json!({"target": "https://example.com/", "code": "summer-24"});
    assert_eq!(create_link(&world, body.clone()).await, 201);
    world
        .admin("DELETE", "/links/summer-24", &Value::Null)
        .await;
    clock.fetch_add(TIMES.quarantine_ms, Ordering::Relaxed);
    assert_eq!(cleaned(&world).await, (0, 0));
    assert_eq!(create_link(&world, body.clone()).await, 409);
    clock.fetch_add(1, Ordering::Relaxed);
    assert_eq!(cleaned(&world).await, (1, 0));
    assert_eq!(create_link(&world, body).await, 201);
}

/// Twenty codes in total, through the API: all are used, end, are deleted, and are reused.
#[tokio::test]
async fn whole_code_range_is_reused_after_its_links_end() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let links = world.origin.links().unwrap();
    let make = async || {
        let mut codes = Vec::new();
        while codes.len() < 20 {
            let answer = world
                .admin("POST", "/links", &json!({"target": "https://example.com/"}))
                .await;
            match answer.status.as_u16() {
                201 => codes.push(answer.body["code"].as_str().unwrap().to_owned()),
                503 => assert_eq!(answer.code(), "no_numbers"),
                other => panic!("{other} {answer:?}"),
            }
        }
        codes.sort();
        codes
    };
    let first = make().await;
    let refused = world
        .admin("POST", "/links", &json!({"target": "https://example.com/"}))
        .await;
    assert_eq!(refused.code(), "no_numbers");
    links.log().drained().await;
    for code in &first {
        links
            .records()
            .forget(&id(&format!("s/{code}")))
            .await
            .unwrap();
    }
    clock.fetch_add(DAY_MS + TIMES.quarantine_ms + 1, Ordering::Relaxed);
    assert_eq!(cleaned(&world).await, (20, 0));
    assert_eq!(make().await, first);
    assert_eq!(world.origin.links().unwrap().metrics().collisions.get(), 0);
}

/// Creates this many links with tags, and one more that stays; all others have ended and are deleted. Returns deletions
/// per second.
async fn clean_many(count: usize) -> f64 {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let time = clock.clone();
    let domains = json!({"domains": [{"id": "s", "hosts": ["s.example.com"], "life_days": 1}]});
    let world = World::with_links(domains, move |settings| {
        settings.clock = Arc::new(move || time.load(Ordering::Relaxed));
        settings.times = TIMES;
    })
    .await;
    let link = |n: usize| json!({"target": "https://example.com/", "code": format!("ended-{n}"), "tags": ["a", "b"]});
    let all: Vec<Value> = (0..count).map(link).collect();
    for some in all.chunks(1_000) {
        assert_eq!(create_link(&world, json!(some)).await, 201);
    }
    let links = world.origin.links().unwrap();
    links.log().drained().await;
    for n in 0..count {
        let ended = id(&format!("s/ended-{n}"));
        links.records().forget(&ended).await.unwrap();
    }
    clock.fetch_add(DAY_MS + TIMES.quarantine_ms + 1, Ordering::Relaxed);
    assert_eq!(
        create_link(
            &world,
            json!({"target": "https://example.com/", "code": "stays", "tags": ["a"]})
        )
        .await,
        201
    );
    let start = std::time::Instant::now();
    assert_eq!(cleaned(&world).await, (count as u64, 0));
    let rate = count as f64 / start.elapsed().as_secs_f64();
    assert_eq!(world.number("SELECT COUNT(*) FROM links").await, 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM link_tags").await, 1);
    rate
}

#[tokio::test]
async fn bulk_cleaning_removes_links_and_all_their_data() {
    clean_many(1_130).await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn measure_cleaning_rate_of_ended_links() {
    println!("{:.0} links/s", clean_many(30_000).await);
}
