//! Switches changed at run time through the origin's admin port, and observed at every worker of all gateways.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::{self, Method};
use weir_stack::{GatewayOptions, Stack};
use weir_tests::{buy, stock_balance, until, verdict};

/// The maximum delay until all gateways apply a switch.
const SEEN_WITHIN: Duration = Duration::from_millis(500);

/// The number of attempts: on a machine that is busy with other tests, a process may be delayed longer. A gateway that
/// polls too rarely would fail nearly always.
const TRIES: usize = 6;

/// This many consecutive requests over new connections reach all workers of two gateways.
const IN_A_ROW: usize = 60;

async fn switch_all(stack: &Stack, state: &str) -> Result<()> {
    let body = json!({ "state": state }).to_string();
    stack.admin(Method::PUT, "/switch", &body, 200).await?;
    Ok(())
}

async fn switch(stack: &Stack, sale: &str, switch: Value) -> Result<()> {
    let path = format!("/sales/{sale}/switch");
    let switch = switch.to_string();
    stack.admin(Method::PUT, &path, &switch, 200).await?;
    Ok(())
}

/// The delay until `is_so` holds for all gateways and workers, that is, for this many consecutive requests.
async fn seen_after(stack: &Stack, is_so: impl AsyncFn(&str) -> Result<bool>) -> Result<Duration> {
    let gateways = stack.gateway_urls();
    let since = Instant::now();
    let (mut in_a_row, mut first) = (0, since.elapsed());
    for gateway in gateways.iter().cycle() {
        if is_so(gateway).await? {
            in_a_row += 1;
        } else {
            in_a_row = 0;
            first = since.elapsed();
        }
        if in_a_row == IN_A_ROW {
            break;
        }
        ensure!(since.elapsed() < weir_tests::PATIENCE, "not seen");
    }
    Ok(first)
}

async fn state_seen_after(stack: &Stack, sale: &str, expected: &str) -> Result<Duration> {
    let response = seen_after(stack, async |gateway| {
        let status = http::get(&format!("{gateway}/sales/{sale}")).await?;
        Ok(status.json()?["state"] == expected)
    });
    response.await.context(expected.to_owned())
}

async fn two_gateways(sale: &str) -> Result<Stack> {
    let mut stack = Stack::builder().workers(2).key_prefix(sale).start().await?;
    stack.start_gateway(GatewayOptions::default()).await?;
    stack.open_sale(sale, 5, 2).await?;
    assert_eq!(verdict(&buy(&stack, sale, "alice").await?), "granted");
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_sees_a_switch_within_500_ms() -> Result<()> {
    let stack = two_gateways("switch").await?;
    let mut observed = Vec::new();
    for _ in 0..TRIES {
        for (switch, state, expected) in [
            ("closed", "closed", "closed"),
            ("open", "running", "cap_reached"),
        ] {
            switch_all(&stack, switch).await?;
            observed.push(state_seen_after(&stack, "switch", state).await?);
            assert_eq!(verdict(&buy(&stack, "switch", "alice").await?), expected);
        }
    }
    let in_time = observed
        .iter()
        .filter(|observed| **observed <= SEEN_WITHIN)
        .count();
    assert!(in_time >= TRIES, "{in_time} in time: {observed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_supports_drain_static_page_and_shadow_modes() -> Result<()> {
    let stack = two_gateways("modes").await?;

    switch(&stack, "modes", json!({ "state": "drain" })).await?;
    state_seen_after(&stack, "modes", "draining").await?;
    let late = buy(&stack, "modes", "bob").await?;
    assert_eq!((late.status, verdict(&late)), (403, "draining"));

    let page = json!({ "state": "open", "degrade": { "static_page": true } });
    switch(&stack, "modes", page).await?;
    let requests = AtomicUsize::new(0);
    seen_after(&stack, async |gateway| {
        // A different user each time: in a draining sale, the gate queries Redis for the user's claim, which is rate
        // limited.
        let user = format!("bob-{}", requests.fetch_add(1, Ordering::Relaxed));
        let headers = [("x-user-id", user.as_str())];
        let url = format!("{gateway}/sales/modes/orders");
        let answer = http::send(Method::POST, &url, &headers, "").await?;
        let is_page = verdict(&answer) == "static_page";
        ensure!(!is_page || (answer.status == 503 && answer.header("retry-after").is_some()));
        ensure!(is_page || verdict(&answer) == "draining", answer.text());
        Ok(is_page)
    })
    .await?;

    // The page stays until it is disabled and the last worker has applied that: in shadow mode, only the origin
    // answers.
    let shadow = json!({ "state": "shadow", "degrade": { "static_page": false } });
    switch(&stack, "modes", shadow).await?;
    seen_after(&stack, async |gateway| {
        let url = format!("{gateway}/sales/modes/orders");
        let response = http::send(Method::POST, &url, &[], "").await?;
        let is_origins = verdict(&response).is_empty();
        ensure!(
            !is_origins || response.json()?["error"] == "invalid_user",
            response.text()
        );
        Ok(response.status == 401 && is_origins)
    })
    .await?;
    // With a unit, the origin makes an order; without a claim, it refuses as the gate would have.
    let bought = buy(&stack, "modes", "bob").await?;
    assert_eq!((bought.status, verdict(&bought)), (201, ""));
    let stat = "wasmcustom.weir_seckill_gate_shadow_total.verdict.granted";
    until("the gateway has told", async || {
        stack.envoy.stat(stat).await.is_ok_and(|count| count == 1)
    })
    .await?;
    assert_eq!(stock_balance(&stack, "modes").await?.orders, 2);
    Ok(())
}

/// The status of a real sale: a countdown, and later "sold out".
#[tokio::test(flavor = "multi_thread")]
async fn sale_status_shows_remaining_units() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("status")
        .start()
        .await?;
    stack.open_sale("status", 1, 1).await?;
    let url = format!("{}/sales/status", stack.gateway_url());
    let state = async || -> Result<String> {
        let status = http::get(&url).await?.json()?;
        Ok(status["state"].as_str().context("no state")?.to_owned())
    };
    assert_eq!(state().await?, "running");
    assert_eq!(verdict(&buy(&stack, "status", "alice").await?), "granted");
    until("sold out is known", async || {
        let _ = buy(&stack, "status", "bob").await;
        state().await.is_ok_and(|state| state == "sold_out")
    })
    .await
}
