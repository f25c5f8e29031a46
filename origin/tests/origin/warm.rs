//! Stock is loaded into Redis once, and the sale is published to gateways.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use weir_sale::redis::keys::{ShardKeys, catalogue};
use weir_sale::sale::{Band, Catalogue};

use crate::support::{Answer, SHARDS, World, id, sale_json};

async fn make(world: &World, sale: &Value) {
    let response = world.admin("POST", "/sales", sale).await;
    assert_eq!(response.status, 201, "{response:?}");
}

async fn warm(world: &World) -> Answer {
    world.admin("POST", "/sales/s/warm", &Value::Null).await
}

/// The stock in each shard of sale `s`.
async fn stock(world: &World) -> Vec<Option<i64>> {
    let mut units = Vec::new();
    for shard in 0..SHARDS {
        let audit = world.origin.sales().ledger().audit(&id("s"), shard).await;
        units.push(audit.unwrap().stock);
    }
    units
}

/// Redis loses the stock of a shard of sale `s`.
async fn lose(world: &World, shard: u32) {
    let key = ShardKeys::new(&world.prefix, &id("s"), shard).stock();
    world.redis(redis::cmd("DEL").arg(key)).await;
}

/// The catalogue as a gateway reads it, without its version and the claim keys.
async fn published(world: &World) -> Catalogue {
    let key = catalogue(&world.prefix);
    match world.redis(redis::cmd("GET").arg(key)).await {
        redis::Value::BulkString(json) => Catalogue {
            version: 0,
            claim_keys: Vec::new(),
            ..serde_json::from_slice(&json).unwrap()
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ten_units_on_four_shards_are_3_3_2_2_after_reloading_too() {
    let world = World::new().await;
    make(&world, &sale_json("s", 10)).await;
    let first = warm(&world).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(
        first.body,
        json!({ "id": "s", "shard_count": 4, "shards_filled": 4 })
    );
    let spread = [Some(3), Some(3), Some(2), Some(2)];
    assert_eq!(stock(&world).await, spread);
    let at = world.number("SELECT warmed_at_ms FROM sales").await;

    let again = warm(&world).await;
    assert_eq!(
        (again.status.as_u16(), &again.body["shards_filled"]),
        (200, &json!(0))
    );
    assert_eq!(stock(&world).await, spread);
    assert_eq!(world.number("SELECT warmed_at_ms FROM sales").await, at);

    let ticket = world.claim("s", "alice").await;
    let accepted = stock(&world).await;
    assert_eq!(warm(&world).await.status, 200);
    assert_eq!(stock(&world).await, accepted);
    world.order(&ticket).await;
    assert_eq!(warm(&world).await.status, 200);
    assert_eq!(stock(&world).await, accepted);
}

#[tokio::test]
async fn gateways_are_notified_when_a_sale_is_created_and_warmed() {
    let world = World::new().await;
    let sale = sale_json("s", 10);
    make(&world, &sale).await;
    world.origin.sales().publisher().publish().await.unwrap();
    let observed = published(&world).await.checked().unwrap();
    assert_eq!(
        (observed.sales[0].id.as_str(), observed.sales[0].cold),
        ("s", true)
    );
    warm(&world).await;
    let observed = published(&world).await.checked().unwrap();
    assert_eq!(
        serde_json::to_value(&observed.sales[0]).unwrap(),
        json!({
            "id": "s", "starts_at_ms": sale["starts_at_ms"], "ends_at_ms": sale["ends_at_ms"],
            "shards": 4, "user_cap": 1, "state": "open", "reservation": false, "token": false,
            "degrade": { "skip_risk": false, "skip_reservation": false, "static_page": false },
            "band": "high",
        })
    );
}

/// No round compares the catalogue meanwhile: only order changes can trigger a publication.
#[tokio::test]
async fn gateways_are_notified_at_once_of_last_hold_and_last_payment() {
    let world = World::new().await;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": 600_000 } } });
    world.sale_with("s", 1, hold).await;
    let publisher = world.origin.sales().publisher();
    let publisher = publisher
        .clone()
        .comparing_every(Duration::from_secs(3_600));
    let stop = CancellationToken::new();
    let publishing = tokio::spawn(publisher.run(stop.clone()));
    let becomes = async |band: Band| {
        for _ in 0..500 {
            let observed = published(&world).await;
            if observed.sales.first().is_some_and(|sale| sale.band == band) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never {band:?}");
    };
    becomes(Band::High).await;
    let ordered = world.order(&world.claim("s", "alice").await).await;
    becomes(Band::Reserved).await;
    let order = ordered.body["order"].as_str().unwrap();
    let paid = world.pay("alice", &format!("/orders/{order}")).await;
    assert_eq!(paid.body["state"], "paid", "{paid:?}");
    becomes(Band::None).await;
    stop.cancel();
    publishing.await.unwrap();
}

#[tokio::test]
async fn sale_leaves_the_catalogue_an_hour_after_its_end() {
    let world = World::new().await;
    let now_ms = weir_origin::clock::now_ms();
    for (name, ended_ago_ms) in [("s", 3_590_000), ("old", 3_610_000)] {
        let mut sale = sale_json(name, 1);
        sale["starts_at_ms"] = json!(1);
        sale["ends_at_ms"] = json!(now_ms - ended_ago_ms);
        make(&world, &sale).await;
        let path = format!("/sales/{name}/warm");
        assert_eq!(world.admin("POST", &path, &Value::Null).await.status, 200);
    }
    let observed = published(&world).await.sales;
    assert_eq!(observed.len(), 1);
    assert_eq!(observed[0].id, id("s"));
}

#[tokio::test]
async fn interrupted_warm_up_is_finished_by_the_next() {
    let world = World::new().await;
    make(&world, &sale_json("s", 10)).await;
    // As far as the first one progressed.
    assert!(
        world
            .origin
            .sales()
            .ledger()
            .warm(&id("s"), 0, 3, None)
            .await
            .unwrap()
    );
    let answer = warm(&world).await;
    assert_eq!(answer.body["shards_filled"], 3, "{answer:?}");
    assert_eq!(stock(&world).await, [Some(3), Some(3), Some(2), Some(2)]);
}

#[tokio::test]
async fn lost_stock_is_not_recreated_once_claims_may_exist() {
    let world = World::with_sale("s", 10).await;
    // Not even an outcome exists: the claim is still open.
    let ticket = world.claim("s", "alice").await;
    lose(&world, 1).await;
    let refused = warm(&world).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "stock_lost")
    );
    assert!(
        refused.detail().starts_with("shard 1 has no stock"),
        "{}",
        refused.detail()
    );
    assert_eq!(stock(&world).await[1], None);
    world.order(&ticket).await;
    assert_eq!(warm(&world).await.status, 409);
    assert_eq!(stock(&world).await[1], None);
}

#[tokio::test]
async fn sale_with_orders_is_not_refilled_even_before_its_start() {
    let world = World::new().await;
    let mut sale = sale_json("s", 10);
    sale["starts_at_ms"] = json!(weir_origin::clock::now_ms() + 300_000);
    make(&world, &sale).await;
    warm(&world).await;
    lose(&world, 2).await;
    // There are no claims before the start: the shard gets its part again.
    let filled = warm(&world).await;
    assert_eq!(filled.body["shards_filled"], 1, "{filled:?}");
    assert_eq!(stock(&world).await, [Some(3), Some(3), Some(2), Some(2)]);
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    lose(&world, 2).await;
    let refused = warm(&world).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "stock_lost")
    );
    assert_eq!(stock(&world).await[2], None);
}

#[tokio::test]
async fn redis_data_of_a_former_sale_with_same_name_is_not_reused() {
    let world = World::new().await;
    make(&world, &sale_json("s", 10)).await;
    world
        .origin
        .sales()
        .ledger()
        .warm(&id("s"), 2, 500, None)
        .await
        .unwrap();
    let refused = warm(&world).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "redis_not_empty")
    );
    assert!(
        refused.detail().starts_with("shard 2 has"),
        "{}",
        refused.detail()
    );
    let warmed = "SELECT COUNT(*) FROM sales WHERE warmed_at_ms IS NOT NULL";
    assert_eq!(world.number(warmed).await, 0);
}

#[tokio::test]
async fn scripts_run_after_redis_loses_them() {
    let world = World::with_sale("s", 10).await;
    let ticket = world.claim("s", "alice").await;
    world.redis(redis::cmd("SCRIPT").arg("FLUSH")).await;
    assert_eq!(world.order(&ticket).await.status, 201);
    assert_eq!(world.audit(&ticket).await.bought, 1);
}

#[tokio::test]
async fn sale_is_warmed_automatically_by_default() {
    let world = World::new().await;
    let mut sale = sale_json("s", 10);
    sale.as_object_mut().unwrap().remove("warm_before_ms");
    make(&world, &sale).await;
    let response = world.admin("GET", "/sales/s", &Value::Null).await;
    assert_eq!(response.body["warm_before_ms"], 300_000, "{response:?}");
    world.origin.sales().jobs().round().await.unwrap();
    let spread = [Some(3), Some(3), Some(2), Some(2)];
    assert_eq!(stock(&world).await, spread);
}

#[tokio::test]
async fn started_sale_counts_as_unloaded_until_it_is_warm() {
    let world = World::new().await;
    let unloaded = async || {
        world.origin.sales().jobs().round().await.unwrap();
        let metrics = world.admin_as("GET", "/metrics", "", None).await;
        let text = metrics.body.as_str().unwrap().to_owned();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("weir_origin_unloaded_sales "));
        line.map(str::to_owned)
    };
    assert_eq!(unloaded().await.as_deref(), Some("0"));
    make(&world, &sale_json("s", 10)).await;
    assert_eq!(unloaded().await.as_deref(), Some("1"));
    assert_eq!(warm(&world).await.status, 200);
    assert_eq!(unloaded().await.as_deref(), Some("0"));
}
