//! Payment, cancellation and expiry of orders: in SQL, in Redis, and in answers.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::store::HoldRules;
use weir_sale::ledger::ClaimReply;
use weir_sale::redis::keys;
use weir_sale::shard::{bucket, home_shard};

use crate::support::{
    Answer, PAYMENT_SECRET, PREVIOUS_PAYMENT_SECRET, SECRET, SHARDS, World, id, user,
};

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

/// Claims and orders a unit; returns the order's path.
async fn buy(world: &World, name: &str) -> String {
    let ticket = world.claim("s", name).await;
    let response = world.order(&ticket).await;
    assert_eq!(response.status, 201, "{response:?}");
    format!("/orders/{}", ticket.claim_id())
}

async fn post(world: &World, name: &str, path: &str, subject: &str) -> Answer {
    world
        .as_user(name, "POST", &format!("{path}/{subject}"))
        .await
}

#[tokio::test]
async fn order_is_paid_once_and_stays_paid() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    let payment = world.start_payment("alice", &path).await;
    let answer = world.as_user("alice", "GET", &path).await;
    assert_eq!(
        answer.body["status"], "unpaid",
        "nobody pays for themselves"
    );
    for event in ["e-1", "e-1", "e-2"] {
        let response = world.callback(event, &payment, "paid").await;
        assert_eq!(
            (response.status.as_u16(), &response.body["state"]),
            (200, &json!("paid"))
        );
    }
    let cancelled = post(&world, "alice", &path, "cancel").await;
    assert_eq!(
        (cancelled.status.as_u16(), cancelled.code()),
        (409, "order_paid")
    );
    let answer = world.as_user("alice", "GET", &path).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (200, &json!("paid"))
    );
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
}

#[tokio::test]
async fn cancelled_order_releases_its_unit_once_and_user_may_rebuy() {
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
async fn order_of_another_user_is_not_found() {
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
async fn unpaid_order_expires_and_the_sale_reopens() {
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
    let response = world.as_user("alice", "GET", &path).await;
    assert_eq!(response.body["status"], "expired");
    world.claim("s", "alice").await;
}

/// The sum of the shards' epochs, which rises when units return to any shard.
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
async fn unit_deducted_at_payment_stays_in_stock_until_then() {
    let world = world(json!("at_payment")).await;
    let path = buy(&world, "alice").await;
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    let paid = world.pay("alice", &path).await;
    assert_eq!(paid.body["state"], "paid", "{paid:?}");
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
    assert_eq!(world.remaining().await, 3);
}

#[tokio::test]
async fn order_created_before_payments_is_not_paid_again() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    let pay = "UPDATE orders SET status = 'paid'";
    world.sql().await.execute(pay, &[]).await;
    let refused = post(&world, "alice", &path, "pay").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "order_paid")
    );
}

#[tokio::test]
async fn buyer_request_starts_but_never_completes_a_payment() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    let started = post(&world, "alice", &path, "pay").await;
    assert_eq!(started.status, 201, "{started:?}");
    let payment = started.body["payment"].as_str().unwrap();
    let order = path.strip_prefix("/orders/").unwrap();
    assert_eq!(
        started.body,
        json!({
            "payment": format!("{order}.p1"), "order": order, "state": "started", "reason": null,
            "pay_url": format!("https://pay.example/{order}.p1"),
        })
    );
    let again = post(&world, "alice", &path, "pay").await;
    assert_eq!((again.status.as_u16(), &again.body), (200, &started.body));
    let failed = world.callback("e-1", payment, "failed").await;
    assert_eq!(failed.body["state"], "failed", "{failed:?}");
    let next = post(&world, "alice", &path, "pay").await;
    assert_eq!(
        (next.status.as_u16(), &next.body["payment"]),
        (201, &json!(format!("{order}.p2")))
    );
    // The provider has charged the money after all, and then reports it again.
    let paid = world.callback("e-2", payment, "paid").await;
    assert_eq!(paid.body["state"], "paid", "{paid:?}");
    let twice = world.callback("e-3", &format!("{order}.p2"), "paid").await;
    assert_eq!(
        (&twice.body["state"], &twice.body["reason"]),
        (&json!("refund_due"), &json!("order_paid"))
    );
    let response = post(&world, "alice", &path, "pay").await;
    assert_eq!(
        (response.status.as_u16(), &response.body["state"]),
        (200, &json!("paid"))
    );
    assert_eq!(terms(&world).await, json!([3, 0, 1, 0]));
}

#[tokio::test]
async fn only_recent_callbacks_signed_by_the_provider_count() {
    let world = world(json!("at_order")).await;
    let path = buy(&world, "alice").await;
    let payment = world.start_payment("alice", &path).await;
    let body =
        |event: &str| json!({ "event": event, "payment": payment, "state": "paid" }).to_string();
    let now_s = now_ms() / 1_000;
    let (good, other) = (body("e-1"), body("e-2"));
    for (case, id, secret, at_s, signed, code) in [
        (
            "another secret",
            "p1",
            SECRET,
            now_s,
            &good,
            "signature_invalid",
        ),
        (
            "another key",
            "p2",
            PAYMENT_SECRET,
            now_s,
            &good,
            "signature_invalid",
        ),
        (
            "another body",
            "p1",
            PAYMENT_SECRET,
            now_s,
            &other,
            "signature_invalid",
        ),
        (
            "long ago",
            "p1",
            PAYMENT_SECRET,
            now_s - 302,
            &good,
            "timestamp_out_of_window",
        ),
        (
            "ahead",
            "p1",
            PAYMENT_SECRET,
            now_s + 310,
            &good,
            "timestamp_out_of_window",
        ),
    ] {
        let refused = world.callback_as(id, secret, at_s, signed, &good).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (403, code),
            "{case}"
        );
    }
    let unsigned = Request::post("/payments/callback")
        .body(Body::from(good.clone()))
        .unwrap();
    let unsigned = world.public(unsigned).await;
    assert_eq!(
        (unsigned.status.as_u16(), unsigned.code()),
        (401, "signature_missing")
    );
    for body in [
        "",
        "{}",
        r#"{"event":"","payment":"x","state":"paid"}"#,
        r#"{"event":"e","payment":"x","state":"odd"}"#,
    ] {
        let refused = world
            .callback_as("p1", PAYMENT_SECRET, now_s, body, body)
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, "invalid_body"),
            "{body}"
        );
    }
    let unknown = world.callback("e-9", "nothing.p1", "paid").await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code()),
        (404, "unknown_payment")
    );
    assert_eq!(world.number("SELECT COUNT(*) FROM payment_events").await, 0);
    let response = world.as_user("alice", "GET", &path).await;
    assert_eq!(response.body["status"], "unpaid");

    // The previous key is valid while the provider switches.
    let paid = world
        .callback_as("p0", PREVIOUS_PAYMENT_SECRET, now_s, &good, &good)
        .await;
    assert_eq!(paid.body["state"], "paid", "{paid:?}");
    let response = world.as_user("alice", "GET", &path).await;
    assert_eq!(response.body["status"], "paid");
    assert_eq!(response.body["payment"]["state"], "paid");
    let reused = json!({ "event": "e-1", "payment": payment, "state": "failed" }).to_string();
    let reused = world
        .callback_as("p1", PAYMENT_SECRET, now_s, &reused, &reused)
        .await;
    assert_eq!(
        (reused.status.as_u16(), reused.code()),
        (422, "event_reused")
    );
}

#[tokio::test]
async fn late_payment_is_recorded_and_refunded() {
    let world = world(json!({ "hold": { "pay_within_ms": 300 } })).await;
    let mut due = Vec::new();
    for (name, is_ended) in [("alice", false), ("bob", true)] {
        let path = buy(&world, name).await;
        let payment = world.start_payment(name, &path).await;
        tokio::time::sleep(Duration::from_millis(310)).await;
        if is_ended {
            world.origin.sales().jobs().round().await.unwrap();
        }
        for event in ["late-1", "late-1", "late-2"] {
            let response = world
                .callback(&format!("{name}-{event}"), &payment, "paid")
                .await;
            let body = (&response.body["state"], &response.body["reason"]);
            assert_eq!(
                body,
                (&json!("refund_due"), &json!("order_expired")),
                "{response:?}"
            );
        }
        world.origin.sales().jobs().round().await.unwrap();
        let answer = world.as_user(name, "GET", &path).await;
        assert_eq!(answer.body["status"], "expired");
        assert_eq!(answer.body["payment"]["state"], "refund_due");
        due.push(payment);
    }
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    let list = world
        .admin("GET", "/payments?state=refund_due", &Value::Null)
        .await;
    let listed: Vec<&str> = list.body["payments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|payment| payment["payment"].as_str().unwrap())
        .collect();
    assert_eq!(listed, due);
    let path = format!("/payments/{}/refunded", due[0]);
    for _ in 0..2 {
        let reply = world.admin("POST", &path, &Value::Null).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.body["state"]),
            (200, &json!("refunded"))
        );
    }
    let odd = world
        .admin("GET", "/payments?state=odd", &Value::Null)
        .await;
    assert_eq!((odd.status.as_u16(), odd.code()), (400, "invalid_query"));
    let none = world
        .admin("POST", "/payments/none/refunded", &Value::Null)
        .await;
    assert_eq!(
        (none.status.as_u16(), none.code()),
        (404, "unknown_payment")
    );
}

#[tokio::test]
async fn payment_after_sold_out_is_recorded_and_order_stays() {
    let world = World::new().await;
    world
        .sale_with("s", 1, json!({ "payment": "at_payment" }))
        .await;
    // The first shard has the only unit.
    let at_home = |name: &String| home_shard(&user(name), SHARDS) == 0;
    let mut names = (0..).map(|n| format!("user-{n}")).filter(at_home);
    let (alice, bob) = (names.next().unwrap(), names.next().unwrap());
    let slow = buy(&world, &alice).await;
    let quick = buy(&world, &bob).await;
    let payment = world.start_payment(&alice, &slow).await;
    assert_eq!(world.pay(&bob, &quick).await.body["state"], "paid");
    let late = world.callback("late", &payment, "paid").await;
    let body = (&late.body["state"], &late.body["reason"]);
    assert_eq!(body, (&json!("refund_due"), &json!("sold_out")), "{late:?}");
    let response = world.as_user(&alice, "GET", &slow).await;
    assert_eq!(response.body["status"], "unpaid");
    assert_eq!(world.remaining().await, 0);
    let refused = post(&world, &alice, &slow, "pay").await;
    assert_eq!((refused.status.as_u16(), refused.code()), (409, "sold_out"));
}

/// Payment and expiry of one order race: exactly one wins, and the money is never lost.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_payment_events_pays() {
    let world = std::sync::Arc::new(world(json!("at_order")).await);
    let path = buy(&world, "alice").await;
    let payment = world.start_payment("alice", &path).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (world, payment) = (world.clone(), payment.clone());
        // Half of them are deliveries of one event.
        let event = if n % 2 == 0 {
            "same".to_owned()
        } else {
            format!("e-{n}")
        };
        tasks.spawn(async move { world.callback(&event, &payment, "paid").await });
    }
    for reply in tasks.join_all().await {
        assert_eq!(reply.body["state"], "paid", "{reply:?}");
    }
    assert_eq!(
        world
            .number("SELECT COUNT(*) FROM change_log WHERE reason = 'pay'")
            .await,
        1
    );
}

#[tokio::test]
async fn payment_changes_missed_by_redis_are_applied_later() {
    let world = world(json!("at_order")).await;
    let ticket = world.claim("s", "alice").await;
    world.order(&ticket).await;
    let id = ticket.claim_id().to_string();
    let store = world.origin.sales().store();
    // SQL decides; the origin dies before Redis is updated.
    store
        .payments()
        .cancel(&id, &ticket.user, HoldRules::default(), now_ms())
        .await
        .unwrap();
    assert_eq!(terms(&world).await, json!([3, 0, 0, -1]));
    world.origin.sales().jobs().round().await.unwrap();
    assert_eq!(terms(&world).await, json!([4, 0, 0, 0]));
    assert!(store.unfollowed(9).await.unwrap().is_empty());
}

/// A sale of 11 units with short holds, and an origin with these rules.
async fn hoard(rules: HoldRules) -> World {
    let world = World::with_holds(rules).await;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": 1 } }, "shards": 1 });
    world.sale_with("s", 11, hold).await;
    world
}

/// Repeatedly orders like a user behind a gateway and lets each hold expire. Returns the number of holds.
async fn holds_of_eleven_tries(world: &World, name: &str) -> usize {
    let mut holds = 0;
    for _ in 0..11 {
        if let Ok(ticket) = world.claim_as_gateways_do("s", name).await {
            let response = world.order(&ticket).await;
            holds += usize::from(response.status == 201);
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        world.origin.sales().jobs().round().await.unwrap();
    }
    holds
}

#[tokio::test]
async fn user_with_expired_holds_cannot_hoard_the_stock() {
    let rules = HoldRules::default();
    let world = hoard(rules).await;
    assert_eq!(
        holds_of_eleven_tries(&world, "mallory").await,
        1,
        "a cooldown"
    );
    let rules = HoldRules {
        cooldown_ms: 0,
        ..rules
    };
    let world = hoard(rules).await;
    assert_eq!(holds_of_eleven_tries(&world, "mallory").await, 3, "a cap");
    let off = HoldRules {
        expired_max: 0,
        ..rules
    };
    let world = hoard(off).await;
    assert_eq!(
        holds_of_eleven_tries(&world, "mallory").await,
        11,
        "both are off"
    );
    assert_eq!(
        holds_of_eleven_tries(&world, "bob").await,
        11,
        "nobody else is concerned"
    );
}

/// A user who cancels a hold just before it expires blocks the unit just as long.
#[tokio::test]
async fn user_with_late_cancellations_cannot_hoard_the_stock() {
    let world = hoard(HoldRules::default()).await;
    let mut holds = 0;
    for _ in 0..11 {
        let Ok(ticket) = world.claim_as_gateways_do("s", "mallory").await else {
            continue;
        };
        assert_eq!(world.order(&ticket).await.status, 201);
        holds += 1;
        // No job has run yet: the order is unpaid, and its deadline has passed.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let path = format!("/orders/{}", ticket.claim_id());
        let cancelled = post(&world, "mallory", &path, "cancel").await;
        assert_eq!(cancelled.body["status"], "cancelled", "{cancelled:?}");
    }
    assert_eq!(holds, 1, "a cooldown");
    assert_eq!(terms(&world).await, json!([11, 0, 0, 0]));
}

#[tokio::test]
async fn cooldown_end_keeps_a_block_set_meanwhile() {
    let rules = HoldRules {
        cooldown_ms: 200,
        expired_max: 0,
    };
    let world = hoard(rules).await;
    let refused = async |name: &str| world.claim_as_gateways_do("s", name).await.unwrap_err();
    for name in ["alice", "bob"] {
        let ticket = world.claim_as_gateways_do("s", name).await.unwrap();
        assert_eq!(world.order(&ticket).await.status, 201);
        tokio::time::sleep(Duration::from_millis(3)).await;
        world.origin.sales().jobs().round().await.unwrap();
        assert_eq!(refused(name).await, ClaimReply::Blocked);
    }
    let blocked = world
        .admin("PUT", "/sales/s/blocked/bob", &Value::Null)
        .await;
    assert_eq!(blocked.status, 204);
    tokio::time::sleep(Duration::from_millis(210)).await;
    world.origin.sales().jobs().round().await.unwrap();
    assert_eq!(refused("bob").await, ClaimReply::Blocked);
    world.claim_as_gateways_do("s", "alice").await.unwrap();
}

/// Redis has lost the cooldown: SQL refuses the user, and the unit is available to others.
#[tokio::test]
async fn sql_enforces_a_cooldown_lost_by_redis() {
    for (rules, status, code) in [
        (
            HoldRules {
                cooldown_ms: 5_000,
                expired_max: 0,
            },
            429,
            "cooling_down",
        ),
        (
            HoldRules {
                cooldown_ms: 0,
                expired_max: 1,
            },
            403,
            "unpaid_holds",
        ),
    ] {
        let world = hoard(rules).await;
        holds_of_eleven_tries(&world, "mallory").await;
        let sets = keys::ShardKeys::new(&world.prefix, &id("s"), 0);
        let forget = sets.blocked(bucket(&user("mallory")));
        world.redis(redis::cmd("DEL").arg(forget)).await;
        let ticket = world.claim_as_gateways_do("s", "mallory").await.unwrap();
        let refused = world.order(&ticket).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (status, code),
            "{refused:?}"
        );
        assert_eq!(refused.headers.contains_key("retry-after"), status == 429);
        assert_eq!(
            terms(&world).await,
            json!([11, 0, 0, 0]),
            "the unit is back"
        );
    }
}
