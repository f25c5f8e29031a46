//! Several gateways on one Redis, and many sales on one gateway.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;
use weir_stack::GatewayOptions;
use weir_stack::http;
use weir_tests::{Crowd, faulty, sold_out_exactly, users};

const STOCK: u64 = 400;
const USERS: usize = 2_000;
const CONNECTIONS: usize = 32;

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_with_two_workers_each_sell_the_stock_once() -> Result<()> {
    let mut stack = faulty("two").start().await?;
    stack.start_gateway(GatewayOptions::default()).await?;
    stack.open_sale("two", STOCK, 4).await?;
    let crowd = Crowd::start(&stack, "two", users(0..USERS), CONNECTIONS);
    crowd.finish().await?;
    for gateway in std::iter::once(&stack.envoy).chain(&stack.gateways) {
        let requested = gateway.stat("http.gateway.downstream_rq_total").await?;
        assert!(requested >= 100, "both have worked: {requested}");
    }
    assert_eq!(sold_out_exactly(&stack, "two").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

/// The gates of both gateways, which have no node id, report their routes.
#[tokio::test(flavor = "multi_thread")]
async fn gateways_report_what_they_run() -> Result<()> {
    let mut stack = faulty("reported").start().await?;
    let second = stack.start_gateway(GatewayOptions::default()).await?;
    stack.open_sale("reported", STOCK, 1).await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        // Gates report from their first request on.
        http::get(&format!("{second}/sales/reported")).await?;
        let answer = stack.admin(http::Method::GET, "/gateways", "", 200).await?;
        let gateways = answer["gateways"].as_array().context("no list")?;
        let gates = gateways
            .iter()
            .filter_map(|gateway| gateway["filters"].as_array());
        let gates: Vec<_> = gates
            .flatten()
            .filter(|one| one["filter"] == "seckill-gate")
            .collect();
        if gates.len() == 2 {
            let orders = gates.iter().map(|gate| &gate["items"][0]["name"]);
            assert!(
                orders
                    .clone()
                    .all(|name| name == "POST /sales/{sale}/orders"),
                "{answer}"
            );
            assert_eq!(answer["differences"], serde_json::json!([]));
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "only {answer}");
        sleep(Duration::from_millis(500)).await;
    }
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_one_of_two_gateways_restarts() -> Result<()> {
    let mut stack = faulty("one").start().await?;
    stack.start_gateway(GatewayOptions::default()).await?;
    stack.open_sale("one", STOCK, 4).await?;
    let crowd = Crowd::start(&stack, "one", users(0..USERS), CONNECTIONS);
    crowd.until_done(USERS / 20).await?;
    stack.gateways[0].process().kill();
    sleep(Duration::from_secs(1)).await;
    stack.gateways[0].start_again().await?;
    crowd.finish().await?;
    assert_eq!(sold_out_exactly(&stack, "one").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

/// How far ahead a gateway's clock is, according to its answers.
async fn clock_ahead_ms(gateway: &str, sale: &str) -> Result<i128> {
    let answer = http::get(&format!("{gateway}/sales/{sale}")).await?;
    let body = answer.json()?;
    let theirs = body["now_ms"]
        .as_u64()
        .with_context(|| format!("no time in {body}"))?;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(i128::from(theirs) - i128::try_from(ours)?)
}

async fn another_clock(prefix: &str, ahead_ms: i64) -> Result<()> {
    let mut stack = faulty(prefix).start().await?;
    let clock_ahead_ms_of_second = GatewayOptions {
        clock_ahead_ms: Some(ahead_ms),
        ..GatewayOptions::default()
    };
    let second = stack.start_gateway(clock_ahead_ms_of_second).await?;
    stack.open_sale(prefix, STOCK, 4).await?;
    let observed = clock_ahead_ms(&second, prefix).await?;
    ensure!(
        (observed - i128::from(ahead_ms)).abs() < 500,
        "its clock is {observed} ms ahead, not {ahead_ms}"
    );
    let crowd = Crowd::start(&stack, prefix, users(0..USERS), CONNECTIONS);
    crowd.finish().await?;
    assert_eq!(sold_out_exactly(&stack, prefix).await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_with_a_gateway_clock_two_seconds_ahead() -> Result<()> {
    another_clock("ahead", 2_000).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_with_a_gateway_clock_two_seconds_behind() -> Result<()> {
    another_clock("behind", -2_000).await
}

/// More than the twelve sales in the source article.
#[tokio::test(flavor = "multi_thread")]
async fn hundred_concurrent_sales_sell_exactly_their_stock() -> Result<()> {
    const SALES: usize = 100;
    const STOCK_EACH: u64 = 10;
    let mut stack = faulty("many").start().await?;
    let sales: Vec<String> = (0..SALES).map(|n| format!("sale-{n}")).collect();
    for sale in &sales {
        stack.make_sale(sale, STOCK_EACH, 2).await?;
    }
    stack.wait_until_known(&sales[SALES - 1]).await?;
    let crowds: Vec<Crowd> = (0..)
        .zip(&sales)
        .map(|(n, sale)| Crowd::start(&stack, sale, users(n * 40..(n + 1) * 40), 2))
        .collect();
    for crowd in crowds {
        crowd.finish().await?;
    }
    for sale in &sales {
        assert_eq!(sold_out_exactly(&stack, sale).await?.orders, STOCK_EACH);
    }
    stack.check_children()?;
    Ok(())
}
