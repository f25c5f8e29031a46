//! Administration of a sale: switches, edits, blocked users, metrics.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::clock::now_ms;
use weir_origin::sales::model::sale::NewSale;
use weir_sale::sale::{Catalogue, SaleState};

use crate::support::{World, sale_json};

async fn published(world: &World) -> Catalogue {
    let key = weir_sale::redis::keys::catalogue(&world.prefix);
    let reply = world.redis(redis::cmd("GET").arg(key)).await;
    let redis::Value::BulkString(bytes) = reply else {
        panic!("{reply:?}")
    };
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn gateways_receive_a_switch_at_once() {
    let world = World::with_sale("s", 4).await;
    let switch = json!({ "state": "drain", "degrade": { "skip_risk": true } });
    let set = world.admin("PUT", "/sales/s/switch", &switch).await;
    assert_eq!(
        (set.status.as_u16(), &set.body["state"]),
        (200, &json!("drain"))
    );
    let sale = published(&world).await.sales.remove(0);
    assert_eq!(
        (sale.state, sale.degrade.skip_risk),
        (SaleState::Drain, true)
    );

    let closed = world.admin("POST", "/sales/s/close", &Value::Null).await;
    assert_eq!(closed.body["degrade"]["skip_risk"], true, "{closed:?}");
    assert_eq!(published(&world).await.sales[0].state, SaleState::Closed);

    let all = world
        .admin("PUT", "/switch", &json!({ "state": "shadow" }))
        .await;
    assert_eq!(all.status, 200);
    assert_eq!(published(&world).await.switch, SaleState::Shadow);

    for (path, body, status) in [
        ("/sales/none/switch", json!({ "state": "open" }), 404),
        ("/sales/s/switch", json!({ "state": "ajar" }), 400),
        ("/switch", json!({}), 400),
    ] {
        assert_eq!(
            world.admin("PUT", path, &body).await.status,
            status,
            "{path}"
        );
    }
}

#[tokio::test]
async fn sale_can_be_changed_only_before_its_start() {
    let world = World::new().await;
    let mut sale = sale_json("s", 4);
    sale["starts_at_ms"] = json!(now_ms() + 300_000);
    world.admin("POST", "/sales", &sale).await;
    let changed = world
        .admin("PATCH", "/sales/s", &json!({ "total": 9, "token": true }))
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(
        (&changed.body["total"], &changed.body["token"]),
        (&json!(9), &json!(true))
    );
    for (changes, status, code) in [
        (json!({ "id": "t" }), 400, "invalid_body"),
        (json!({ "colour": 1 }), 400, "invalid_body"),
        (json!({ "shards": 0 }), 422, "invalid_sale"),
    ] {
        let answer = world.admin("PATCH", "/sales/s", &changes).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (status, code));
    }
    world.sale("running", 4).await;
    let late = world
        .admin("PATCH", "/sales/running", &json!({ "total": 9 }))
        .await;
    assert_eq!((late.status.as_u16(), late.code()), (409, "sale_started"));
}

#[tokio::test]
async fn patch_of_one_member_changes_no_other() {
    let world = World::new().await;
    let start_ms = now_ms() + 3_600_000;
    // Every field has a value other than its default.
    let sale = json!({
        "id": "s", "title": "S", "total": 8, "shards": 4, "user_cap": 2, "starts_at_ms": start_ms,
        "ends_at_ms": start_ms + 9_000, "token": true, "challenge": { "proof_of_work": { "bits": 18 } },
        "sku": "A-1", "price": { "unit_amount": 250, "currency": "EUR" },
        "group": { "id": "g", "user_cap": 3 },
        "reservation": { "from_ms": start_ms - 9_000, "until_ms": start_ms - 5_000 },
        "payment": { "hold": { "pay_within_ms": 60_000 } }, "listed": true, "draw": { "winners": 5 },
        "payload_schema": { "type": "object" }, "warm_before_ms": 7,
    });
    let others = json!({
        "title": "T", "total": 9, "shards": 3, "user_cap": 1, "starts_at_ms": start_ms + 1,
        "ends_at_ms": start_ms + 8_000, "token": false, "challenge": null, "sku": null, "price": null,
        "group": null, "reservation": { "from_ms": start_ms - 8_000, "until_ms": start_ms - 5_000 },
        "payment": "at_payment", "listed": false, "draw": { "winners": 6 },
        "payload_schema": { "type": "object", "maxProperties": 1 }, "warm_before_ms": null,
    });
    let new: NewSale = serde_json::from_value(sale.clone()).unwrap();
    assert_eq!(json!(new), sale, "a member is missing here");
    assert_eq!(world.admin("POST", "/sales", &sale).await.status, 201);
    let members = sale
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| *name != "id");
    for name in members {
        let mut sale = sale.clone();
        if name == "token" {
            // A challenge requires a token.
            sale["challenge"] = Value::Null;
            world.admin("PATCH", "/sales/s", &sale).await;
        }
        let before = whole(&world).await;
        assert_eq!(before[name], sale[name], "{name}");
        let change = json!({ name: others[name] });
        let changed = world.admin("PATCH", "/sales/s", &change).await;
        assert_eq!(changed.status, 200, "{name}: {changed:?}");
        let mut expected = before;
        expected[name] = others[name].clone();
        assert_eq!(whole(&world).await, expected, "{name}");
        let back = world.admin("PATCH", "/sales/s", &sale).await;
        assert_eq!(back.status, 200, "{name}: {back:?}");
    }
}

/// The operator's settings of the sale, under the names of the request.
async fn whole(world: &World) -> Value {
    let mut sale = world.admin("GET", "/sales/s", &Value::Null).await.body;
    for derived in ["remaining", "balanced", "orders", "units_ordered"] {
        sale.as_object_mut().unwrap().remove(derived);
    }
    sale["shards"] = sale["shard_count"].take();
    let schema = world.admin("GET", "/sales/s/payload-schema", &Value::Null);
    sale["payload_schema"] = schema.await.body["payload_schema"].take();
    let draw = Request::get("/sales/s/draw").body(Body::empty()).unwrap();
    let draw = world.public(draw).await.body;
    sale["draw"] = json!({ "winners": draw["winners"] });
    sale
}

#[tokio::test]
async fn sale_is_warmed_automatically_before_its_start() {
    let world = World::new().await;
    let mut sale = sale_json("s", 4);
    sale["starts_at_ms"] = json!(now_ms() + 300_000);
    sale["warm_before_ms"] = json!(400_000);
    world.admin("POST", "/sales", &sale).await;
    world.origin.sales().jobs().round().await.unwrap();
    assert_eq!(published(&world).await.sales.len(), 1);
}

#[tokio::test]
async fn metrics_count_orders_and_requests_and_are_documented() {
    let world = World::with_sale("s", 4).await;
    world.order(&world.claim("s", "alice").await).await;
    world.origin.sales().reconciler().round().await.unwrap();
    let metrics = world.admin_as("GET", "/metrics", "", None).await;
    let text = metrics.body.as_str().unwrap();
    for line in [
        "weir_origin_orders_total{outcome=\"ordered\"} 1",
        "weir_origin_requests_total{route=\"/orders\",status=\"201\"} 1",
        "weir_origin_open_claims{sale=\"s\"} 0",
        "weir_origin_drift_units{sale=\"s\"} 0",
        "weir_origin_sql_seconds_count 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let documented = include_str!("../../../docs/metrics.md");
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = name.split(' ').next().unwrap();
        assert!(
            documented.contains(name),
            "{name} is not in docs/metrics.md"
        );
    }
}

#[tokio::test]
async fn switch_changes_only_its_named_fields() {
    let world = World::with_sale("s", 1).await;
    let switch = async |body: Value| {
        let answer = world.admin("PUT", "/sales/s/switch", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        (answer.body["state"].clone(), answer.body["degrade"].clone())
    };
    let degrade =
        |risk, page| json!({ "skip_risk": risk, "skip_reservation": false, "static_page": page });
    let first = switch(json!({ "degrade": { "static_page": true } })).await;
    assert_eq!(first, (json!("open"), degrade(false, true)));
    let drained = switch(json!({ "state": "drain" })).await;
    assert_eq!(
        drained,
        (json!("drain"), degrade(false, true)),
        "the page stays"
    );
    let skipped = switch(json!({ "degrade": { "skip_risk": true, "static_page": false } })).await;
    assert_eq!(skipped, (json!("drain"), degrade(true, false)));
    let odd = world
        .admin(
            "PUT",
            "/sales/s/switch",
            &json!({ "degrade": { "page": true } }),
        )
        .await;
    assert_eq!((odd.status.as_u16(), odd.code()), (400, "invalid_body"));
}

#[tokio::test]
async fn global_switch_can_be_read_and_is_shown_on_each_sale() {
    let world = World::with_sale("s", 1).await;
    let switch = async || world.admin("GET", "/switch", &Value::Null).await.body;
    assert_eq!(switch().await, json!({ "state": "open" }));
    world
        .admin("PUT", "/switch", &json!({ "state": "closed" }))
        .await;
    assert_eq!(switch().await, json!({ "state": "closed" }));
    let body = world.admin("GET", "/sales/s", &Value::Null).await.body;
    assert_eq!(
        (&body["state"], &body["effective_state"]),
        (&json!("open"), &json!("closed"))
    );
    let list = world.admin("GET", "/sales", &Value::Null).await.body;
    assert_eq!(list["sales"][0]["effective_state"], "closed");
}
