//! Requests to a gateway's workers before they have read the catalogue.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use weir_stack::http::{self, Method, Response};
use weir_stack::{GatewayOptions, Stack};
use weir_tests::{stock_balance, verdict};

/// Enough that both workers get some of them: each uses a new connection.
const BUYERS: usize = 24;

async fn buy_at(gateway: &str, sale: &str, user: &str) -> Result<Response> {
    let url = format!("{gateway}/sales/{sale}/orders");
    http::send(Method::POST, &url, &[("x-user-id", user)], "").await
}

/// All buy at the same time.
async fn buy_all(gateway: &str, sale: &'static str, round: &str) -> Result<Vec<Response>> {
    let mut buyers = JoinSet::new();
    for n in 0..BUYERS {
        let (gateway, user) = (gateway.to_owned(), format!("{round}-{n}"));
        buyers.spawn(async move { buy_at(&gateway, sale, &user).await });
    }
    buyers.join_all().await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_buyers_after_gateway_start_are_served() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("held")
        .start()
        .await?;
    stack.open_sale("held", 1_000, 2).await?;
    let gateway = stack.start_gateway(GatewayOptions::default()).await?;
    for round in 0..3 {
        if round > 0 {
            stack.gateways[0].process().kill();
            stack.gateways[0].start_again().await?;
        }
        for answer in buy_all(&gateway, "held", &format!("round-{round}")).await? {
            let received = (answer.status, verdict(&answer));
            ensure!(
                received == (201, "granted"),
                "{received:?} {}",
                answer.text()
            );
        }
    }
    assert_eq!(
        stock_balance(&stack, "held").await?.orders,
        3 * BUYERS as u64
    );
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn held_requests_fail_soon_without_redis_and_later_ones_at_once() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("gone")
        .start()
        .await?;
    stack.open_sale("gone", 10, 1).await?;
    stack.redis.server.as_mut().context("its own Redis")?.stop();
    let gateway = stack
        .start_gateway(GatewayOptions {
            workers: 1,
            ..GatewayOptions::default()
        })
        .await?;
    let started = Instant::now();
    for answer in buy_all(&gateway, "gone", "first").await? {
        let received = (answer.status, verdict(&answer));
        ensure!(received == (503, "unavailable"), "{received:?}");
        ensure!(answer.header("retry-after") == Some("1"));
    }
    let waited = started.elapsed();
    ensure!(waited > Duration::from_millis(900), "they wait: {waited:?}");
    ensure!(waited < Duration::from_secs(3), "and not long: {waited:?}");
    let started = Instant::now();
    let answer = buy_at(&gateway, "gone", "alice").await?;
    let waited = started.elapsed();
    ensure!(
        answer.status == 503 && waited < Duration::from_millis(500),
        "{waited:?}"
    );
    Ok(())
}
