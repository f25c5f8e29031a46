//! An attempt with an `Idempotency-Key` results in one order, whichever response was lost, even if the cap allows two.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use weir_stack::fault::Fault;
use weir_stack::http::{self, Method, Response};
use weir_stack::{Builder, Stack};
use weir_tests::{faulty, stock_balance, until, verdict};

const STOCK: u64 = 3;

async fn start(builder: Builder, sale: &str) -> Result<Stack> {
    let stack = builder.start().await?;
    let cap = json!({ "user_cap": 2 });
    stack.open_sale_with(sale, STOCK, 1, cap).await?;
    Ok(stack)
}

async fn buy(stack: &Stack, sale: &str, key: Option<&str>, body: &str) -> Result<Response> {
    let mut headers = vec![("x-user-id", "alice")];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    http::send(
        Method::POST,
        &stack.buy_url(sale),
        &headers,
        body.to_owned(),
    )
    .await
}

/// The order in an answer of this status.
fn order(answer: &Response, status: u16) -> Result<Value> {
    ensure!(
        answer.status == status,
        "{}: {}",
        answer.status,
        answer.text()
    );
    Ok(answer.json()?["order"].clone())
}

async fn until_ordered(stack: &Stack, sale: &str, orders: u64) -> Result<()> {
    until("the order is in SQL", async || {
        stock_balance(stack, sale)
            .await
            .is_ok_and(|stock_balance| stock_balance.orders == orders)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_lost_origin_response_returns_the_first_order() -> Result<()> {
    let sale = "lost-answer";
    let mut stack = start(faulty(sale).faults_before_origin(), sale).await?;
    let proxy = |stack: &Stack, fault| -> Result<()> {
        let proxy = stack.faults.before_origin.as_ref().context("a proxy")?;
        proxy.set(fault);
        Ok(())
    };
    proxy(&stack, Fault::Swallow)?;
    let unheard = buy(&stack, sale, Some("k-1"), "{}").await?;
    ensure!(unheard.status == 504, "{}", unheard.status);
    assert_eq!(verdict(&unheard), "unavailable");
    assert!(
        unheard.text().contains("Idempotency-Key"),
        "{}",
        unheard.text()
    );
    until_ordered(&stack, sale, 1).await?;
    proxy(&stack, Fault::Pass)?;
    let first = order(&buy(&stack, sale, Some("k-1"), "{}").await?, 200)?;
    let again = order(&buy(&stack, sale, Some("\"k-1\""), "{}").await?, 200)?;
    assert_eq!(again, first);
    assert_eq!(stock_balance(&stack, sale).await?.orders, 1);

    let reused = buy(&stack, sale, Some("k-1"), r#"{"size":"L"}"#).await?;
    assert_eq!(reused.status, 422, "{}", reused.text());
    assert_eq!(reused.json()?["error"], "idempotency_key_reused");

    // As documented: without a key, a retry is a new attempt if the cap allows it.
    proxy(&stack, Fault::Swallow)?;
    let unheard = buy(&stack, sale, None, "{}").await?;
    ensure!(unheard.status == 504, "{}", unheard.status);
    until_ordered(&stack, sale, 2).await?;
    proxy(&stack, Fault::Pass)?;
    let refused = buy(&stack, sale, None, "{}").await?;
    assert_eq!(verdict(&refused), "cap_reached");

    // The sale is sold out, and the attempt is still answered.
    for (user, word) in [("bob", "granted"), ("carol", "sold_out")] {
        until("the last unit is sold", async || {
            let answer = weir_tests::buy(&stack, sale, user).await;
            answer.is_ok_and(|answer| verdict(&answer) == word)
        })
        .await?;
    }
    let again = order(&buy(&stack, sale, Some("k-1"), "{}").await?, 200)?;
    assert_eq!(again, first);
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_lost_redis_reply_takes_no_second_unit() -> Result<()> {
    let sale = "lost-reply";
    let mut stack = start(faulty(sale).faults_before_redis(), sale).await?;
    let proxy = stack.faults.before_redis.as_ref().context("a proxy")?;
    proxy.set(Fault::Swallow);
    let unheard = buy(&stack, sale, Some("k-1"), "{}").await?;
    assert_eq!(verdict(&unheard), "unavailable");
    let proxy = stack.faults.before_redis.as_ref().context("a proxy")?;
    proxy.set(Fault::Pass);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let first = loop {
        let answer = buy(&stack, sale, Some("k-1"), "{}").await?;
        if answer.status != 503 {
            break order(&answer, 201)?;
        }
        ensure!(
            tokio::time::Instant::now() < deadline,
            "still {}",
            answer.text()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let again = order(&buy(&stack, sale, Some("k-1"), "{}").await?, 200)?;
    assert_eq!(again, first);
    let stock_balance = stock_balance(&stack, sale).await?;
    assert_eq!((stock_balance.orders, stock_balance.stock), (1, STOCK - 1));
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_client_disconnect_returns_the_first_order() -> Result<()> {
    let sale = "hung-up";
    let mut stack = start(faulty(sale), sale).await?;
    let authority = stack.gateway_authority();
    let mut client = http::connect(&authority).await?;
    let request = format!(
        "POST /sales/{sale}/orders HTTP/1.1\r\nhost: {authority}\r\nx-user-id: alice\r\n\
         idempotency-key: k-1\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    client.write_all(request.as_bytes()).await?;
    until_ordered(&stack, sale, 1).await?;
    drop(client);
    let first = order(&buy(&stack, sale, Some("k-1"), "{}").await?, 200)?;
    let second = order(&buy(&stack, sale, Some("k-2"), "{}").await?, 201)?;
    assert_ne!(first, second, "another key is another order");
    let refused = buy(&stack, sale, Some("k-3"), "{}").await?;
    assert_eq!(verdict(&refused), "cap_reached");
    let bad = buy(&stack, sale, Some("no key"), "{}").await?;
    assert_eq!(
        (bad.status, verdict(&bad)),
        (400, "invalid_idempotency_key")
    );
    stack.check_children()?;
    Ok(())
}
