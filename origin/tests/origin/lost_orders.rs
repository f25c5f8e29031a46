//! SQL has lost acknowledged orders: the sale waits for an operator.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_sale::claim::Ticket;
use weir_sale::ledger::checksum_of;
use weir_sale::redis::catalogue;
use weir_sale::redis::keys::ShardKeys;

use crate::support::{Answer, CLAIM_TTL_MS, SHARDS, World, id};

/// A sale of eight units with one order for each of these users.
async fn sold(names: &[&str]) -> (World, Vec<Ticket>) {
    let world = World::with_sale("s", 8).await;
    let mut tickets = vec![];
    for name in names {
        let ticket = world.claim("s", name).await;
        assert_eq!(world.order(&ticket).await.status, 201);
        tickets.push(ticket);
    }
    (world, tickets)
}

/// Removes an order from SQL without a trace, as after a failover to a lagging replica.
async fn lose_order(world: &World, ticket: &Ticket) {
    let (claim, user) = (ticket.claim_id().to_string(), ticket.user.to_string());
    let shard = ticket.shard.to_string();
    let mut sql = world.sql().await;
    for statement in [
        "DELETE FROM orders WHERE id = ?",
        "DELETE FROM claim_outcomes WHERE claim_id = ?",
        "DELETE FROM change_log WHERE order_id = ?",
    ] {
        sql.execute(statement, &[&claim]).await;
    }
    sql.execute("DELETE FROM buyers WHERE user_id = ?", &[&user])
        .await;
    sql.execute("UPDATE stock SET remaining = remaining + 1", &[])
        .await;
    let (store, sale) = (world.origin.sales().store(), id("s"));
    let counts = store.counters().counts(&sale).await.unwrap();
    let counts = counts.iter().find(|counts| counts.shard == ticket.shard);
    let checksum = checksum_of(counts.unwrap().checksum, ticket.generation, false);
    sql.execute(
        "UPDATE order_counts SET unpaid = unpaid - 1, units_deducted = units_deducted - 1, checksum = ? WHERE shard = ?",
        &[&checksum.to_string(), &shard],
    )
    .await;
}

async fn reconcile(world: &World, rounds: u32) {
    let mut reconciler = world.origin.sales().reconciler();
    for _ in 0..rounds {
        reconciler.round().await.unwrap();
    }
}

async fn lost_orders(world: &World) -> Value {
    let answer = world
        .admin("GET", "/sales/s/lost-orders", &Value::Null)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

async fn decide(world: &World, decision: &str) -> Answer {
    let body = json!({ "decision": decision });
    world.admin("POST", "/sales/s/lost-orders", &body).await
}

/// Whether the sale is published to gateways as paused.
async fn is_paused(world: &World) -> bool {
    let json = world.origin.sales().ledger().published().await.unwrap();
    catalogue::read(&json.unwrap()).unwrap().sales[0].paused
}

/// `[stock, claims, orders, drift]` of the sale.
async fn terms(world: &World) -> Value {
    let audit = world.admin("GET", "/sales/s/audit", &Value::Null).await;
    let terms = &audit.body["terms"];
    json!([
        terms["stock"],
        terms["claims"],
        terms["orders"],
        terms["drift"]
    ])
}

#[tokio::test]
async fn lost_order_pauses_the_sale_and_stays_in_redis() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    reconcile(&world, 2).await;
    assert!(!is_paused(&world).await, "nothing is lost");
    assert_eq!(lost_orders(&world).await["changes_lost"], 0);
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 1).await;
    assert!(is_paused(&world).await);
    reconcile(&world, 4).await;
    // Redis lacks one unit more than SQL counts as sold: it is not restored yet.
    assert_eq!(terms(&world).await, json!([6, 0, 1, -1]));
    let lost = lost_orders(&world).await;
    assert!(lost["paused_at_ms"].is_u64(), "{lost}");
    let order = json!({
        "id": tickets[0].claim_id().as_str(), "user": "alice", "shard": tickets[0].shard,
        "generation": tickets[0].generation, "units": 1, "deducted": true,
    });
    assert_eq!(
        (&lost["changes_lost"], &lost["count"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(lost["orders"], json!([order]));
    let response = world.admin("GET", "/sales/s", &Value::Null).await;
    assert_eq!(response.body["paused_at_ms"], lost["paused_at_ms"]);
    world.origin.sales().jobs().round().await.unwrap();
    let ready = world.admin_as("GET", "/readyz", "", None).await;
    assert_eq!(
        (ready.status.as_u16(), &ready.body["sales"]),
        (200, &json!("paused"))
    );
}

#[tokio::test]
async fn restored_order_has_its_id_and_its_unit_again() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 1).await;
    let done = decide(&world, "restore").await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.body["orders"][0]["outcome"], "restored");
    assert!(!is_paused(&world).await);
    reconcile(&world, 3).await;
    assert_eq!(terms(&world).await, json!([6, 0, 2, 0]));
    assert_eq!(
        world.order(&tickets[0]).await.status,
        200,
        "it is the same order"
    );
    assert_eq!(lost_orders(&world).await["changes_lost"], 0);
    assert!(!is_paused(&world).await);
    let again = decide(&world, "restore").await;
    assert_eq!(
        (again.status.as_u16(), again.code()),
        (409, "sale_not_paused")
    );
}

#[tokio::test]
async fn accepted_loss_gives_the_unit_to_others() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 1).await;
    let stored = world.origin.sales().store().sale(&id("s")).await.unwrap();
    let done = decide(&world, "accept").await;
    assert_eq!(done.body["orders"][0]["outcome"], "given_up", "{done:?}");
    reconcile(&world, 3).await;
    assert_eq!(terms(&world).await, json!([7, 0, 1, 0]));
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201, "she may buy again");
    reconcile(&world, 3).await;
    assert!(!is_paused(&world).await);
    // An origin that found the loss before the decision acts late.
    let late = weir_origin::sales::store::StoredSale {
        pauses: 0,
        ..stored.unwrap()
    };
    let pauses = world.origin.sales().store();
    assert!(!pauses.pauses().pause(&late, now_ms()).await.unwrap());
    assert!(!is_paused(&world).await);
}

#[tokio::test]
async fn lost_order_of_a_user_blocked_later_is_not_restored() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 1).await;
    let blocked = world
        .admin("PUT", "/sales/s/blocked/alice", &Value::Null)
        .await;
    assert!(blocked.status.is_success(), "{blocked:?}");
    let done = decide(&world, "restore").await;
    assert_eq!(done.body["orders"][0]["outcome"], "barred", "{done:?}");
    reconcile(&world, 3).await;
    assert_eq!(terms(&world).await, json!([7, 0, 1, 0]));
}

/// Redis returns no orders of a user who holds a claim.
#[tokio::test]
async fn decision_waits_for_open_claims() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    let late = now_ms() - 10 * CLAIM_TTL_MS;
    world.claim_at("s", "carol", late).await;
    lose_order(&world, &tickets[0]).await;
    let store = world.origin.sales().store();
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert!(store.pauses().pause(&stored, now_ms()).await.unwrap());
    let refused = decide(&world, "restore").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "claims_open")
    );
    // Claims of a paused sale still expire.
    reconcile(&world, 1).await;
    let done = decide(&world, "restore").await;
    assert_eq!(done.body["orders"][0]["outcome"], "restored", "{done:?}");
}

/// Redis has lost the mark, so the count proves nothing: the order itself is the proof.
#[tokio::test]
async fn lost_order_is_detected_without_a_mark() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    for shard in 0..SHARDS {
        let mark = ShardKeys::new(&world.prefix, &id("s"), shard).mark();
        world.redis(redis::cmd("DEL").arg(mark)).await;
    }
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 3).await;
    assert!(is_paused(&world).await);
    assert_eq!(lost_orders(&world).await["changes_lost"], 0);
    assert_eq!(lost_orders(&world).await["count"], 1);
}

#[tokio::test]
async fn rebuilt_shard_has_the_mark_of_sql() {
    let (world, tickets) = sold(&["alice", "bob"]).await;
    let keys = ShardKeys::new(&world.prefix, &id("s"), tickets[0].shard);
    for key in keys.ledger() {
        world.redis(redis::cmd("DEL").arg(key)).await;
    }
    reconcile(&world, 1).await;
    assert!(world.audit(&tickets[0]).await.mark > 0);
    lose_order(&world, &tickets[0]).await;
    reconcile(&world, 1).await;
    assert!(is_paused(&world).await);
}
