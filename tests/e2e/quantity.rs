//! Orders of several units through the gateway: all or none, up to the cap, and the stock stays balanced.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};
use weir_tests::{PATIENCE, verdict};

use crate::whole_sale::audited;

async fn buy(url: &str, user: &str, quantity: &str) -> Result<Response> {
    let headers = [("x-user-id", user), ("x-weir-quantity", quantity)];
    http::send(Method::POST, url, &headers, "").await
}

fn decided(answer: &Response) -> (u16, &str) {
    (answer.status, verdict(answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn order_takes_and_releases_the_requested_quantity() -> Result<()> {
    let stack = Stack::builder().key_prefix("quantity").start().await?;
    stack
        .open_sale_with("s", 8, 4, json!({ "user_cap": 3 }))
        .await?;
    let url = stack.buy_url("s");
    for wrong in ["0", "two"] {
        let refused = buy(&url, "alice", wrong).await?;
        assert_eq!(decided(&refused), (400, "invalid_quantity"), "{wrong}");
    }
    assert_eq!(
        decided(&buy(&url, "alice", "4").await?),
        (409, "cap_reached")
    );
    audited(&stack, "s", 8, 0).await?;

    // Two per shard: transfers bring them together.
    let response = buy(&url, "alice", "3").await?;
    ensure!(
        decided(&response) == (201, "granted"),
        "{}",
        response.text()
    );
    let response = response.json()?;
    assert_eq!(response["quantity"], 3, "{response}");
    audited(&stack, "s", 5, 3).await?;
    assert_eq!(
        decided(&buy(&url, "alice", "1").await?),
        (409, "cap_reached")
    );
    let two = buy(&url, "bob", "2").await?;
    ensure!(decided(&two) == (201, "granted"), "{}", two.text());
    // One more makes three, and two more would exceed the cap.
    assert_eq!(decided(&buy(&url, "bob", "2").await?), (409, "cap_reached"));
    assert_eq!(decided(&buy(&url, "bob", "1").await?), (201, "granted"));
    audited(&stack, "s", 2, 6).await?;
    assert_eq!(decided(&buy(&url, "carol", "3").await?), (409, "too_few"));
    audited(&stack, "s", 2, 6).await?;

    let path = format!(
        "/orders/{}/cancel",
        response["order"].as_str().unwrap_or_default()
    );
    let cancel = format!("{}{path}", stack.gateway_url());
    let cancelled = http::send(Method::POST, &cancel, &[("x-user-id", "alice")], "").await?;
    ensure!(cancelled.status == 200, "{}", cancelled.text());
    audited(&stack, "s", 5, 3).await?;
    assert_eq!(decided(&buy(&url, "carol", "3").await?), (201, "granted"));
    audited(&stack, "s", 2, 6).await
}

/// The sizes of a shoe: one sale each, with a shared cap of three pairs per person.
#[tokio::test(flavor = "multi_thread")]
async fn user_cap_applies_across_sales_of_a_group() -> Result<()> {
    let stack = Stack::builder().key_prefix("group").start().await?;
    let group = json!({ "user_cap": 3, "group": { "id": "shoe", "user_cap": 3 } });
    for sale in ["size-41", "size-42"] {
        stack.open_sale_with(sale, 10, 2, group.clone()).await?;
    }
    let buy = async |sale: &str, quantity| buy(&stack.buy_url(sale), "alice", quantity).await;
    assert_eq!(decided(&buy("size-41", "2").await?), (201, "granted"));
    let refused = buy("size-42", "2").await?;
    assert_eq!(decided(&refused), (409, "granted"), "the origin refuses");
    assert_eq!(refused.json()?["error"], "group_cap");
    audited(&stack, "size-42", 10, 0).await?;
    assert_eq!(decided(&buy("size-42", "1").await?), (201, "granted"));
    assert_eq!(buy("size-41", "1").await?.status, 409);
    audited(&stack, "size-41", 8, 2).await?;
    audited(&stack, "size-42", 9, 1).await
}

/// Requests `quantity` units, and fewer if there are too few, until the decision is final. Returns the units bought.
async fn gets(url: String, user: String, mut quantity: u32) -> Result<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        ensure!(Instant::now() < deadline, "{user} still waits");
        let answer = buy(&url, &user, &quantity.to_string()).await?;
        match verdict(&answer) {
            "granted" | "granted_again" if answer.status < 300 => return Ok(quantity),
            "sold_out" => return Ok(0),
            "too_few" if quantity > 1 => quantity -= 1,
            _ => sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crowd_of_mixed_quantities_buys_exactly_all_units() -> Result<()> {
    const STOCK: u32 = 100;
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("units")
        .start()
        .await?;
    stack
        .open_sale_with("s", STOCK.into(), 8, json!({ "user_cap": 3 }))
        .await?;
    let mut crowd = JoinSet::new();
    for number in 0..90 {
        crowd.spawn(gets(
            stack.buy_url("s"),
            format!("user-{number}"),
            number % 3 + 1,
        ));
    }
    let mut sold = 0;
    while let Some(actual) = crowd.join_next().await {
        sold += actual??;
    }
    ensure!(sold == STOCK, "{sold} units were sold");
    audited(&stack, "s", 0, STOCK.into()).await
}
