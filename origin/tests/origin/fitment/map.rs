//! The vehicle map: offsets are never reused, and an offset beyond the map is an unknown vehicle.

use serde_json::{Value, json};
use weir_fitment::{Answer, Offset};

use super::{add, catalogue, check, fitment, follow, in_redis, map, query, route, sku, vehicle};
use crate::support::World;

#[tokio::test]
async fn vehicle_offset_is_never_reused() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 5, &[("S1", "P1")]).await;
    add(&world, "S1", 5).await;
    follow(&world).await;
    let before = map(&world).await;
    assert_eq!(before[&vehicle(5)].get(), 5);
    // The last vehicle is retired and created again: it counts as another vehicle.
    let path = format!("/fitment/vehicles/{}", vehicle(5));
    assert_eq!(world.admin("DELETE", &path, &Value::Null).await.status, 204);
    assert_eq!(world.admin("DELETE", &path, &Value::Null).await.status, 404);
    follow(&world).await;
    assert_eq!(map(&world).await.len(), 4);
    assert_eq!(in_redis(&world, "S1", 5).await, Answer::Unknown);
    assert_eq!(check(&world, "S1", &[5]).await, ["unknown"]);
    assert_eq!(
        world
            .admin("PUT", &path, &json!({ "make": "Ford" }))
            .await
            .status,
        204
    );
    follow(&world).await;
    let after = map(&world).await;
    assert_eq!(after[&vehicle(5)].get(), 6);
    assert_eq!(
        in_redis(&world, "S1", 5).await,
        Answer::DoesNot,
        "what fitted the old one"
    );
    assert_eq!(check(&world, "S1", &[5]).await, ["does_not"]);
}

#[tokio::test]
async fn gateway_receives_new_and_retired_vehicles() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[]).await;
    follow(&world).await;
    let head = fitment(&world).store().head().await.unwrap();
    catalogue(&world, 6, &[]).await;
    follow(&world).await;
    assert_eq!(map(&world).await.len(), 6);
    assert_eq!(
        fitment(&world).store().head().await.unwrap().generation,
        head.generation
    );
    fitment(&world)
        .store()
        .retire_vehicle(vehicle(2))
        .await
        .unwrap();
    follow(&world).await;
    let now = map(&world).await;
    assert_eq!((now.len(), now[&vehicle(6)].get()), (5, 6));
    assert!(fitment(&world).store().head().await.unwrap().generation > head.generation);
}

#[tokio::test]
async fn lost_map_block_is_rewritten() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[]).await;
    follow(&world).await;
    for key in world.keys("fit:vehicles:{all}:*").await {
        world.redis(redis::cmd("DEL").arg(key)).await;
    }
    catalogue(&world, 4, &[]).await;
    follow(&world).await;
    assert_eq!(map(&world).await.len(), 4);
}

/// Gateways never query such an offset. For a known SKU, the answer is that it does not fit.
#[tokio::test]
async fn offset_beyond_the_map_is_an_unknown_vehicle() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 900).await, Answer::Unknown);
    assert_eq!(check(&world, "S1", &[1, 900]).await, ["fits", "unknown"]);
    let place = route(&world, &sku("S1")).await.unwrap();
    let beyond = query(&world, &place, Offset::new(60_000).unwrap(), &sku("S1")).await;
    assert_eq!(beyond.answer(0), Answer::DoesNot);
}
