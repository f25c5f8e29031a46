//! Stock changes during a sale: exactly by the requested number, or by the number of free units. The end can be moved.

use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::jobs::archive::Progress;
use weir_origin::sales::store::{ChangeBegun, StoredChange};
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::ledger::{StockChange, StockChanged};
use weir_sale::redis::keys::ShardKeys;

use crate::support::{Answer, SHARDS, World, id};

async fn change(world: &World, key: &str, units: i64) -> Answer {
    let body = json!({ "units": units });
    let headers = [("idempotency-key", key)];
    world
        .admin_with("POST", "/sales/s/stock", &body, &headers)
        .await
}

/// Stores only the intent, as if the origin died after it.
async fn begin(world: &World, key: &str, units: i64) -> StoredChange {
    let key = IdempotencyKey::read(key.as_bytes()).unwrap();
    let changer = world.origin.sales().changer();
    match changer.begin(&id("s"), &key, units).await.unwrap() {
        ChangeBegun::New(change) => change,
        other => panic!("{other:?}"),
    }
}

/// Sends a change to one shard.
async fn tell(world: &World, change: &StoredChange, shard: u32) -> StockChanged {
    let share = i64::try_from(change.shares[shard as usize]).unwrap();
    let part = StockChange {
        number: change.number,
        units: share * change.requested.signum(),
    };
    let ledger = world.origin.sales().ledger();
    ledger.change(&id("s"), shard, part).await.unwrap()
}

async fn finish_all(world: &World) {
    let changer = world.origin.sales().changer();
    changer.finish_all().await.unwrap();
}

/// `[stock, claims, orders, total, drift]` of the audit, which must balance.
async fn terms(world: &World) -> [i64; 5] {
    let body = world
        .admin("GET", "/sales/s/audit", &Value::Null)
        .await
        .body;
    assert_eq!(body["exact"], true, "{body}");
    ["stock", "claims", "orders", "total", "drift"].map(|term| {
        let units = body["terms"][term].as_i64();
        units.unwrap_or_else(|| panic!("no {term} in {body}"))
    })
}

async fn reconcile(world: &World) {
    let mut reconciler = world.origin.sales().reconciler();
    for _ in 0..4 {
        reconciler.round().await.unwrap();
    }
}

/// Redis loses all data of a shard.
async fn lose(world: &World, shard: u32) {
    let keys = ShardKeys::new(&world.prefix, &id("s"), shard).ledger();
    world.redis(redis::cmd("DEL").arg(keys)).await;
}

async fn buy(world: &World, name: &str) {
    let ticket = world.claim("s", name).await;
    assert_eq!(world.order(&ticket).await.status, 201);
}

#[tokio::test]
async fn repeated_request_adds_units_once() {
    let world = World::with_sale("s", 4).await;
    let added = change(&world, "\"more\"", 5).await;
    assert_eq!(added.status, 200, "{added:?}");
    let body = ["requested", "state", "units"].map(|member| &added.body[member]);
    assert_eq!(body, [&json!(5), &json!("done"), &json!(5)]);
    assert_eq!(change(&world, "more", 5).await.body, added.body);
    assert_eq!(terms(&world).await, [9, 0, 0, 9, 0]);
    assert_eq!(world.remaining().await, 9);

    let other = change(&world, "more", 6).await;
    let refused = (other.status.as_u16(), other.code());
    assert_eq!(refused, (422, "idempotency_key_reused"));
    let most = change(&world, "most", 1_000_000_000).await;
    assert_eq!((most.status.as_u16(), most.code()), (409, "too_many_units"));

    let accepted = change(&world, "less", -3).await;
    assert_eq!(accepted.body["units"], -3);
    let stock = world
        .admin("GET", "/sales/s/stock", &Value::Null)
        .await
        .body;
    let sums = ["initial", "topped_up", "withdrawn", "total", "remaining"];
    assert_eq!(
        sums.map(|sum| stock[sum].as_u64().unwrap()),
        [4, 5, 3, 6, 6]
    );
    assert_eq!(stock["changes"], json!([accepted.body, added.body]));
    // A second load finds a stock that differs from the initial one, and leaves it.
    let warmed = world.admin("POST", "/sales/s/warm", &Value::Null).await;
    assert_eq!(warmed.body["shards_filled"], 0, "{warmed:?}");
    assert_eq!(terms(&world).await, [6, 0, 0, 6, 0]);

    // Less than the added stock is left: the initial stock stays.
    change(&world, "none", -100).await;
    let stock = world.admin("GET", "/sales/s/stock", &Value::Null).await;
    let sums = sums.map(|sum| stock.body[sum].as_u64().unwrap());
    assert_eq!(sums, [4, 5, 9, 0, 0]);
}

#[tokio::test]
async fn invalid_stock_change_is_rejected_at_once_without_effect() {
    let world = World::with_sale("s", 4).await;
    let wrong = change(&world, "no spaces", 0).await;
    let refused = (wrong.status.as_u16(), wrong.code());
    assert_eq!(refused, (422, "invalid_stock_change"));
    let detail = wrong.body["detail"].as_str().unwrap();
    for part in ["Idempotency-Key: ", "; units: must be 1 to 1000000000"] {
        assert!(detail.contains(part), "{detail}");
    }
    let body = json!({ "units": 1 });
    let unnamed = world.admin("POST", "/sales/s/stock", &body).await;
    assert_eq!(unnamed.status, 422, "{unnamed:?}");
    let headers = [("idempotency-key", "k")];
    let path = "/sales/none/stock";
    let unknown = world.admin_with("POST", path, &body, &headers).await;
    assert_eq!(unknown.code(), "unknown_sale");
    assert_eq!(terms(&world).await, [4, 0, 0, 4, 0]);
}

#[tokio::test]
async fn withdrawal_removes_free_units_and_returns_their_number() {
    let world = World::with_sale("s", 8).await;
    let held = world.claim("s", "alice").await;
    buy(&world, "bob").await;
    let accepted = change(&world, "all", -100).await;
    assert_eq!(accepted.body["units"], -6, "{accepted:?}");
    assert_eq!(terms(&world).await, [0, 1, 1, 2, 0]);
    assert_eq!(world.order(&held).await.status, 201, "she has it for sure");
    assert_eq!(terms(&world).await, [0, 0, 2, 2, 0]);
    assert_eq!(world.remaining().await, 0);

    // Sold out; now there are two more.
    assert_eq!(change(&world, "more", 2).await.body["units"], 2);
    let claim = |name| world.try_claim_at("s", name, now_ms());
    let mut granted = 0;
    for name in ["c", "d", "e", "f", "g", "h", "i", "j"] {
        granted += i64::from(claim(name).await.is_ok());
    }
    // Users whose shards have a unit get one; gateways move other users to these shards.
    assert!((1..=2).contains(&granted), "{granted}");
    assert_eq!(terms(&world).await, [2 - granted, granted, 2, 4, 0]);
}

#[tokio::test]
async fn stock_change_survives_a_crash_at_any_step_with_right_balance() {
    for (units, after) in [(6, 16), (-6, 4)] {
        let world = World::with_sale("s", 10).await;
        let open = begin(&world, "change", units).await;
        let (received, mut of_heard) = (2, 0);
        for shard in 0..received {
            let StockChanged::Done(done) = tell(&world, &open, shard).await else {
                panic!("the shard is warm");
            };
            of_heard += done;
            // The reply was lost.
            assert_eq!(tell(&world, &open, shard).await, StockChanged::Done(done));
        }
        let balance = [10 + of_heard, 0, 0, 10 + of_heard, 0];
        assert_eq!(terms(&world).await, balance);
        reconcile(&world).await;
        assert_eq!(terms(&world).await, balance, "nothing is put right");
        let status = world.admin("GET", "/sales/s", &Value::Null).await;
        assert_eq!(status.body["balanced"], true);

        let second = change(&world, "second", 1).await;
        let refused = (second.status.as_u16(), second.code());
        assert_eq!(refused, (409, "change_under_way"));

        finish_all(&world).await;
        let done = change(&world, "change", units).await;
        assert_eq!(done.body["units"], units, "{done:?}");
        assert_eq!(terms(&world).await, [after, 0, 0, after, 0]);
        assert_eq!(world.remaining().await, after);
        // A paused origin resumes with an old change, and a call was in flight.
        let changer = world.origin.sales().changer();
        changer.finish(&open).await.unwrap();
        tell(&world, &open, 3).await;
        assert_eq!(terms(&world).await, [after, 0, 0, after, 0]);
        assert_eq!(world.remaining().await, after);
    }
}

#[tokio::test]
async fn total_survives_redis_loss_before_and_after_a_stock_change() {
    for (units, after) in [(6, 16), (-6, 4)] {
        let world = World::with_sale("s", 10).await;
        buy(&world, "alice").await;
        let open = begin(&world, "change", units).await;
        tell(&world, &open, 0).await;
        for shard in 0..SHARDS {
            lose(&world, shard).await;
        }
        let changer = world.origin.sales().changer();
        assert_eq!(changer.finish(&open).await.unwrap(), None, "all are cold");
        reconcile(&world).await;
        finish_all(&world).await;
        let done = change(&world, "change", units).await.body["units"].as_i64();
        let total = 10 + done.unwrap();
        assert!(units < 0 || total == after, "{done:?}");
        assert_eq!(terms(&world).await, [total - 1, 0, 1, total, 0]);

        for shard in 0..SHARDS {
            lose(&world, shard).await;
        }
        reconcile(&world).await;
        assert_eq!(terms(&world).await, [total - 1, 0, 1, total, 0]);
    }
}

#[tokio::test]
async fn ended_or_never_warmed_sale_rejects_changes() {
    let world = World::new().await;
    let sale = crate::support::sale_json("s", 4);
    world.admin("POST", "/sales", &sale).await;
    assert_eq!(change(&world, "a", 1).await.code(), "not_warmed");
    world.admin("POST", "/sales/s/warm", &Value::Null).await;
    let open = begin(&world, "b", 1).await;
    end(&world, 1).await;
    assert_eq!(change(&world, "c", 1).await.code(), "sale_ended");

    // Running changes finish first; then the sale may be archived.
    let sales = world.origin.sales();
    let due = sales
        .store()
        .archive()
        .due_to_archive(now_ms(), 9)
        .await
        .unwrap();
    let archiver = sales.archiver();
    let step = archiver.step(&mut due[0].clone()).await.unwrap();
    assert_eq!(step, Progress::Wait);
    let done = sales.changer().finish(&open).await.unwrap();
    assert_eq!(done.unwrap().units, Some(1));
    let step = archiver.step(&mut due[0].clone()).await.unwrap();
    assert_eq!(step, Progress::More);
    assert_eq!(change(&world, "d", 1).await.code(), "sale_archived");
    assert_eq!(end(&world, now_ms() + 60_000).await.code(), "sale_archived");
}

/// Moves the end.
async fn end(world: &World, ends_at_ms: u64) -> Answer {
    let body = json!({ "ends_at_ms": ends_at_ms });
    world.admin("PATCH", "/sales/s", &body).await
}

#[tokio::test]
async fn only_the_end_of_a_running_sale_can_change() {
    let world = World::with_sale("s", 4).await;
    let later_ms = now_ms() + 3_600_000;
    assert_eq!(end(&world, later_ms).await.body["ends_at_ms"], later_ms);
    let published = world.origin.sales().ledger().published().await;
    let published = String::from_utf8(published.unwrap().unwrap()).unwrap();
    assert!(published.contains(&later_ms.to_string()), "{published}");

    // An end in the past becomes the current time, and a repetition keeps it.
    let before_ms = now_ms();
    let ended = end(&world, 1).await.body["ends_at_ms"].as_u64().unwrap();
    assert!((before_ms..=now_ms()).contains(&ended), "{ended}");
    assert_eq!(end(&world, 1).await.body["ends_at_ms"], ended);
    // The sale continues.
    assert_eq!(end(&world, later_ms).await.body["ends_at_ms"], later_ms);

    let wrong = end(&world, 253_402_300_800_000).await;
    assert_eq!((wrong.status.as_u16(), wrong.code()), (422, "invalid_sale"));
    let body = json!({ "ends_at_ms": "soon" });
    let wrong = world.admin("PATCH", "/sales/s", &body).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    let body = json!({ "ends_at_ms": later_ms, "title": "Other" });
    let other = world.admin("PATCH", "/sales/s", &body).await;
    assert_eq!((other.status.as_u16(), other.code()), (409, "sale_started"));
}
