//! A buyer's order payload passes the gate to the origin, which validates it against the sale's schema.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};
use weir_tests::verdict;

use crate::whole_sale::audited;

async fn order_with(stack: &Stack, user: &str, body: &Value) -> Result<Response> {
    let headers = [("x-user-id", user), ("content-type", "application/json")];
    http::send(
        Method::POST,
        &stack.buy_url("s"),
        &headers,
        body.to_string(),
    )
    .await
}

async fn order(stack: &Stack, order: &Value, user: &str) -> Result<Response> {
    let path = format!("/orders/{}", order.as_str().unwrap_or_default());
    let url = format!("{}{path}", stack.gateway_url());
    http::send(Method::GET, &url, &[("x-user-id", user)], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn order_without_a_valid_payload_releases_its_unit_at_once() -> Result<()> {
    let stack = Stack::builder().key_prefix("payloads").start().await?;
    let schema = json!({
        "type": "object", "required": ["mail", "size"], "additionalProperties": false,
        "properties": { "mail": { "type": "string", "pattern": "@" }, "size": { "enum": ["40", "41"] } },
    });
    let more = json!({ "payload_schema": schema });
    stack.open_sale_with("s", 2, 1, more).await?;

    for wrong in [
        json!({}),
        json!({ "mail": "alice@example.com", "size": "99" }),
    ] {
        let refused = order_with(&stack, "alice", &wrong).await?;
        let problem = refused.json()?;
        ensure!(refused.status == 422, "{problem}");
        ensure!(verdict(&refused) == "granted", "it was the gate: {problem}");
        ensure!(problem["error"] == "invalid_payload", "{problem}");
        ensure!(!problem.to_string().contains("99"), "{problem}");
        audited(&stack, "s", 2, 0).await?;
    }

    let body = json!({ "mail": "alice@example.com", "size": "41" });
    let created = order_with(&stack, "alice", &body).await?;
    ensure!(created.status == 201, "{}", created.text());
    let id = created.json()?["order"].clone();
    let response = order(&stack, &id, "alice").await?.json()?;
    ensure!(response["payload"] == body, "{response}");
    ensure!(
        order(&stack, &id, "bob").await?.status == 404,
        "bob sees it"
    );
    audited(&stack, "s", 1, 1).await
}
