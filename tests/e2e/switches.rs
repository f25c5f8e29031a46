//! Switches at run time, as every worker sees them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use weir_core::sale::{Catalogue, SaleState};
use weir_stack::Stack;
use weir_stack::http;
use weir_tests::{books, buy, verdict};

/// The catalogue as a test wants it, for as long as this lives: the origin's own publishing is written
/// over at once.
pub(crate) struct Overridden(JoinHandle<()>);

impl Drop for Overridden {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn override_catalogue(
    stack: &Stack,
    change: impl FnOnce(&mut Catalogue),
) -> Result<Overridden> {
    let key = weir_scripts::keys::catalogue(&stack.key_prefix);
    let mut redis = weir_stack::redis::connect(&stack.redis_url).await?;
    let bytes: Vec<u8> = redis::cmd("GET").arg(&key).query_async(&mut redis).await?;
    let mut catalogue: Catalogue = serde_json::from_slice(&bytes)?;
    change(&mut catalogue);
    let bytes = serde_json::to_vec(&catalogue)?;
    let mut set = redis::cmd("SET");
    set.arg(key).arg(bytes);
    set.query_async::<()>(&mut redis).await?;
    Ok(Overridden(tokio::spawn(async move {
        while set.query_async::<()>(&mut redis).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })))
}

/// How long it takes until the sale has stood so at so many requests in a row: enough to have met all
/// workers.
async fn seen_after(stack: &Stack, expected: &str) -> Result<Duration> {
    let url = format!("{}/sales/switch", stack.gateway_url);
    let since = Instant::now();
    let (mut in_a_row, mut first) = (0, since.elapsed());
    while in_a_row < 40 {
        let status = http::get(&url).await?;
        if status.json()?["state"] != expected {
            in_a_row = 0;
            first = since.elapsed();
        } else {
            in_a_row += 1;
        }
        anyhow::ensure!(since.elapsed() < weir_tests::PATIENCE, "never {expected}");
    }
    Ok(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_worker_sees_a_switch_within_half_a_second() -> Result<()> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("switch")
        .start()
        .await?;
    stack.open_sale("switch", 5, 2).await?;
    assert_eq!(verdict(&buy(&stack, "switch", "alice").await?), "granted");

    for (switch, state, expected) in [
        (SaleState::Closed, "closed", "closed"),
        (SaleState::Open, "running", "cap_reached"),
    ] {
        let _kept = override_catalogue(&stack, |catalogue| catalogue.switch = switch).await?;
        let seen = seen_after(&stack, state).await?;
        assert!(seen <= Duration::from_millis(500), "{state}: {seen:?}");
        assert_eq!(verdict(&buy(&stack, "switch", "alice").await?), expected);
    }

    let kept = override_catalogue(&stack, |c| c.switch = SaleState::Drain).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let late = buy(&stack, "switch", "bob").await?;
    assert_eq!((late.status, verdict(&late)), (403, "draining"));
    let status = http::get(&format!("{}/sales/switch", stack.gateway_url)).await?;
    assert_eq!(status.json()?["state"], "draining");
    drop(kept);

    let kept = override_catalogue(&stack, |c| {
        c.switch = SaleState::Open;
        c.sales[0].degrade.static_page = true;
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let page = buy(&stack, "switch", "bob").await?;
    assert_eq!((page.status, verdict(&page)), (503, "static_page"));
    assert!(page.header("retry-after").is_some());
    drop(kept);

    let _kept = override_catalogue(&stack, |c| {
        c.sales[0].degrade.static_page = false;
        c.sales[0].state = SaleState::Shadow;
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // With a unit, the origin makes an order; without a claim, it refuses by itself.
    let bought = buy(&stack, "switch", "bob").await?;
    assert_eq!((bought.status, verdict(&bought)), (201, ""));
    let nobody = buy(&stack, "switch", "").await?;
    assert_eq!((nobody.status, verdict(&nobody)), (401, ""));
    assert_eq!(books(&stack, "switch").await?.orders, 2);
    let stats = format!("{}/stats/prometheus", stack.envoy_admin_url);
    let stats = http::get(&stats).await?.text();
    let line = r#"weir_seckill_gate_shadow_total{verdict="granted"} 1"#;
    assert!(stats.contains(line), "no {line}");
    Ok(())
}

/// The statuses of the real thing: a countdown, and the word that all is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_tells_what_is_left() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("status")
        .start()
        .await?;
    stack.open_sale("status", 1, 1).await?;
    let url = format!("{}/sales/status", stack.gateway_url);
    let state = async || -> Result<String> {
        let status = http::get(&url).await?.json()?;
        Ok(status["state"].as_str().context("no state")?.to_owned())
    };
    assert_eq!(state().await?, "running");
    assert_eq!(verdict(&buy(&stack, "status", "alice").await?), "granted");
    weir_tests::until("sold out is known", async || {
        let _ = buy(&stack, "status", "bob").await;
        state().await.is_ok_and(|state| state == "sold_out")
    })
    .await
}
