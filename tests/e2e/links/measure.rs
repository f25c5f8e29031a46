//! Measurements of links without assertions: times depend on the machine.
//!
//! `cargo test --release --workspace --test e2e -- --ignored --nocapture links::measure`

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use weir_load::{Outcome, Pace, Plan, RunMark};
use weir_tests::{LinkSetup, until};

use super::{SHIPPED, TARGET};

/// Rounds per link.
const TURNS: usize = 7;

/// A gateway's latency for a link that it loaded while Redis was down, compared with one that it loaded before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn speed_of_a_link_cached_during_redis_outage_is_measured() -> Result<()> {
    let setup = LinkSetup {
        workers: 1,
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let [before, reading] = [
        gateways.create(TARGET, json!({})).await?,
        gateways.create(TARGET, json!({})).await?,
    ];
    gateways.location(0, &before).await?;
    gateways.redis.stop();
    let asked_at = Instant::now();
    until("the origin tells of it", async || {
        gateways.location(0, &reading).await.is_ok()
    })
    .await?;
    println!("first answer after {:?}", asked_at.elapsed());
    let server: SocketAddr = gateways.authority(0).parse()?;
    let mut ratios = vec![];
    for _ in 0..TURNS {
        let rates = [&before, &reading].map(|code| measure(server, code));
        let [existing, reply] = rates;
        let (existing, reply) = (existing?, reply?);
        let ratio = reply.rate() / existing.rate();
        println!(
            "known before: {:.0}/s, p50 {:.2} ms; learnt: {:.0}/s, p50 {:.2} ms, p99 {:.2} ms; ratio {ratio:.3}",
            existing.rate(),
            existing.latencies.percentile_ms(50.0),
            reply.rate(),
            reply.latencies.percentile_ms(50.0),
            reply.latencies.percentile_ms(99.0),
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio: {:.3} (median of {TURNS})", ratios[TURNS / 2]);
    gateways.check()
}

fn measure(server: SocketAddr, code: &str) -> Result<Outcome> {
    let plan = Plan {
        server,
        connections: 64,
        pace: Pace::Closed,
        warm_up: Duration::from_millis(300),
        window: Duration::from_secs(2),
        core: None,
    };
    let text = format!("GET /{code} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    let mut request = |_, bytes: &mut Vec<u8>| bytes.extend_from_slice(text.as_bytes());
    let outcome = weir_load::run(&plan, &mut request, &mut |_: RunMark| {})?;
    let redirects: Vec<u16> = outcome.statuses.keys().copied().collect();
    ensure!(redirects == [302], "{:?}", outcome.statuses);
    Ok(outcome)
}
