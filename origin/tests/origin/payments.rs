//! Orders are paid, cancelled, and expire: in SQL, in Redis, and as answers.

use std::time::Duration;

use serde_json::{Value, json};
use weir_origin::clock::now_ms;

use crate::support::{Answer, SHARDS, World, id};

/// `[stock, claims, orders, drift]` of sale `s`.
async fn terms(world: &World) -> Value {
    let answer = world.admin("GET", "/sales/s/audit", &Value::Null).await;
    let terms = &answer.body["terms"];
    json!([
        terms["stock"],
        terms["claims"],
        terms["orders"],
        terms["drift"]
    ])
}

async fn world(payment: Value) -> World {
    let world = World::new().await;
    world.sale_with("s", 4, json!({ "payment": payment })).await;
    world
}

/// Claims and orders a unit; the order's path.
async fn buy(world: &World, name: &str) -> String {
    let ticket = world.claim("s", name).await;
    let made = world.order(&ticket).await;
    assert_eq!(made.status, 201, "{made:?}");
    format!("/orders/{}", ticket.claim_id())
}

async fn post(world: &World, name: &str, path: &str, what: &str) -> Answer {
    world.as_user(name, "POST", &format!("{path}/{what}")).await
}

#[tokio::test]
async fn an_order_is_paid_once_and_then_stays() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    for _ in 0..2 {
        let paid = post(&world, "alice", &path, "pay").await;
        assert_eq!(
            (paid.status.as_u16(), &paid.body["status"]),
            (200, &json!("paid"))
        );
    }
    let cancelled = post(&world, "alice", &path, "cancel").await;
    assert_eq!(
        (cancelled.status.as_u16(), cancelled.code()),
        (409, "order_paid")
    );
    let seen = world.as_user("alice", "GET", &path).await;
    assert_eq!(
        (seen.status.as_u16(), &seen.body["status"]),
        (200, &json!("paid"))
    );
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
}

#[tokio::test]
async fn a_cancelled_order_gives_its_unit_back_once_and_its_user_may_buy_again() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
    for _ in 0..2 {
        let cancelled = post(&world, "alice", &path, "cancel").await;
        assert_eq!(cancelled.body["status"], "cancelled", "{cancelled:?}");
        assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    }
    let paid = post(&world, "alice", &path, "pay").await;
    assert_eq!(
        (paid.status.as_u16(), paid.code()),
        (409, "order_cancelled")
    );
    buy(&world, "alice").await;
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
}

#[tokio::test]
async fn somebody_elses_order_is_not_there() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    for answer in [
        world.as_user("bob", "GET", &path).await,
        post(&world, "bob", &path, "pay").await,
        post(&world, "bob", &path, "cancel").await,
        post(&world, "alice", "/orders/nothing", "pay").await,
    ] {
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "unknown_order")
        );
    }
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
}

#[tokio::test]
async fn who_does_not_pay_in_time_loses_the_order_and_the_sale_reopens() {
    let world = world(json!({ "hold": { "pay_within_ms": 50 } })).await;
    let path = buy(&world, "alice").await;
    let before = epochs(&world).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let late = post(&world, "alice", &path, "pay").await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "order_expired"));
    world.origin.sales().jobs().round().await.unwrap();
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    assert!(
        epochs(&world).await > before,
        "gateways hear that it reopened"
    );
    let seen = world.as_user("alice", "GET", &path).await;
    assert_eq!(seen.body["status"], "expired");
    world.claim("s", "alice").await;
}

/// The sum of the shards' epochs: it rises when units come back to any.
async fn epochs(world: &World) -> i64 {
    let mut sum = 0;
    for shard in 0..SHARDS {
        sum += world
            .origin
            .sales()
            .ledger()
            .audit(&id("s"), shard)
            .await
            .unwrap()
            .epoch;
    }
    sum
}

#[tokio::test]
async fn an_order_that_takes_its_unit_at_payment_leaves_it_in_stock_until_then() {
    let world = world(json!("at_payment")).await;
    let path = buy(&world, "alice").await;
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    let paid = post(&world, "alice", &path, "pay").await;
    assert_eq!(paid.status, 200, "{paid:?}");
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
    assert_eq!(world.remaining().await, 3);
}

#[tokio::test]
async fn what_redis_missed_it_follows_later() {
    let world = world(json!("at_order")).await;
    let ticket = world.claim("s", "alice").await;
    world.order(&ticket).await;
    let id = ticket.claim_id().to_string();
    let store = world.origin.sales().store();
    // SQL decides; the origin dies before Redis hears of it.
    store.cancel(&id, &ticket.user, now_ms()).await.unwrap();
    assert_eq!(terms(&world).await, json!([3, 0, 0, -1]));
    world.origin.sales().jobs().round().await.unwrap();
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    assert!(store.unfollowed(9).await.unwrap().is_empty());
}
