//! Switches that operators change at run time.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use weir_history::Sku;
use weir_origin::history::model::products::{ProductFuture, ProductSource};

use super::{Clock, lose, record, user};
use crate::support::World;

async fn switch(world: &World, switches: Value) -> Value {
    let answer = world.admin("PUT", "/history-switches", &switches).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

async fn count(world: &World) -> u64 {
    let count = world.as_user("alice", "GET", "/history/count").await;
    assert_eq!(count.status, 200, "{count:?}");
    count.body["count"].as_u64().unwrap()
}

#[tokio::test]
async fn cold_reads_are_switched_at_run_time() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    let alice = user("alice");
    record(&history, &alice, &[(1, clock.now_ms() - 1)]).await;
    history.fold_owner(&alice).await.unwrap();
    let off = switch(&world, json!({ "cold_reads": false })).await;
    let expected = json!({ "cold_reads": false, "count_cache": true, "products_batch": 100 });
    assert_eq!(off, expected);
    lose(&world).await;
    assert_eq!(count(&world).await, 0);
    // Another origin applies them.
    let other = world.history(|settings| clock.set(settings)).await;
    assert_eq!(other.list(&alice, 50, None).await.unwrap().items.len(), 1);
    lose(&world).await;
    other.follow_switches().await.unwrap();
    assert!(other.list(&alice, 50, None).await.unwrap().items.is_empty());
    // The flags apply again.
    let on = switch(&world, json!({ "cold_reads": null })).await;
    assert_eq!(on["cold_reads"], true);
    other.follow_switches().await.unwrap();
    lose(&world).await;
    assert_eq!(other.list(&alice, 50, None).await.unwrap().items.len(), 1);
    let response = world.admin("GET", "/history-switches", &Value::Null).await;
    assert_eq!(response.body, on);
}

#[tokio::test]
async fn count_cache_is_switched_at_run_time() {
    let clock = Clock::at_noon();
    let world = World::with_history(|settings| clock.set(settings)).await;
    let history = world.origin.history().unwrap().clone();
    record(&history, &user("alice"), &[(1, clock.now_ms() - 1)]).await;
    switch(&world, json!({ "count_cache": false })).await;
    for _ in 0..2 {
        assert_eq!(count(&world).await, 1);
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(world.keys("h:*:n").await.len(), 0, "no count is kept");
    switch(&world, json!({})).await;
    assert_eq!(count(&world).await, 1);
    for _ in 0..1_000 {
        if !world.keys("h:*:n").await.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("no count is kept");
}

/// A product source without products that records the size of each request.
#[derive(Default)]
struct Questions(Mutex<Vec<usize>>);

impl ProductSource for Questions {
    fn find<'a>(&'a self, skus: &'a [Sku]) -> ProductFuture<'a> {
        self.0.lock().unwrap().push(skus.len());
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[tokio::test]
async fn product_batch_size_is_changed_at_run_time() {
    let questions = Arc::new(Questions::default());
    let world = World::with_history(|settings| {
        settings.product_service = Some(questions.clone());
    })
    .await;
    let history = world.origin.history().unwrap();
    let skus = |from: u64| (from..from + 10).map(Sku::from).collect::<Vec<_>>();
    history.products().find(&skus(0)).await;
    let switched = switch(&world, json!({ "products_batch": 4 })).await;
    assert_eq!(switched["products_batch"], 4);
    history.products().find(&skus(100)).await;
    switch(&world, json!({ "products_batch": null })).await;
    history.products().find(&skus(200)).await;
    assert_eq!(*questions.0.lock().unwrap(), [10, 4, 4, 2, 10]);
    for bad in [0, 10_001] {
        let refused = world
            .admin(
                "PUT",
                "/history-switches",
                &json!({ "products_batch": bad }),
            )
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (422, "invalid_switches")
        );
    }
}
