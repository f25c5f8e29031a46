//! The waiting room before a sale: visitors who are not inside do not reach the gate.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde_json::json;
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};
use weir_tests::{stock_balance, until, verdict};

/// As in docs/waiting-room.md; the sale's page and existing orders need no position.
const ROOM: &str = r#"{
    "redis": { "key_prefix": "room-sale", "deadline_ms": 3000 },
    "keys": [{ "secret": { "env": "WEIR_CLAIM_SECRET" } }],
    "user_header": "x-user-id", "poll_interval_ms": 200,
    "rooms": [{ "name": "drop", "mode": "paused",
        "match": { "methods": ["POST"], "path": { "prefix": "/sales/" } } }] }"#;

/// A buyer's app, which stores its pass.
struct Buyer {
    user: &'static str,
    pass: RefCell<Option<String>>,
}

impl Buyer {
    fn new(user: &'static str) -> Self {
        let pass = RefCell::default();
        Self { user, pass }
    }

    async fn buy(&self, stack: &Stack) -> Result<Response> {
        let pass = self.pass.borrow().clone();
        let mut headers = vec![("x-user-id", self.user)];
        headers.extend(pass.as_deref().map(|pass| ("x-weir-room", pass)));
        let answer = http::send(Method::POST, &stack.buy_url("drop"), &headers, "").await?;
        if let Some(pass) = answer.header("x-weir-room") {
            self.pass.replace(Some(pass.to_owned()));
        }
        Ok(answer)
    }
}

async fn open_sale(stack: &Stack) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let now_ms = u64::try_from(now)?;
    let sale = json!({
        "id": "drop", "title": "drop", "total": 5, "shards": 1, "user_cap": 1,
        "starts_at_ms": now_ms, "ends_at_ms": now_ms + 600_000,
    });
    stack
        .admin(Method::POST, "/sales", &sale.to_string(), 201)
        .await?;
    stack
        .admin(Method::POST, "/sales/drop/warm", "", 200)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn buyers_wait_before_the_gate_and_buy_when_admitted() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("room-sale")
        .edit_config(|config| config.room_before_gate(ROOM))
        .start()
        .await?;
    open_sale(&stack).await?;
    let page = format!("{}/sales/drop", stack.gateway_url());
    until("who waits sees the sale", async || http::is_ok(&page).await).await?;

    let buyers = [Buyer::new("alice"), Buyer::new("bob")];
    for (buyer, position) in buyers.iter().zip(1..) {
        until("the buyer has a place", async || {
            let Ok(answer) = buyer.buy(&stack).await else {
                return false;
            };
            let body = answer.json().unwrap_or_default();
            answer.status == 503 && body["error"] == "room_waiting" && body["position"] == position
        })
        .await?;
    }
    let waiting = buyers[0].buy(&stack).await?;
    ensure!(verdict(&waiting).is_empty(), "the gate has not seen it");
    ensure!(waiting.header("retry-after").is_some(), "{waiting:?}");
    ensure!(stock_balance(&stack, "drop").await?.stock == 5);

    stack
        .admin(Method::PUT, "/rooms/drop", r#"{ "mode": "open" }"#, 200)
        .await?;
    for buyer in &buyers {
        until("the buyer buys", async || {
            let bought = buyer.buy(&stack).await;
            bought.is_ok_and(|answer| answer.status == 201 && verdict(&answer) == "granted")
        })
        .await?;
    }
    ensure!(stock_balance(&stack, "drop").await?.stock == 3);
    Ok(())
}
