//! Items have a name and a price; orders store them, and amounts reported by the provider are compared.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use weir_origin::clock::now_ms;

use crate::support::{Answer, PAYMENT_SECRET, World, claim_headers, sale_json};

const SKU: &str = "shoe-42-red";

/// A sale `s` with units at 49.90 €.
async fn world() -> World {
    let world = World::new().await;
    let price = json!({ "unit_amount": 4990, "currency": "EUR" });
    let members = json!({ "sku": SKU, "price": price, "user_cap": 3, "listed": true });
    world.sale_with("s", 8, members).await;
    world
}

/// The price of two units.
fn cost_of_two() -> Value {
    json!({ "unit_amount": 4990, "amount": 9980, "currency": "EUR" })
}

/// An order of two units.
async fn buy_two(world: &World, user: &str) -> Answer {
    let ticket = world.claim_units("s", user, 2).await;
    world.post_order_with(&claim_headers(&ticket), "").await
}

/// The provider's report of a payment: these fields, and the state `paid`.
async fn paid(world: &World, event: &str, payment: &str, members: &Value) -> Answer {
    let mut body = json!({ "event": event, "payment": payment, "state": "paid" });
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let (at_s, body) = (now_ms() / 1_000, body.to_string());
    world
        .callback_as("p1", PAYMENT_SECRET, at_s, &body, &body)
        .await
}

#[tokio::test]
async fn order_keeps_the_terms_of_its_creation() {
    let world = world().await;
    let created = buy_two(&world, "alice").await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.body["price"], cost_of_two());
    assert_eq!(created.body["sku"], SKU);
    let id = created.body["order"].as_str().unwrap();

    // Regardless of later changes of the sale's price.
    let dearer = "UPDATE sales SET unit_amount = 1, sku = 'other' WHERE id = 's'";
    world.sql().await.execute(dearer, &[]).await;
    let path = format!("/orders/{id}");
    let response = world.as_user("alice", "GET", &path).await;
    assert_eq!(response.body["price"], cost_of_two());
    let response = world.admin("GET", &path, &Value::Null).await;
    assert_eq!(
        (&response.body["price"], &response.body["sku"]),
        (&cost_of_two(), &json!(SKU))
    );
    let table = world.admin_bytes("/orders.csv?sale=s").await;
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains(",shoe-42-red,4990,9980,EUR\r\n"), "{table}");
    let list = Request::get("/public-sales").body(Body::empty());
    let listed = world.public(list.unwrap()).await;
    let body = &listed.body["sales"][0]["price"];
    assert_eq!(body["currency"], "EUR", "{listed:?}");
}

#[tokio::test]
async fn payment_of_a_wrong_amount_is_refunded() {
    let world = world().await;
    let created = buy_two(&world, "alice").await;
    let path = format!("/orders/{}", created.body["order"].as_str().unwrap());
    for (event, money) in [
        ("e-1", json!({ "amount": 9979, "currency": "EUR" })),
        ("e-2", json!({ "amount": 9980, "currency": "USD" })),
    ] {
        let payment = world.start_payment("alice", &path).await;
        // The same event again changes nothing.
        for _ in 0..2 {
            let response = paid(&world, event, &payment, &money).await;
            assert_eq!(response.body["state"], "refund_due", "{response:?}");
            assert_eq!(response.body["reason"], "wrong_amount");
        }
        let answer = world.as_user("alice", "GET", &path).await;
        assert_eq!(answer.body["status"], "unpaid", "{answer:?}");
    }
    let payment = world.start_payment("alice", &path).await;
    let money = json!({ "amount": 9980, "currency": "EUR" });
    let response = paid(&world, "e-3", &payment, &money).await;
    assert_eq!(response.body["state"], "paid", "{response:?}");
}

#[tokio::test]
async fn payment_without_comparable_amount_is_accepted() {
    let world = world().await;
    let created = buy_two(&world, "alice").await;
    let path = format!("/orders/{}", created.body["order"].as_str().unwrap());
    let payment = world.start_payment("alice", &path).await;
    for half in [json!({ "amount": 9980 }), json!({ "currency": "EUR" })] {
        let refused = paid(&world, "e-1", &payment, &half).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    for bad in [
        json!({ "amount": -1, "currency": "EUR" }),
        json!({ "amount": 1, "currency": "eur" }),
    ] {
        let refused = paid(&world, "e-1", &payment, &bad).await;
        assert_eq!(refused.code(), "invalid_body", "{refused:?}");
    }
    let response = paid(&world, "e-1", &payment, &json!({})).await;
    assert_eq!(response.body["state"], "paid", "{response:?}");

    // A sale without a price.
    world.sale_with("free", 4, json!({})).await;
    let ticket = world.claim("free", "bob").await;
    let created = world.order(&ticket).await;
    assert_eq!(created.body["price"], Value::Null);
    let path = format!("/orders/{}", ticket.claim_id());
    let payment = world.start_payment("bob", &path).await;
    let money = json!({ "amount": 7, "currency": "EUR" });
    let response = paid(&world, "e-2", &payment, &money).await;
    assert_eq!(response.body["state"], "paid", "{response:?}");
}

#[tokio::test]
async fn invalid_price_is_refused() {
    let world = World::new().await;
    let now = now_ms();
    for (members, field) in [
        (
            json!({ "price": { "unit_amount": 1_000_000_000_001_u64, "currency": "EUR" } }),
            "/price",
        ),
        (
            json!({ "price": { "unit_amount": 1, "currency": "euro" } }),
            "/price",
        ),
        (
            json!({ "price": { "unit_amount": 1.5, "currency": "EUR" } }),
            "/price",
        ),
        (json!({ "price": { "unit_amount": 1 } }), "/price"),
        (json!({ "sku": "" }), "/sku"),
        (json!({ "sku": "a\nb" }), "/sku"),
    ] {
        let mut sale = sale_json("s", 4);
        sale["starts_at_ms"] = json!(now + 60_000);
        sale["ends_at_ms"] = json!(now + 120_000);
        for (name, value) in members.as_object().unwrap() {
            sale[name] = value.clone();
        }
        let refused = world.admin("POST", "/sales", &sale).await;
        assert!(refused.status.is_client_error(), "{members}: {refused:?}");
        assert!(refused.body.to_string().contains(field), "{refused:?}");
    }
}

#[tokio::test]
async fn revenue_is_summed_by_status_and_currency() {
    let world = World::new().await;
    let price = json!({ "unit_amount": 4990, "currency": "EUR" });
    // Enough for two units of each buyer in any shard.
    let members = json!({ "price": price, "user_cap": 3 });
    world.sale_with("s", 80, members).await;
    let money = async || {
        world
            .admin("GET", "/sales/s/money", &Value::Null)
            .await
            .body
    };
    let none = json!({ "sums": [], "claims_ordered": 0, "claims_released": 0 });
    assert_eq!(money().await, none);
    for user in ["alice", "bob", "carol"] {
        let created = buy_two(&world, user).await;
        let order = created.body["order"].as_str().unwrap().to_owned();
        if user != "carol" {
            world.pay(user, &format!("/orders/{order}")).await;
        }
    }
    let sum = |status: &str, orders: u64| {
        let amount = orders * 9980;
        json!({ "status": status, "currency": "EUR", "orders": orders, "units": 2 * orders, "amount": amount })
    };
    let expected = json!({ "sums": [sum("paid", 2), sum("unpaid", 1)], "claims_ordered": 3, "claims_released": 0 });
    assert_eq!(money().await, expected);
    let unknown = world.admin("GET", "/sales/none/money", &Value::Null).await;
    assert_eq!(unknown.status, 404);
}
