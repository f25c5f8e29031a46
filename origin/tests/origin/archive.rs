//! The archiver removes an ended sale from Redis and moves it in SQL. It survives a crash at each step, and statuses
//! stay readable.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::jobs::archive::{ArchiveRules, Progress};
use weir_origin::sales::store::EndedSale;

use crate::support::World;

/// Archive immediately.
const RULES: ArchiveRules = ArchiveRules {
    after_ms: Some(0),
    settle_ms: 0,
};

/// A sale that has just ended. It has a paid, a cancelled and, if `has_unpaid`, an unpaid order, a reservation, a
/// blocked user, and a claim without an order. Returns the paths of its orders.
async fn ended_sale(has_unpaid: bool) -> (World, Vec<String>) {
    let world = World::with_archive(RULES).await;
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 600_000 });
    world
        .sale_with("s", 8, json!({ "reservation": window }))
        .await;
    let mut paths = Vec::new();
    for name in ["alice", "bob", "carol"] {
        world.as_user(name, "POST", "/sales/s/reservations").await;
        let ticket = world.claim("s", name).await;
        assert_eq!(world.order(&ticket).await.status, 201);
        paths.push(format!("/orders/{}", ticket.claim_id()));
    }
    world.pay("alice", &paths[0]).await;
    world
        .as_user("bob", "POST", &format!("{}/cancel", paths[1]))
        .await;
    if !has_unpaid {
        world
            .as_user("carol", "POST", &format!("{}/cancel", paths[2]))
            .await;
    }
    world
        .admin("PUT", "/sales/s/blocked/mallory", &Value::Null)
        .await;
    world.claim("s", "dave").await;
    let end = "UPDATE sales SET starts_at_ms = 1, ends_at_ms = ?";
    let now = now_ms().to_string();
    world.sql().await.execute(end, &[&now]).await;
    (world, paths)
}

/// Number of the sale's keys in Redis.
async fn keys_left(world: &World) -> usize {
    world.keys("*{s:*").await.len()
}

async fn rows_left(world: &World) -> i64 {
    let mut rows = 0;
    for count in [
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM reservations",
        "SELECT COUNT(*) FROM blocked_users",
        "SELECT COUNT(*) FROM buyers",
        "SELECT COUNT(*) FROM idempotency_keys",
        "SELECT COUNT(*) FROM claim_outcomes",
    ] {
        rows += world.number(count).await;
    }
    rows
}

async fn due(world: &World) -> Option<EndedSale> {
    let due = world
        .origin
        .sales()
        .store()
        .archive()
        .due_to_archive(now_ms(), 9);
    due.await.unwrap().into_iter().next()
}

/// Asserts the state of an archived sale.
async fn is_archived(world: &World, paths: &[String]) {
    assert_eq!(keys_left(world).await, 0);
    assert_eq!(rows_left(world).await, 0);
    assert_eq!(world.number("SELECT COUNT(*) FROM orders_archive").await, 3);
    for (name, path, status) in [
        ("alice", &paths[0], "paid"),
        ("bob", &paths[1], "cancelled"),
        ("carol", &paths[2], "cancelled"),
    ] {
        let response = world.as_user(name, "GET", path).await;
        assert_eq!(
            (response.status.as_u16(), &response.body["status"]),
            (200, &json!(status))
        );
        let own = world.as_user(name, "GET", "/my-orders").await;
        assert_eq!(own.body["orders"][0]["status"], status, "{own:?}");
    }
    let again = world
        .as_user("bob", "POST", &format!("{}/cancel", paths[1]))
        .await;
    assert_eq!(again.body["status"], "cancelled", "{again:?}");
    let sale = world.admin("GET", "/sales/s", &Value::Null).await.body;
    let response = (
        &sale["orders"],
        &sale["units_ordered"],
        &sale["remaining"],
        &sale["balanced"],
    );
    assert_eq!(
        response,
        (&json!(1), &json!(1), &json!(7), &json!(true)),
        "{sale}"
    );
    assert!(sale["archived_at_ms"].is_number());
}

#[tokio::test]
async fn ended_sale_is_removed_from_redis_and_archived_in_sql() {
    let (world, paths) = ended_sale(false).await;
    assert!(keys_left(&world).await > 0);
    world.origin.sales().archiver().round().await.unwrap();
    is_archived(&world, &paths).await;
    assert_eq!(due(&world).await, None);

    // No request brings it back.
    for (method, path) in [
        ("POST", "/sales/s/warm"),
        ("POST", "/sales/s/rebuild"),
        ("PUT", "/sales/s/blocked/eve"),
    ] {
        let refused = world.admin(method, path, &Value::Null).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (409, "sale_archived"),
            "{path}"
        );
    }
    let stray = crate::support::ticket("s", "eve", now_ms());
    let refused = world.order(&stray).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "claim_released")
    );
    world.origin.sales().reconciler().round().await.unwrap();
    world.origin.sales().jobs().round().await.unwrap();
    is_archived(&world, &paths).await;
}

/// The archiver crashes after each number of steps, and Redis fails during one of them. The next archiver finishes the
/// work.
#[tokio::test]
async fn crashed_archiver_is_continued_by_the_next() {
    let mut steps_max = 0;
    for steps in 0.. {
        let (world, paths) = ended_sale(false).await;
        let archiver = world.origin.sales().archiver();
        let mut sale = due(&world).await.unwrap();
        let mut is_done = false;
        for _ in 0..steps {
            // Reload the state from SQL: the crashed archiver's memory is lost.
            is_done = archiver.step(&mut sale).await.unwrap() == Progress::Done;
            match due(&world).await {
                Some(next) => sale = next,
                None => break,
            }
        }
        // Two origins at the same time.
        let others = [
            world.origin.sales().archiver(),
            world.origin.sales().archiver(),
        ];
        let (one, other) = tokio::join!(others[0].round(), others[1].round());
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
        is_archived(&world, &paths).await;
        if is_done {
            steps_max = steps;
            break;
        }
    }
    assert!(
        steps_max > 5,
        "{steps_max}: orders, reservations, buyers, outcomes each take one"
    );
}

#[tokio::test]
async fn unpaid_order_is_not_archived_and_can_be_paid() {
    let (world, paths) = ended_sale(true).await;
    let archiver = world.origin.sales().archiver();
    archiver.round().await.unwrap();
    assert_eq!(keys_left(&world).await, 0);
    assert_eq!(world.number("SELECT COUNT(*) FROM orders").await, 1);
    assert!(world.number("SELECT COUNT(*) FROM buyers").await > 0);
    let paid = world.pay("carol", &paths[2]).await;
    assert_eq!(paid.body["state"], "paid", "{paid:?}");
    archiver.round().await.unwrap();
    assert_eq!((keys_left(&world).await, rows_left(&world).await), (0, 0));
    let response = world.as_user("carol", "GET", &paths[2]).await;
    assert_eq!(response.body["status"], "paid");
}

#[tokio::test]
async fn archiver_waits_until_a_sale_is_unused_and_can_be_disabled() {
    let (world, _) = ended_sale(false).await;
    let before = keys_left(&world).await;
    let store = world.origin.sales().store();
    let slow = ArchiveRules {
        settle_ms: 60_000,
        ..RULES
    };
    world.archiver(slow).round().await.unwrap();
    assert!(due(&world).await.unwrap().archived_at_ms.is_some());
    assert_eq!(keys_left(&world).await, before);
    let in_catalogue = store.catalogue(0, 9).await.unwrap();
    assert_eq!(in_catalogue, [], "gateways and the reconciler let go of it");

    let (world, _) = ended_sale(false).await;
    for rules in [
        ArchiveRules {
            after_ms: None,
            ..RULES
        },
        ArchiveRules {
            after_ms: Some(60_000),
            ..RULES
        },
    ] {
        world.archiver(rules).round().await.unwrap();
        assert_eq!(due(&world).await.unwrap().archived_at_ms, None);
    }
}
