//! Moves of a SKU to another product or another Redis.

use serde_json::json;
use weir_fitment::check::StoredAnswer;
use weir_fitment::placement::Rules;
use weir_fitment::redis::keys::RouteBucket;
use weir_fitment::{Answer, Cluster, Placement, Spu};
use weir_origin::redis::Redis;

use super::{
    add, catalogue, fitment, follow, in_redis, map, put_product, query, remove, route, sku, vehicle,
};
use crate::support::World;

fn place(spu: &str) -> Placement {
    Placement {
        cluster: Cluster::home(),
        spu: Spu::new(spu).unwrap(),
    }
}

/// The fields of a hash, on any node.
async fn fields(world: &World, key: &str) -> Vec<String> {
    for url in world.redis_url.split(',') {
        let mut connection = weir_stack::redis::connect(url).await.unwrap();
        let mut read = ::redis::cmd("HKEYS");
        let read = read.arg(format!("{}:{key}", world.prefix));
        if let Ok(mut fields) = read.query_async::<Vec<String>>(&mut connection).await {
            fields.sort();
            return fields;
        }
    }
    panic!("no node has {key}");
}

#[tokio::test]
async fn moved_sku_leaves_no_data_at_the_old_placement() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1"), ("S2", "P1")]).await;
    add(&world, "S1", 1).await;
    add(&world, "S2", 2).await;
    follow(&world).await;
    put_product(&world, "S1", "P2").await;
    // The old place answers until Redis is updated.
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
    assert_eq!(route(&world, &sku("S1")).await, Some(place("P1")));
    follow(&world).await;
    assert_eq!(route(&world, &sku("S1")).await, Some(place("P2")));
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
    let offset = map(&world).await[&vehicle(1)];
    assert_eq!(
        query(&world, &place("P1"), offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
    assert_eq!(world.keys("fit:{P1}:*S1").await, [""; 0]);
    assert_eq!(
        in_redis(&world, "S2", 2).await,
        Answer::Fits,
        "the other one stays"
    );
    let still = "SELECT COUNT(*) FROM fitment_left WHERE dropped_at_ms IS NULL";
    assert_eq!(world.number(still).await, 0);
}

/// A dropped SKU leaves a marker for an hour; it is removed unless the SKU came back.
#[tokio::test]
async fn tombstones_of_dropped_skus_are_removed() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1"), ("S2", "P1"), ("S3", "P1")]).await;
    for name in ["S1", "S2", "S3"] {
        add(&world, name, 1).await;
    }
    follow(&world).await;
    put_product(&world, "S1", "P2").await;
    put_product(&world, "S2", "P2").await;
    let deleted = world
        .admin("DELETE", "/fitment/products/S3", &json!(null))
        .await;
    assert_eq!(deleted.status, 204);
    follow(&world).await;
    put_product(&world, "S2", "P1").await;
    follow(&world).await;
    let fitment = fitment(&world);
    let now_ms = fitment.now_ms();
    assert_eq!(fitment.forget_marks(now_ms - 3_600_000).await.unwrap(), 0);
    assert_eq!(fields(&world, "fit:{P1}").await, ["S1", "S2", "S3"]);
    assert_eq!(fitment.forget_marks(now_ms + 60_000).await.unwrap(), 4);
    assert_eq!(fields(&world, "fit:{P1}").await, ["S2"]);
    assert_eq!(fields(&world, "fit:{P2}").await, ["S1"]);
    assert_eq!(world.number("SELECT COUNT(*) FROM fitment_left").await, 0);
    for name in ["S1", "S2"] {
        assert_eq!(in_redis(&world, name, 1).await, Answer::Fits);
    }
    assert_eq!(in_redis(&world, "S3", 1).await, Answer::Unknown);
}

/// SQL was restored from a backup without S2, which Redis has.
#[tokio::test]
async fn sku_missing_in_sql_is_removed_from_redis() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1"), ("S2", "P1")]).await;
    add(&world, "S1", 1).await;
    add(&world, "S2", 1).await;
    follow(&world).await;
    let lost = "DELETE FROM fitment_skus WHERE sku = 'S2'";
    world.sql().await.execute(lost, &[]).await;
    assert_eq!(in_redis(&world, "S2", 1).await, Answer::Fits);
    let fitment = fitment(&world);
    let sweep = async |name: &str| {
        let bucket = RouteBucket::for_sku(&sku(name)).number();
        fitment.forget_unknown(bucket, 1).await.unwrap()
    };
    assert_eq!((sweep("S1").await, sweep("S2").await), (0, 1));
    assert_eq!(route(&world, &sku("S2")).await, None);
    assert_eq!(fields(&world, "fit:{P1}").await, ["S1"]);
    assert_eq!(world.keys("fit:{P1}:*S2").await, [""; 0]);
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
    assert_eq!(sweep("S2").await, 0);
}

/// Two moves before Redis is updated, there and back, with changes in between.
#[tokio::test]
async fn rapid_moves_end_at_the_last_placement() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 5, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    follow(&world).await;
    for (spu, number) in [("P2", 2), ("P3", 3), ("P1", 4), ("P2", 5)] {
        put_product(&world, "S1", spu).await;
        add(&world, "S1", number).await;
    }
    remove(&world, "S1", 1).await;
    follow(&world).await;
    assert_eq!(route(&world, &sku("S1")).await, Some(place("P2")));
    for number in 1..=5 {
        let expected = if number > 1 {
            Answer::Fits
        } else {
            Answer::DoesNot
        };
        assert_eq!(in_redis(&world, "S1", number).await, expected);
    }
    let offset = map(&world).await[&vehicle(2)];
    for spu in ["P1", "P3"] {
        assert_eq!(
            query(&world, &place(spu), offset, &sku("S1")).await,
            StoredAnswer::Absent,
            "{spu}"
        );
    }
    // Back to a place that has a marker.
    put_product(&world, "S1", "P1").await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 2).await, Answer::Fits);
    assert_eq!(
        query(&world, &place("P2"), offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
}

/// The SKU comes back and leaves again between an origin's read from SQL and its record of the drop.
#[tokio::test]
async fn placement_removed_twice_is_dropped_twice() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 5, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    follow(&world).await;
    put_product(&world, "S1", "P2").await;
    let slow = fitment(&world).store().changes().dirty(0, 9).await.unwrap();
    let (number, version) = slow[0].version();
    let remaining = fitment(&world)
        .store()
        .changes()
        .former_placements(number, number)
        .await
        .unwrap();
    assert_eq!(remaining.len(), 1);
    follow(&world).await;
    put_product(&world, "S1", "P1").await;
    follow(&world).await;
    put_product(&world, "S1", "P2").await;
    fitment(&world)
        .store()
        .changes()
        .dropped(&remaining, version)
        .await
        .unwrap();
    assert_eq!(
        fitment(&world)
            .store()
            .changes()
            .former_placements(number, number)
            .await
            .unwrap(),
        remaining
    );
    follow(&world).await;
    assert_eq!(
        fitment(&world)
            .store()
            .changes()
            .former_placements(number, number)
            .await
            .unwrap(),
        []
    );
    let offset = map(&world).await[&vehicle(1)];
    assert_eq!(
        query(&world, &place("P1"), offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
}

/// An origin pauses for a long time, with data read from SQL before the move.
#[tokio::test]
async fn late_writer_does_not_restore_the_old_placement() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 5, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    let late = fitment(&world).store().changes().dirty(0, 9).await.unwrap();
    assert_eq!(late.len(), 1);
    follow(&world).await;
    put_product(&world, "S1", "P2").await;
    follow(&world).await;
    // Its late write has the previous version and place.
    let shape = weir_fitment::Shape::None;
    let keys = weir_fitment::redis::keys::FitmentKeys::new(&world.prefix, &Spu::new("P1").unwrap());
    let call = weir_fitment::redis::fit_put::call(
        &keys,
        &sku("S1"),
        2,
        weir_fitment::redis::fit_put::NewerEntryPolicy::Stays,
        &shape,
    );
    assert!(!weir_fitment::redis::fit_put::parse(&world.script(&call).await).unwrap());
    let offset = map(&world).await[&vehicle(1)];
    assert_eq!(
        query(&world, &place("P1"), offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
}

#[tokio::test]
async fn products_are_stored_in_the_redis_named_by_the_rules() {
    let home = World::with_fitment(|_| ()).await;
    let own = World::new().await;
    let clusters = [Cluster::home(), Cluster::new("own").unwrap()];
    let rules = json!({ "rules": [{ "type": "oil", "cluster": "own" }] }).to_string();
    let rules = Rules::read(&rules, &clusters).unwrap();
    let redis = Redis::new(&own.redis_url, &own.prefix).unwrap();
    let fitment = home
        .fitment(|settings| {
            settings.clusters = vec![(clusters[1].clone(), redis)];
            settings.rules = rules;
        })
        .await;
    catalogue(&home, 3, &[("S1", "P1")]).await;
    add(&home, "S1", 1).await;
    while fitment.keep_map().await.unwrap() {}
    fitment.publish_dirty().await.unwrap();
    assert_eq!(route(&home, &sku("S1")).await, Some(place("P1")));
    // The product's type changes: another Redis, the same SPU.
    let product = |kind| weir_origin::fitment::store::Product {
        spu: Spu::new("P1").unwrap(),
        product_type: weir_fitment::ProductType::new(kind).unwrap(),
        merchant: weir_fitment::Merchant::new("m1").unwrap(),
    };
    let place_of = |product: &_| fitment.place(product);
    let all = [(sku("S1"), product("oil"))];
    fitment.store().put_products(&all, &place_of).await.unwrap();
    fitment.publish_dirty().await.unwrap();
    let there = route(&home, &sku("S1")).await.unwrap();
    assert_eq!((there.cluster.as_str(), there.spu.as_str()), ("own", "P1"));
    let offset = map(&own).await[&vehicle(1)];
    assert_eq!(
        query(&own, &there, offset, &sku("S1")).await,
        StoredAnswer::Known(1)
    );
    assert_eq!(
        query(&home, &there, offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
    // That Redis loses all data and is rebuilt.
    for key in own.keys("fit:*").await {
        own.redis(redis::cmd("DEL").arg(key)).await;
    }
    assert_eq!(
        query(&own, &there, offset, &sku("S1")).await,
        StoredAnswer::Absent
    );
    while fitment.keep_map().await.unwrap() {}
    assert_eq!(
        query(&own, &there, offset, &sku("S1")).await,
        StoredAnswer::Known(1)
    );
}
