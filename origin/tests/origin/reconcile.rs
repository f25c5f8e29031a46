//! The reconciler ends abandoned claims and restores lost data.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::store::{CancelOutcome, HoldRules, OrderOutcome, OrderStatus};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Audit, LendReply, WipeReply};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::shard::{bucket, home_shard};

use crate::support::{CLAIM_TTL_MS, SHARDS, World, id, user};

/// Claims this old are past their deadline.
const LONG_MS: u64 = 60_000;

/// Runs rounds of the reconciler: the second round that finds a drift repairs it.
async fn reconcile(world: &World, rounds: u32) {
    let mut reconciler = world.origin.sales().reconciler();
    for _ in 0..rounds {
        reconciler.round().await.unwrap();
    }
}

async fn audit(world: &World) -> Value {
    let answer = world.admin("GET", "/sales/s/audit", &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// `[stock, transfers, claims, orders, drift]` of sale `s`.
async fn terms(world: &World) -> Value {
    let terms = &audit(world).await["terms"];
    json!([
        terms["stock"],
        terms["transfers"],
        terms["claims"],
        terms["orders"],
        terms["drift"]
    ])
}

async fn shard_audit(world: &World, shard: u32) -> Audit {
    world
        .origin
        .sales()
        .ledger()
        .audit(&id("s"), shard)
        .await
        .unwrap()
}

/// Redis loses all data of a shard of sale `s`.
async fn lose(world: &World, shard: u32) {
    let keys = ShardKeys::new(&world.prefix, &id("s"), shard);
    for key in keys.ledger() {
        world.redis(redis::cmd("DEL").arg(key)).await;
    }
}

async fn add_stock(world: &World, shard: u32, units: i64) {
    let key = ShardKeys::new(&world.prefix, &id("s"), shard).stock();
    world.redis(redis::cmd("INCRBY").arg(key).arg(units)).await;
}

async fn overdue(world: &World, name: &str) -> Ticket {
    world.claim_at("s", name, now_ms() - LONG_MS).await
}

#[tokio::test]
async fn unordered_claim_releases_its_unit_and_can_never_be_ordered() {
    let world = World::with_sale("s", 8).await;
    let ticket = overdue(&world, "alice").await;
    let fresh = world.claim("s", "bob").await;
    assert_eq!(terms(&world).await, json!([6, 0, 2, 0, 0]));
    reconcile(&world, 1).await;
    assert_eq!(terms(&world).await, json!([7, 0, 1, 0, 0]));
    let late = world.order(&ticket).await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "claim_released"));
    assert_eq!(world.order(&fresh).await.status, 201);
    assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
}

#[tokio::test]
async fn open_claims_are_classified_by_time_past_deadline() {
    let world = World::with_sale("s", 40).await;
    world.claim("s", "fresh").await;
    for (name, past_ms) in [("a", 5_000), ("b", 30_000), ("c", 30_000), ("d", 90_000)] {
        world
            .claim_at("s", name, now_ms() - CLAIM_TTL_MS - past_ms)
            .await;
    }
    let reply = async |counts: [u32; 4]| {
        let metrics = world.admin_as("GET", "/metrics", "", None).await;
        let text = metrics.body.as_str().unwrap().to_owned();
        for (age, count) in ["no", "10s", "60s", "more"].iter().zip(counts) {
            let labels = format!("sale=\"s\",past_deadline=\"{age}\"");
            let line = format!("weir_origin_open_claims_by_age{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    };
    reconcile(&world, 1).await;
    reply([1, 1, 2, 1]).await;
    reconcile(&world, 1).await;
    reply([1, 0, 0, 0]).await;
}

#[tokio::test]
async fn order_with_lost_settlement_is_settled_and_not_released() {
    let world = World::with_sale("s", 8).await;
    let ticket = overdue(&world, "alice").await;
    let placed = world
        .origin
        .sales()
        .store()
        .claims()
        .place(&ticket, now_ms())
        .await
        .unwrap();
    assert!(
        matches!(placed, OrderOutcome::New(_)),
        "SQL has it, Redis was not told"
    );
    assert_eq!(world.audit(&ticket).await.held, 1);
    reconcile(&world, 1).await;
    let audit = world.audit(&ticket).await;
    assert_eq!((audit.held, audit.bought), (0, 1));
    assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
    assert_eq!(world.order(&ticket).await.status, 200, "the same order");
}

#[tokio::test]
async fn abandoned_transfer_is_finished_from_any_step() {
    for stops_after_deposit in [false, true] {
        let world = World::with_sale("s", 8).await;
        let ledger = world.origin.sales().ledger();
        let keys = ShardKeys::new(&world.prefix, &id("s"), 1);
        let long_ago = now_ms() - LONG_MS;
        let call = weir_sale::redis::lend::call(&keys, 2, 1);
        let reply = world.script_at(&call, long_ago).await;
        let parsed = weir_sale::redis::lend::parse(&reply).unwrap();
        let LendReply::Lent(transfer) = parsed else {
            panic!("{parsed:?}")
        };
        if stops_after_deposit {
            ledger.deposit(&id("s"), 1, 2, transfer).await.unwrap();
        }
        let moving = if stops_after_deposit { 0 } else { 1 };
        assert_eq!(terms(&world).await, json!([8 - moving, moving, 0, 0, 0]));
        reconcile(&world, 1).await;
        assert_eq!(terms(&world).await, json!([8, 0, 0, 0, 0]));
        assert!(shard_audit(&world, 1).await.transfers.is_empty());
        assert_eq!(shard_audit(&world, 2).await.stock, Some(3));
    }
}

#[tokio::test]
async fn recent_transfer_is_left_to_its_gateway() {
    let world = World::with_sale("s", 8).await;
    let ledger = world.origin.sales().ledger();
    ledger.lend(&id("s"), 1, 2, 1).await.unwrap();
    reconcile(&world, 1).await;
    assert_eq!(shard_audit(&world, 1).await.transfers.len(), 1);
}

#[tokio::test]
async fn lost_redis_data_is_rebuilt_from_sql_and_caps_hold() {
    let world = World::with_sale("s", 8).await;
    let tickets = [
        world.claim("s", "alice").await,
        world.claim("s", "bob").await,
    ];
    for ticket in &tickets {
        assert_eq!(world.order(ticket).await.status, 201);
    }
    let lost_claim = world.claim("s", "carol").await;
    for shard in 0..SHARDS {
        lose(&world, shard).await;
    }
    assert_eq!(audit(&world).await["balanced"], Value::Null);
    reconcile(&world, 3).await;
    assert_eq!(terms(&world).await, json!([6, 0, 0, 2, 0]));
    for ticket in &tickets {
        assert_eq!(world.audit(ticket).await.stock.map(|s| s >= 1), Some(true));
        assert!(
            world
                .try_claim_at("s", ticket.user.as_str(), now_ms())
                .await
                .is_err(),
            "the cap is known again"
        );
    }
    // The lost claim still becomes an order, because SQL has a unit for it. Redis then has one unit too many, which is
    // removed.
    assert_eq!(world.order(&lost_claim).await.status, 201);
    assert_eq!(terms(&world).await, json!([6, 0, 0, 3, 1]));
    reconcile(&world, 2).await;
    assert_eq!(terms(&world).await, json!([5, 0, 0, 3, 0]));
}

#[tokio::test]
async fn drift_seen_twice_is_repaired_even_with_an_open_claim() {
    for units in [-2, 3] {
        let world = World::with_sale("s", 8).await;
        let ticket = world.claim("s", "alice").await;
        add_stock(&world, 3, units).await;
        reconcile(&world, 1).await;
        assert_eq!(terms(&world).await, json!([7 + units, 0, 1, 0, units]));
        reconcile(&world, 2).await;
        assert_eq!(terms(&world).await, json!([7, 0, 1, 0, 0]));
        assert_eq!(world.order(&ticket).await.status, 201);
        assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
    }
}

/// SQL already has the order, and Redis still holds its unit for the claim: it must not count twice.
#[tokio::test]
async fn claim_with_an_existing_order_is_not_drift() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    let store = world.origin.sales().store();
    store.claims().place(&ticket, now_ms()).await.unwrap();
    assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
    reconcile(&world, 3).await;
    assert_eq!(
        world.audit(&ticket).await.stock,
        Some(1),
        "nothing is taken"
    );
}

/// Redis has lost an order, and its user cancels it: only SQL has the freed unit.
#[tokio::test]
async fn unit_freed_only_in_sql_returns_to_stock_after_three_rounds() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    let mut reconciler = world.origin.sales().reconciler();
    for _ in 0..3 {
        reconciler.round().await.unwrap();
    }
    // Redis loses the order; all is idle, and the last check was correct.
    let keys = ShardKeys::new(&world.prefix, &id("s"), ticket.shard);
    let bought = keys.bought_in(bucket(&ticket.user));
    world.redis(redis::cmd("DEL").arg(bought)).await;
    let store = world.origin.sales().store();
    let order = ticket.claim_id().to_string();
    store
        .payments()
        .cancel(&order, &ticket.user, HoldRules::default(), now_ms())
        .await
        .unwrap();
    let jobs = world.origin.sales().jobs();
    jobs.round().await.unwrap();
    for _ in 0..3 {
        reconciler.round().await.unwrap();
    }
    assert_eq!(terms(&world).await, json!([8, 0, 0, 0, 0]));
}

/// Redis is rewound to before a cancellation and before an order: it has as many orders as SQL, but different ones.
#[tokio::test]
async fn orders_that_differ_between_redis_and_sql_are_repaired() {
    let world = World::with_sale("s", 8).await;
    let mut tickets = vec![];
    for n in 0..40 {
        let name = format!("u{n}");
        if home_shard(&user(&name), SHARDS) == 0 && tickets.len() < 2 {
            tickets.push(world.claim("s", &name).await);
        }
    }
    let [ended, current] = [&tickets[0], &tickets[1]];
    for ticket in [ended, current] {
        assert_eq!(world.order(ticket).await.status, 201);
    }
    let keys = ShardKeys::new(&world.prefix, &id("s"), 0);
    let key_of = |ticket: &Ticket| keys.bought_in(bucket(&ticket.user));
    let order = format!("{}:1", current.generation);
    let forgotten = redis::cmd("DEL").arg(key_of(current)).clone();
    world.redis(&forgotten).await;
    let (store, name) = (world.origin.sales().store(), ended.claim_id().to_string());
    let cancelled = store
        .payments()
        .cancel(&name, &ended.user, HoldRules::default(), now_ms());
    assert!(matches!(cancelled.await.unwrap(), CancelOutcome::Now(_)));
    let followed = store.mark_followed(&name, OrderStatus::Cancelled);
    followed.await.unwrap();
    let ledger = world.origin.sales().ledger();
    // Two rounds for the users, then for the sums, which still count the lost key, then for the returned unit.
    reconcile(&world, 8).await;
    let users = [ended.user.clone(), current.user.clone()];
    let existing = ledger.settled(&id("s"), 0, &users).await.unwrap();
    assert_eq!((existing[0].len(), existing[1].len()), (0, 1), "{order}");
    let audit = world.audit(current).await;
    assert_eq!((audit.bought, audit.held), (1, 0));
    assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
    assert_eq!(
        audit.mark, 3,
        "SQL counts two orders, and an end that Redis forgot"
    );
}

/// The key of deadlines, or of claims, was evicted.
#[tokio::test]
async fn claim_partly_lost_by_redis_still_ends() {
    for forgets_deadlines in [true, false] {
        let world = World::with_sale("s", 8).await;
        let ticket = overdue(&world, "alice").await;
        let keys = ShardKeys::new(&world.prefix, &id("s"), ticket.shard);
        let key = match forgets_deadlines {
            true => keys.pending(),
            false => keys.claims(),
        };
        world.redis(redis::cmd("DEL").arg(key)).await;
        reconcile(&world, 4).await;
        let audit = world.audit(&ticket).await;
        assert!(audit.is_sound(), "{audit:?}");
        assert_eq!(terms(&world).await, json!([8, 0, 0, 0, 0]));
    }
}

/// One sale's shard is lost, and another origin died while rebuilding it.
#[tokio::test]
async fn abandoned_rebuild_is_taken_over_and_its_late_writes_refused() {
    let world = World::with_sale("s", 8).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    lose(&world, ticket.shard).await;
    let ledger = world.origin.sales().ledger();
    let (sale, shard) = (id("s"), ticket.shard);
    let started = ledger.wipe(&sale, shard, "dead", 1_500).await.unwrap();
    assert_eq!(started, WipeReply::Begun);
    reconcile(&world, 1).await;
    assert_eq!(world.audit(&ticket).await.stock, None, "it is left to it");
    tokio::time::sleep(std::time::Duration::from_millis(1_600)).await;
    reconcile(&world, 1).await;
    let rebuilt = world.audit(&ticket).await;
    assert_eq!((rebuilt.stock, rebuilt.bought), (Some(0), 1));
    let late = ledger.restore(&sale, shard, "dead", &[]).await.unwrap();
    assert!(!late);
    assert!(!ledger.warm(&sale, shard, 9, Some("dead")).await.unwrap());
}

#[tokio::test]
async fn unwarmed_sale_is_not_rebuilt() {
    let world = World::new().await;
    let sale = json!({"id": "s", "title": "t", "total": 4, "shards": SHARDS, "user_cap": 1,
        "starts_at_ms": 0, "ends_at_ms": 9_000_000_000_000_u64});
    assert_eq!(world.admin("POST", "/sales", &sale).await.status, 201);
    let answer = world.admin("POST", "/sales/s/rebuild", &Value::Null).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (409, "not_warmed"));
    reconcile(&world, 2).await;
    assert_eq!(shard_audit(&world, 0).await.stock, None);
    let unknown = world.admin("POST", "/sales/x/rebuild", &Value::Null).await;
    assert_eq!(unknown.code(), "unknown_sale");
}

#[tokio::test]
async fn manual_rebuild_restores_only_lost_shards() {
    let world = World::with_sale("s", 8).await;
    lose(&world, 2).await;
    let rebuild = || world.admin("POST", "/sales/s/rebuild", &Value::Null);
    assert_eq!(rebuild().await.body["shards_rebuilt"], 1);
    assert_eq!(rebuild().await.body["shards_rebuilt"], 0);
    assert_eq!(terms(&world).await, json!([6, 0, 0, 0, -2]));
}

#[tokio::test]
async fn user_lost_by_redis_gets_no_second_order() {
    let world = World::with_sale("s", 8).await;
    let first = world.claim("s", "alice").await;
    assert_eq!(world.order(&first).await.status, 201);
    let keys = ShardKeys::new(&world.prefix, &id("s"), first.shard);
    let bought = keys.bought_in(bucket(&first.user));
    world.redis(redis::cmd("DEL").arg(bought)).await;
    let second = world.claim("s", "alice").await;
    let refused = world.order(&second).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "user_cap"));
    assert_eq!(terms(&world).await, json!([7, 0, 0, 1, 0]));
    let third = world.try_claim_at("s", "alice", now_ms()).await;
    assert!(third.is_err(), "Redis was reminded");
}

/// C8: a blocked order of one sale does not delay repairs of other sales.
#[tokio::test]
async fn order_that_fails_in_redis_delays_no_other_sale() {
    let world = World::with_sale("s", 8).await;
    world.sale("stuck", 8).await;
    let ticket = world.claim("stuck", "alice").await;
    assert_eq!(world.order(&ticket).await.status, 201);
    // The data of the order's user in Redis is unreadable, so no change of that user can be applied.
    let keys = ShardKeys::new(&world.prefix, &id("stuck"), ticket.shard);
    for key in [keys.claims(), keys.bought_in(bucket(&ticket.user))] {
        world.redis(redis::cmd("DEL").arg(&key)).await;
        world
            .redis(redis::cmd("SET").arg(&key).arg("nonsense"))
            .await;
    }
    let order = format!("/orders/{}/cancel", ticket.claim_id());
    let cancelled = world.as_user("alice", "POST", &order).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");

    add_stock(&world, 0, 3).await;
    assert_eq!(terms(&world).await, json!([11, 0, 0, 0, 3]));
    let mut reconciler = world.origin.sales().reconciler();
    for _ in 0..6 {
        // A round may report that the stuck sale failed.
        let _ = reconciler.round().await;
    }
    assert_eq!(terms(&world).await, json!([8, 0, 0, 0, 0]));
}

/// C10: a separate Redis, because the test counts its commands. Lists are written before the shards are used and once
/// more afterwards, not once per shard.
#[tokio::test]
async fn rebuild_writes_each_listed_user_twice_for_any_shard_count() {
    const USERS: usize = 120;
    let dir = tempfile::tempdir().unwrap();
    let server = crate::support::redis(&dir).await;
    let world = World::on(&server.url()).await;
    let window = json!({ "from_ms": 0, "until_ms": now_ms() + 600_000 });
    world
        .sale_with("s", 8, json!({ "reservation": window }))
        .await;
    for n in 0..USERS {
        let path = "/sales/s/reservations";
        let answer = world.as_user(&format!("user-{n}"), "POST", path).await;
        assert_eq!(answer.status, 201);
    }
    world.redis(&redis::cmd("FLUSHALL")).await;
    world.redis(redis::cmd("CONFIG").arg("RESETSTAT")).await;
    reconcile(&world, 3).await;
    assert_eq!(terms(&world).await, json!([8, 0, 0, 0, 0]));
    let stats = world.redis(redis::cmd("INFO").arg("commandstats")).await;
    let redis::Value::BulkString(stats) = stats else {
        panic!("{stats:?}")
    };
    let stats = String::from_utf8(stats).unwrap();
    let calls = stats.split("cmdstat_sadd:calls=").nth(1).unwrap();
    let calls: usize = calls.split(',').next().unwrap().parse().unwrap();
    assert!(calls <= 2 * USERS, "{calls} writes for {USERS} users");
    let listed = world.keys("*:reserved:*").await;
    assert!(!listed.is_empty());
}
