//! Redis is updated from SQL: changes, data losses, verification.

use redis::cmd;
use serde_json::Value;
use weir_fitment::redis::keys::{FitmentKeys, VehicleMapKeys};
use weir_fitment::{Answer, Spu};

use super::{add, catalogue, check, fitment, follow, in_redis, map, put_product, remove, sku};
use crate::support::World;

#[tokio::test]
async fn sql_changes_are_published_to_redis() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 9, &[("S1", "P1"), ("S2", "P1")]).await;
    assert_eq!(add(&world, "S1", 3).await, 202);
    assert_eq!(add(&world, "S1", 3).await, 204);
    assert_eq!(
        in_redis(&world, "S1", 3).await,
        Answer::Unknown,
        "Redis has not followed"
    );
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 3).await, Answer::Fits);
    assert_eq!(in_redis(&world, "S1", 4).await, Answer::DoesNot);
    assert_eq!(
        in_redis(&world, "S2", 3).await,
        Answer::Unknown,
        "nobody said what it fits"
    );
    // As deltas, one and several.
    assert_eq!(add(&world, "S1", 4).await, 202);
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 4).await, Answer::Fits);
    assert_eq!(remove(&world, "S1", 3).await, 202);
    assert_eq!(add(&world, "S1", 9).await, 202);
    follow(&world).await;
    for (number, expected) in [(3, Answer::DoesNot), (4, Answer::Fits), (9, Answer::Fits)] {
        assert_eq!(in_redis(&world, "S1", number).await, expected, "{number}");
    }
    assert_eq!(
        check(&world, "S1", &[3, 4, 9]).await,
        ["does_not", "fits", "fits"]
    );
    assert_eq!(
        fitment(&world).store().changes().waiting().await.unwrap(),
        (0, None)
    );
}

#[tokio::test]
async fn product_without_fitments_is_no_fit_until_it_is_deleted() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 2, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    remove(&world, "S1", 1).await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::DoesNot);
    world
        .admin("DELETE", "/fitment/products/S1", &Value::Null)
        .await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Unknown);
    assert_eq!(check(&world, "S1", &[1]).await, ["unknown"]);
    // It returns as a new SKU.
    put_product(&world, "S1", "P1").await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Unknown);
    add(&world, "S1", 2).await;
    follow(&world).await;
    assert_eq!(in_redis(&world, "S1", 2).await, Answer::Fits);
}

async fn lose_all(world: &World) {
    for key in world.keys("fit:*").await {
        world.redis(cmd("DEL").arg(key)).await;
    }
}

#[tokio::test]
async fn redis_that_lost_its_data_is_rebuilt() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 9, &[("S1", "P1"), ("S2", "P2")]).await;
    add(&world, "S1", 3).await;
    add(&world, "S2", 4).await;
    follow(&world).await;
    lose_all(&world).await;
    assert_eq!(in_redis(&world, "S1", 3).await, Answer::Unknown);
    // The origin answers meanwhile, and writes its answers to Redis.
    assert_eq!(check(&world, "S1", &[3, 4]).await, ["fits", "does_not"]);
    assert!(map(&world).await.is_empty());
    follow(&world).await;
    assert_eq!(map(&world).await.len(), 9);
    assert_eq!(in_redis(&world, "S1", 3).await, Answer::Fits);
    assert_eq!(in_redis(&world, "S2", 4).await, Answer::Fits);
    assert_eq!(
        fitment(&world).store().head().await.unwrap().rebuilt_up_to,
        None
    );
}

/// The origin that detected the loss dies after it has stored the rebuild, and after some steps.
#[tokio::test]
async fn another_origin_resumes_an_interrupted_rebuild() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 2, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    follow(&world).await;
    let other = world.fitment(|_| ()).await;
    other.begin_rebuild().await.unwrap();
    world
        .redis(cmd("DEL").arg(format!("{}:fit:{{P1}}", world.prefix)))
        .await;
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Unknown);
    assert!(fitment(&world).rebuild_some(1).await.unwrap());
    assert_eq!(in_redis(&world, "S1", 1).await, Answer::Fits);
    assert!(!other.rebuild_some(9).await.unwrap());
    // An origin with an outdated position changes nothing.
    fitment(&world)
        .store()
        .changes()
        .advance_rebuild(1, Some(7))
        .await
        .unwrap();
    assert_eq!(
        fitment(&world).store().head().await.unwrap().rebuilt_up_to,
        None
    );
}

#[tokio::test]
async fn partly_lost_redis_data_reads_unknown_and_is_repaired() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 700, &[("S1", "P1"), ("S2", "P1"), ("S3", "P1")]).await;
    add(&world, "S1", 3).await;
    add(&world, "S3", 3).await;
    for number in 1..=600 {
        add(&world, "S2", number).await;
    }
    follow(&world).await;
    assert_eq!(in_redis(&world, "S2", 600).await, Answer::Fits);
    assert_eq!(in_redis(&world, "S2", 601).await, Answer::DoesNot);
    let verify = async || {
        let answer = world
            .admin("POST", "/fitment/verify?spu=P1", &Value::Null)
            .await;
        (
            answer.body["checked"].as_u64().unwrap(),
            answer.body["repaired"].as_u64().unwrap(),
        )
    };
    assert_eq!(verify().await, (3, 0));
    let keys = FitmentKeys::new(&world.prefix, &Spu::new("P1").unwrap());
    for key in [keys.set(&sku("S1")), keys.bitmap(&sku("S2"), 0)] {
        world.redis(cmd("DEL").arg(key)).await;
    }
    // Also a damaged route, and a set that differs from SQL.
    world
        .redis(cmd("SADD").arg(keys.set(&sku("S3"))).arg(5))
        .await;
    for name in ["S1", "S2"] {
        assert_eq!(in_redis(&world, name, 3).await, Answer::Unknown);
        assert_eq!(
            check(&world, name, &[3]).await,
            ["fits"],
            "and it is filled"
        );
        assert_eq!(in_redis(&world, name, 3).await, Answer::Fits);
    }
    world.redis(cmd("DEL").arg(keys.set(&sku("S1")))).await;
    for key in world.keys("fit:route:*").await {
        world.redis(cmd("DEL").arg(key)).await;
    }
    assert_eq!(verify().await, (3, 3));
    assert_eq!(verify().await, (3, 0));
    for name in ["S1", "S2", "S3"] {
        assert_eq!(in_redis(&world, name, 3).await, Answer::Fits);
        assert_eq!(in_redis(&world, name, 650).await, Answer::DoesNot);
    }
    assert_eq!(in_redis(&world, "S3", 5).await, Answer::DoesNot);
}

#[tokio::test]
async fn verification_resumes_after_its_last_step() {
    let world = World::with_fitment(|_| ()).await;
    let names: Vec<String> = (0..25).map(|n| format!("S{n}")).collect();
    let skus: Vec<_> = names.iter().map(|name| (name.as_str(), "P1")).collect();
    catalogue(&world, 3, &skus).await;
    for name in &names {
        add(&world, name, 2).await;
    }
    follow(&world).await;
    let (mut after, mut checked, mut steps) = (0, 0, 0);
    loop {
        let path = format!("/fitment/verify?after={after}&limit=10");
        let step = world.admin("POST", &path, &Value::Null).await.body;
        checked += step["checked"].as_u64().unwrap();
        assert_eq!(step["repaired"], 0);
        steps += 1;
        match step["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!((checked, steps), (25, 3));
    let too_many = world
        .admin("POST", "/fitment/verify?limit=201", &Value::Null)
        .await;
    assert_eq!(too_many.status, 422);
}

/// SQL was restored from a backup: its versions are lower than those in Redis.
#[tokio::test]
async fn sql_wins_even_over_a_higher_version_in_redis() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 3, &[("S1", "P1")]).await;
    add(&world, "S1", 1).await;
    follow(&world).await;
    add(&world, "S1", 2).await;
    follow(&world).await;
    let mut sql = world.sql().await;
    sql.execute("UPDATE fitment_skus SET version = 1", &[])
        .await;
    let before = fitment(&world).store().head().await.unwrap();
    assert!(before.version > 1);
    let verified = fitment(&world).verify(None, 0, 10).await.unwrap();
    assert_eq!(verified.repaired, 1);
    assert_eq!(
        fitment(&world).verify(None, 0, 10).await.unwrap().repaired,
        0
    );
    assert_eq!(in_redis(&world, "S1", 2).await, Answer::Fits);
}

/// While Redis is down, changes are stored in SQL and stay pending; queries are refused, never guessed.
#[tokio::test]
async fn redis_outage_delays_changes_and_refuses_queries() {
    let world = World::with_fitment_on("redis://127.0.0.1:1").await;
    catalogue(&world, 3, &[("S1", "P1")]).await;
    assert_eq!(add(&world, "S1", 1).await, 202);
    assert!(fitment(&world).publish_dirty().await.is_err());
    assert!(fitment(&world).keep_map().await.is_err());
    let body = serde_json::json!({ "vehicles": ["1000001"], "skus": ["S1"] });
    let answer = world.admin("POST", "/fitment/check", &body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "fitment_unavailable")
    );
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(
        fitment(&world).store().changes().waiting().await.unwrap().0,
        1
    );
}

#[tokio::test]
async fn duplicate_publishing_by_two_origins_is_harmless() {
    let world = World::with_fitment(|_| ()).await;
    catalogue(&world, 50, &[("S1", "P1"), ("S2", "P2")]).await;
    let other = world.fitment(|_| ()).await;
    follow(&world).await;
    for number in 1..=30 {
        add(&world, "S1", number).await;
        add(&world, "S2", 51 - number).await;
        let (one, two) = tokio::join!(fitment(&world).publish_dirty(), other.publish_dirty());
        one.and(two).unwrap();
    }
    follow(&world).await;
    for number in 1..=50 {
        let fits = |is| if is { Answer::Fits } else { Answer::DoesNot };
        assert_eq!(in_redis(&world, "S1", number).await, fits(number <= 30));
        assert_eq!(in_redis(&world, "S2", number).await, fits(number >= 21));
    }
    let verified = fitment(&world).verify(None, 0, 10).await.unwrap();
    assert_eq!((verified.checked, verified.repaired), (2, 0));
    let head = world
        .redis(cmd("GET").arg(VehicleMapKeys::new(&world.prefix).head()))
        .await;
    assert_ne!(head, redis::Value::Nil);
}
