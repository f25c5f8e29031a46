//! Order payloads as required by a sale: validated, stored, visible only to authorized callers, and never logged.

use serde_json::{Value, json};
use weir_base::headers::IDEMPOTENCY_KEY;
use weir_origin::clock::now_ms;
use weir_origin::sales::store::OrderRequest;
use weir_sale::claim::Ticket;

use crate::support::{Answer, World, claim_headers, sale_json};

fn schema() -> Value {
    json!({
        "type": "object", "required": ["mail", "variant"], "additionalProperties": false,
        "properties": {
            "mail": { "type": "string", "pattern": "^[^@]+@[^@]+$", "maxLength": 200 },
            "variant": { "enum": ["S", "M", "L"] },
        },
    })
}

fn payload() -> Value {
    json!({ "mail": "alice@secret.example", "variant": "M" })
}

async fn world(world: World) -> World {
    let members = json!({ "payload_schema": schema(), "user_cap": 2 });
    world.sale_with("s", 8, members).await;
    world
}

async fn order(world: &World, ticket: &Ticket, body: &str) -> Answer {
    world.post_order_with(&claim_headers(ticket), body).await
}

#[tokio::test]
async fn order_has_a_valid_payload_or_releases_its_unit() {
    let world = world(World::new().await).await;
    let long = json!({ "mail": format!("{}@b", "a".repeat(9_000)), "variant": "M" }).to_string();
    let wrong = r#"{"mail":"Geheim","variant":"XXL"}"#;
    for (body, status, code) in [
        ("", 422, "invalid_payload"),
        ("no JSON", 422, "invalid_payload"),
        ("[]", 422, "invalid_payload"),
        (wrong, 422, "invalid_payload"),
        (long.as_str(), 400, "invalid_body"),
    ] {
        let ticket = world.claim("s", "alice").await;
        let refused = order(&world, &ticket, body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (status, code),
            "{body}"
        );
        let document = refused.body.to_string();
        assert!(
            !document.contains("Geheim") && !document.contains("XXL"),
            "{document}"
        );
        assert_eq!(world.audit(&ticket).await.held, 0, "another may have it");
    }
    let ticket = world.claim("s", "alice").await;
    let refused = order(&world, &ticket, wrong).await;
    let faults = refused.body["errors"].as_array().unwrap();
    let places: Vec<&str> = faults
        .iter()
        .map(|f| f["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["/mail", "/variant"]);

    let ticket = world.claim("s", "alice").await;
    let answer = order(&world, &ticket, &payload().to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    // The same claim with another payload: the first payload stays.
    let again = order(
        &world,
        &ticket,
        &json!({"mail": "x@y", "variant": "L"}).to_string(),
    )
    .await;
    assert_eq!(again.status, 200);
    let path = format!("/orders/{}", ticket.claim_id());
    let response = world.as_user("alice", "GET", &path).await;
    assert_eq!(response.body["payload"], payload());
    assert_eq!(world.as_user("bob", "GET", &path).await.status, 404);
}

#[tokio::test]
async fn operators_see_payloads_everywhere_even_when_archived() {
    let world = world(World::new().await).await;
    world.sale_with("plain", 4, json!({})).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(
        order(&world, &ticket, &payload().to_string()).await.status,
        201
    );
    // A sale without a schema accepts any payload and stores none of it.
    let plain = world.claim("plain", "alice").await;
    assert_eq!(
        order(&world, &plain, &payload().to_string()).await.status,
        201
    );
    let of = async |path: String| world.admin("GET", &path, &Value::Null).await.body;
    assert_eq!(
        of(format!("/orders/{}", ticket.claim_id())).await["payload"],
        payload()
    );
    assert_eq!(
        of(format!("/orders/{}", plain.claim_id())).await["payload"],
        Value::Null
    );
    let list = of("/orders?user=alice".to_owned()).await;
    let list = list["orders"].as_array().unwrap();
    let said_of = |sale: &str| {
        let mut of_sale = list.iter().filter(|order| order["sale"] == sale);
        of_sale.next().unwrap()["payload"].clone()
    };
    assert_eq!((said_of("s"), said_of("plain")), (payload(), Value::Null));
    let table = world.admin_bytes("/orders.csv?sale=s").await;
    let table = String::from_utf8(table).unwrap();
    let mut columns = table.lines().next().unwrap().split(',');
    assert!(columns.any(|column| column == "payload"), "{table}");
    let cell = r#""{""mail"":""alice@secret.example"",""variant"":""M""}""#;
    assert!(table.contains(cell), "{table}");
}

#[tokio::test]
async fn each_delivered_change_includes_the_payload() {
    let world = world(World::with_outbox().await).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(
        order(&world, &ticket, &payload().to_string()).await.status,
        201
    );
    let path = format!("/orders/{}", ticket.claim_id());
    assert!(world.pay("alice", &path).await.status.is_success());
    let store = world.origin.sales().store();
    let changes = store
        .outbox()
        .changes(ticket.claim_id().as_str(), 1, 9)
        .await
        .unwrap();
    assert_eq!(changes.len(), 2);
    for change in changes {
        let body: Value = serde_json::from_str(&change.body).unwrap();
        assert_eq!(body["order"]["payload"], payload(), "{}", change.kind);
    }
}

#[tokio::test]
async fn idempotency_key_is_bound_to_its_payload() {
    let world = world(World::new().await).await;
    let with_key = |ticket: &Ticket| {
        let mut headers = claim_headers(ticket).to_vec();
        headers.push((IDEMPOTENCY_KEY, b"k-1".to_vec()));
        headers
    };
    let body = payload().to_string();
    let first = world.claim("s", "alice").await;
    let created = world.post_order_with(&with_key(&first), &body).await;
    assert_eq!(created.status, 201, "{created:?}");
    let second = world.claim_with_cap("s", "alice", 2).await.unwrap();
    let other = body.replace("\"M\"", "\"L\"");
    let reused = world.post_order_with(&with_key(&second), &other).await;
    assert_eq!(reused.code(), "idempotency_key_reused");
}

#[tokio::test]
async fn payload_schema_is_part_of_the_sale_and_editable_until_start() {
    let world = World::new().await;
    let bad = json!({ "type": "colour" });
    let mut new = sale_json("s", 4);
    new["starts_at_ms"] = json!(now_ms() + 60_000);
    new["payload_schema"] = bad;
    let refused = world.admin("POST", "/sales", &new).await;
    assert_eq!(refused.code(), "invalid_sale");
    assert_eq!(refused.body["errors"][0]["pointer"], "/payload_schema");
    new["payload_schema"] = schema();
    assert_eq!(world.admin("POST", "/sales", &new).await.status, 201);
    let path = "/sales/s/payload-schema";
    let wants =
        async || world.admin("GET", path, &Value::Null).await.body["payload_schema"].clone();
    assert_eq!(wants().await, schema());
    // A change of another field keeps it.
    let patch = async |changes: Value| world.admin("PATCH", "/sales/s", &changes).await.status;
    assert_eq!(patch(json!({ "title": "Shoes" })).await, 200);
    assert_eq!(wants().await, schema());
    let other = json!({ "type": "object", "required": ["size"] });
    assert_eq!(patch(json!({ "payload_schema": other })).await, 200);
    assert_eq!(wants().await, other);
    assert_eq!(patch(json!({ "payload_schema": null })).await, 200);
    assert_eq!(wants().await, Value::Null);
    assert_eq!(patch(json!({ "starts_at_ms": 1 })).await, 200);
    assert_eq!(
        patch(json!({ "payload_schema": schema() })).await,
        409,
        "it has started"
    );
    let none = world
        .admin("GET", "/sales/x/payload-schema", &Value::Null)
        .await;
    assert_eq!(none.code(), "unknown_sale");
}

/// Types with a payload can be logged safely.
#[tokio::test]
async fn buyer_payloads_are_never_logged() {
    let world = world(World::new().await).await;
    let ticket = world.claim("s", "alice").await;
    assert_eq!(
        order(&world, &ticket, &payload().to_string()).await.status,
        201
    );
    let store = world.origin.sales().store();
    let found = store
        .search()
        .find_order(ticket.claim_id().as_str())
        .await
        .unwrap()
        .unwrap();
    let payload = store
        .payloads()
        .payload(ticket.claim_id().as_str())
        .await
        .unwrap();
    let request = OrderRequest {
        click: None,
        attempt: None,
        payload,
    };
    for displayed in [format!("{found:?}"), format!("{request:?}")] {
        assert!(displayed.contains("Payload("), "{displayed}");
        assert!(!displayed.contains("secret.example"), "{displayed}");
    }
}
