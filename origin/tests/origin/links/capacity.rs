//! Remaining numbers, with a clock that the test controls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use weir_link::code::Length;
use weir_link::segment::{Plan, Times};
use weir_origin::clock::now_ms;

use super::api::{DAY_MS, create_link};
use crate::support::World;

const QUARANTINE_MS: u64 = 60_000;

/// Number of the shortest codes. An origin reserves 640 of them when it starts: 64 segments.
const RANGE: u64 = 1_000;
const RESERVED: u64 = 640;

async fn world(clock: &Arc<AtomicU64>) -> World {
    let clock = clock.clone();
    let domains = json!({"domains": [
        {"id": "s", "hosts": ["s.example.com"], "length": 5, "life_days": 1, "life_days_by_length": {"5": 2}},
    ]});
    World::with_links(domains, move |settings| {
        settings.clock = Arc::new(move || clock.load(Ordering::Relaxed));
        settings.times = Times {
            hold_ms: 30 * DAY_MS,
            quarantine_ms: QUARANTINE_MS,
        };
        settings.plans[0] = Plan::new(Length::MIN, RANGE, 10).unwrap();
    })
    .await
}

/// Remaining numbers and days of the shortest codes, from the gauges.
async fn remaining(world: &World) -> (u64, u64) {
    let links = world.origin.links().unwrap();
    links.capacity().measure().await.unwrap();
    let metrics = world.admin_as("GET", "/metrics", "", None).await;
    let text = metrics.body.as_str().unwrap();
    let gauge = |name: &str| {
        let series = format!("weir_origin_link_{name}{{length=\"5\"}} ");
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(&series));
        value.unwrap().parse().unwrap()
    };
    (
        gauge("numbers_left"),
        gauge("numbers_seconds_left") / 86_400,
    )
}

#[tokio::test]
async fn link_lifetime_depends_on_the_code_length() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let life = async |more: Value| {
        let mut body = json!({"target": "https://example.com/"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        create_link(&world, body).await["life_ms"].as_u64().unwrap() / DAY_MS
    };
    assert_eq!(life(json!({})).await, 2);
    assert_eq!(life(json!({"length": 6})).await, 1);
    assert_eq!(life(json!({"code": "12345-x"})).await, 1);
    assert_eq!(life(json!({"life_days": 7})).await, 7);
}

#[tokio::test]
async fn gauges_show_remaining_numbers_and_time_until_exhaustion() {
    let clock = Arc::new(AtomicU64::new(now_ms()));
    let world = world(&clock).await;
    let code = create_link(&world, json!({"target": "https://example.com/"})).await;
    assert_eq!(code["code"].as_str().unwrap().len(), 5);
    // 640 a day for two days exceed 1,000; half of them become free each day.
    assert_eq!(remaining(&world).await, (RANGE - RESERVED, 1));
    clock.fetch_add(DAY_MS + 1, Ordering::Relaxed);
    assert_eq!(remaining(&world).await, (RANGE - RESERVED, 3_650));
    clock.fetch_add(DAY_MS + QUARANTINE_MS - 1, Ordering::Relaxed);
    assert_eq!(remaining(&world).await, (RANGE - RESERVED, 3_650));
    clock.fetch_add(1, Ordering::Relaxed);
    assert_eq!(remaining(&world).await, (RANGE, 3_650));
}
