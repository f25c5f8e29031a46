//! Clients that disconnect at the worst moment.

use std::time::Duration;

use anyhow::Result;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use weir_stack::envoy::{GATE, set};
use weir_stack::native::Host;
use weir_stack::{Stack, http};
use weir_tests::{rush, stock_balance, until, users};

const CLIENTS: usize = 1_000;
const STOCK: u64 = 700;
const WORKERS: u32 = 2;

/// The minimum number of requests per engine: two batches of 64, because no engine has measured Redis yet.
const OUT_MIN: u64 = 128;

/// Opens a connection for each user and sends its request, without reading.
async fn ask_all(stack: &Stack, sale: &str) -> Result<Vec<TcpStream>> {
    let authority = stack.gateway_authority();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(http::connect(&authority).await?);
    }
    for (client, user) in clients.iter_mut().zip(users(0..CLIENTS)) {
        let request = format!(
            "POST /sales/{sale}/orders HTTP/1.1\r\nhost: w\r\nx-user-id: {user}\r\ncontent-length: 0\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await?;
    }
    Ok(clients)
}

/// Claims that cannot reach their clients are all released and can be sold to others.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_disconnects_during_slow_redis_leave_no_reservation() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(WORKERS)
        .key_prefix("gone")
        // A deadline long enough that no call times out while Redis is paused.
        .edit_config(|config| {
            config.edit_filter(GATE, |json| set(json, "/redis/deadline_ms", 20_000))
        })
        .start()
        .await?;
    stack.open_sale("gone", STOCK, 4).await?;
    let envoy = stack.envoy.process().pid();

    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let _: String = redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(60_000)
        .arg("WRITE")
        .query_async(&mut redis)
        .await?;
    let clients = ask_all(&stack, "gone").await?;
    let out = OUT_MIN * Host::of_run().engines(WORKERS);
    until("every batch is out", async || {
        stack
            .envoy
            .stat("wasmcustom.weir_seckill_gate_redis_requests_total")
            .await
            .is_ok_and(|sent| sent >= out)
    })
    .await?;
    drop(clients);
    until("Envoy has seen them go", async || {
        stack
            .envoy
            .stat("http.gateway.downstream_cx_active")
            .await
            .is_ok_and(|open| open == 0)
    })
    .await?;
    let _: String = redis::cmd("CLIENT")
        .arg("UNPAUSE")
        .query_async(&mut redis)
        .await?;

    let handed_back = "wasmcustom.weir_seckill_gate_claims_handed_back_total";
    until("claims were made, and are given back", async || {
        stack
            .envoy
            .stat(handed_back)
            .await
            .is_ok_and(|claims| claims >= out * 3 / 5)
    })
    .await?;
    until("nothing is held any more", async || {
        stock_balance(&stack, "gone")
            .await
            .is_ok_and(|stock_balance| stock_balance.held == 0 && stock_balance.stock == STOCK)
    })
    .await?;
    assert_eq!(stack.envoy.process().pid(), envoy, "the same Envoy");
    stack.check_children()?;

    // Shards that appeared empty meanwhile reopen at the next poll.
    until("every unit is sold", async || {
        rush(&stack, "gone", users(0..4_000), 64).await.is_ok()
            && stock_balance(&stack, "gone")
                .await
                .is_ok_and(|stock_balance| stock_balance.orders == STOCK)
    })
    .await?;
    Ok(())
}

/// Nothing is lost, whenever clients disconnect: those who return get their claims.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_disconnects_at_any_moment_lose_no_unit() -> Result<()> {
    let mut stack = Stack::builder()
        .workers(2)
        .key_prefix("flee")
        // A claim whose reply is late holds its unit for this long. On a busy machine that happens, and other users
        // wait for these units.
        .edit_config(|config| config.edit_filter(GATE, |json| set(json, "/claim/ttl_ms", 8_000)))
        .start()
        .await?;
    stack.open_sale("flee", STOCK, 4).await?;
    for wait_ms in [0, 3, 20] {
        let clients = ask_all(&stack, "flee").await?;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        drop(clients);
    }
    until("the books are at rest", async || {
        let before = stock_balance(&stack, "flee").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = stock_balance(&stack, "flee").await;
        matches!((before, after), (Ok(before), Ok(after)) if before == after)
    })
    .await?;
    let at_rest = stock_balance(&stack, "flee").await?;
    assert!(at_rest.balance(), "{at_rest:?}");
    stack.check_children()?;

    until("every unit is sold", async || {
        rush(&stack, "flee", users(0..4_000), 64).await.is_ok()
            && stock_balance(&stack, "flee")
                .await
                .is_ok_and(|stock_balance| stock_balance.orders == STOCK)
    })
    .await?;
    let sold = stock_balance(&stack, "flee").await?;
    assert_eq!((sold.held, sold.stock), (0, 0));
    Ok(())
}
