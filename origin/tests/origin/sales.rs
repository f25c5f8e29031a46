//! Creating and reading sales.

use serde_json::{Value, json};

use crate::support::{SHARDS, World, sale_json};

#[tokio::test]
async fn sale_is_created_once_and_shown_as_created() {
    let world = World::new().await;
    let sale = sale_json("s", 10);
    let response = world.admin("POST", "/sales", &sale).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.headers["location"], "/sales/s");
    for field in [
        "id",
        "title",
        "total",
        "user_cap",
        "starts_at_ms",
        "ends_at_ms",
    ] {
        assert_eq!(response.body[field], sale[field], "{field}");
    }
    assert_eq!(response.body["shard_count"], SHARDS);
    assert_eq!(response.body["remaining"], 10);
    assert_eq!(response.body["state"], "open");
    assert_eq!(response.body["warmed_at_ms"], Value::Null);

    let again = world.admin("POST", "/sales", &sale_json("s", 99)).await;
    assert_eq!(
        (again.status.as_u16(), again.code()),
        (409, "duplicate_sale")
    );
    assert_eq!(world.remaining().await, 10);

    let list = world.admin("GET", "/sales", &Value::Null).await;
    assert_eq!(list.body, json!({ "sales": [response.body], "next": null }));
}

#[tokio::test]
async fn invalid_sale_body_is_refused_with_the_invalid_field() {
    let world = World::new().await;
    let with = |field: &str, value: Value| {
        let mut sale = sale_json("s", 10);
        sale[field] = value;
        sale.to_string()
    };
    let without = |field: &str| {
        let mut sale = sale_json("s", 10);
        sale.as_object_mut().unwrap().remove(field);
        sale.to_string()
    };
    let good = sale_json("s", 10).to_string();
    let cases = [
        (String::new(), 400, "EOF while parsing"),
        ("[]".to_owned(), 400, "invalid type: sequence"),
        (good.replace('}', ""), 400, "EOF while parsing"),
        (format!("{good} x"), 400, "trailing characters"),
        (without("total"), 400, "missing field `total`"),
        (with("stock", json!(1)), 400, "unknown field `stock`"),
        (
            with("id", json!("S")),
            400,
            "id: has an invalid byte at position 0",
        ),
        (
            with("id", json!("a".repeat(65))),
            400,
            "id: is longer than 64 bytes",
        ),
        (with("id", json!("")), 400, "id: is empty"),
        (
            with("total", json!(-1)),
            400,
            "total: invalid value: integer `-1`",
        ),
        (
            with("total", json!(1.5)),
            400,
            "total: invalid type: floating point",
        ),
        (
            with("total", json!("1")),
            400,
            "total: invalid type: string",
        ),
        (
            with("shards", json!(1_u64 << 32)),
            400,
            "shards: invalid value",
        ),
        (
            with("title", json!("")),
            422,
            "title: must be 1 to 200 characters",
        ),
        (
            with("title", json!("a\u{0}")),
            422,
            "title: must be 1 to 200 characters",
        ),
        (
            with("total", json!(1_000_000_001)),
            422,
            "total: must be at most 1000000000",
        ),
        (with("shards", json!(0)), 422, "shards must be 1 to 64"),
        (with("shards", json!(65)), 422, "shards must be 1 to 64"),
        (
            with("user_cap", json!(0)),
            422,
            "user_cap must be 1 to 1000",
        ),
        (
            with("ends_at_ms", json!(1)),
            422,
            "ends_at_ms must be after starts_at_ms",
        ),
        (
            with("ends_at_ms", json!(u64::MAX)),
            422,
            "ends_at_ms: must be before the year 10000",
        ),
    ];
    for (body, status, message) in cases {
        let answer = world.admin_text("POST", "/sales", &body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        let code = if status == 400 {
            "invalid_body"
        } else {
            "invalid_sale"
        };
        assert_eq!(answer.code(), code);
        assert!(
            answer.detail().contains(message),
            "{body}: {}",
            answer.detail()
        );
    }
    let long = format!("{good}{}", " ".repeat(16 * 1024));
    let answer = world.admin_text("POST", "/sales", &long).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (413, "body_too_large")
    );
    assert_eq!(world.number("SELECT COUNT(*) FROM sales").await, 0);
}

#[tokio::test]
async fn unknown_sale_returns_404() {
    let world = World::new().await;
    for (method, path) in [
        ("GET", "/sales/ghost"),
        ("POST", "/sales/ghost/warm"),
        ("GET", "/sales/GHOST"),
        ("GET", "/sales/%ff"),
        ("GET", "/sales/%7Ba%7D"),
    ] {
        let answer = world.admin(method, path, &Value::Null).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "unknown_sale"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn sale_status_adds_up_at_every_step() {
    let world = World::new().await;
    world.admin("POST", "/sales", &sale_json("s", 10)).await;
    let status = || world.admin("GET", "/sales/s", &Value::Null);
    let cold = status().await;
    assert_eq!(cold.status, 200);
    assert_eq!(cold.body["balanced"], false);
    assert_eq!(cold.body["shards"][0]["stock"], Value::Null);

    world.admin("POST", "/sales/s/warm", &Value::Null).await;
    assert_eq!(status().await.body["balanced"], true);
    let ticket = world.claim("s", "alice").await;
    let claimed = status().await.body;
    assert_eq!(claimed["balanced"], true);
    assert_eq!(claimed["shards"][ticket.shard as usize]["held"], 1);
    assert_eq!(
        (&claimed["orders"], &claimed["remaining"]),
        (&json!(0), &json!(10))
    );

    world.order(&ticket).await;
    let ordered = status().await.body;
    assert_eq!(ordered["balanced"], true);
    assert_eq!(ordered["shards"][ticket.shard as usize]["bought"], 1);
    assert_eq!(ordered["shards"][ticket.shard as usize]["held"], 0);
    assert_eq!(ordered["orders"], 1);
    assert_eq!(ordered["units_ordered"], 1);
    assert_eq!(ordered["remaining"], 9);
    assert_eq!(ordered["total"], 10);
}

#[tokio::test]
async fn sale_status_is_unknown_without_redis() {
    let port = weir_stack::ports::free().unwrap();
    let world = World::on(&format!("redis://127.0.0.1:{port}")).await;
    world.admin("POST", "/sales", &sale_json("s", 10)).await;
    for (method, path) in [("GET", "/sales/s"), ("POST", "/sales/s/warm")] {
        let answer = world.admin(method, path, &Value::Null).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (503, "redis_unavailable"),
            "{path}"
        );
    }
    let list = world.admin("GET", "/sales", &Value::Null).await;
    assert_eq!(list.body["sales"][0]["warmed_at_ms"], Value::Null);
}
