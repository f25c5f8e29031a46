//! What is measured beside a large sale, and not asserted: times depend on the machine.
//!
//! `WEIR_BUYERS=500000 cargo test --workspace --test e2e -- --ignored --nocapture large_sales`

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};
use weir_stack::envoy::{GATE, set};
use weir_stack::http::{Connection, Method};
use weir_stack::{Stack, redis};
use weir_tests::{Crowd, books, users};

const SHARDS: u32 = 16;
const CONNECTIONS: usize = 64;

/// Orders of one window, which come this far apart whatever becomes of them, and windows.
const SAMPLES: usize = 200;
const PERIOD: Duration = Duration::from_millis(40);
const WINDOWS: usize = 5;

/// Users who buy from the large sale in one go.
const CROWD: usize = 50_000;

/// Until the reconciler has looked at all that has changed.
const REST: Duration = Duration::from_secs(20);

/// Buyers of one sale, beside another that nobody has bought from and then beside the same one with its many buyers, at
/// rest; and how long the admin waits to see how that one stands.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn buyers_beside_a_resting_sale_with_many_buyers() -> Result<()> {
    let buyers: usize = std::env::var("WEIR_BUYERS").map_or(Ok(500_000), |text| text.parse())?;
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("large")
        .edit_config(|config| {
            // All come from one address.
            let rate = json!({ "rate": 1_000_000, "per": "1s", "burst": 1_000_000 });
            config.edit_filter(GATE, |json| set(json, "/limits/address", rate))
        })
        .start()
        .await?;
    stack.open_sale("big", buyers as u64 + 1, SHARDS).await?;
    stack.open_sale("small", 100_000, SHARDS).await?;
    sleep(REST).await;
    let empty = windows(&stack, "empty").await?;

    let begun = Instant::now();
    for first in (0..buyers).step_by(CROWD) {
        let users = users(first..buyers.min(first + CROWD));
        Crowd::start(&stack, "big", users, CONNECTIONS)
            .finish()
            .await?;
        println!("from {first} on: bought after {:?}", begun.elapsed());
    }
    ensure!(books(&stack, "big").await?.orders == buyers as u64);
    sleep(REST).await;
    let resting = windows(&stack, "resting").await?;
    println!(
        "p99 beside {buyers} resting buyers ÷ beside none: {:.2} (medians of {WINDOWS} windows)",
        resting / empty
    );

    let mut views = vec![];
    for _ in 0..21 {
        let asked = Instant::now();
        stack.admin(Method::GET, "/sales/big", "", 200).await?;
        views.push(asked.elapsed().as_secs_f64() * 1_000.0);
    }
    println!("GET /sales/big: {:.1} ms (median of 21)", median(views));
    let mut connection = redis::connect(stack.redis_url()).await?;
    let scripts: String = ::redis::cmd("LATENCY")
        .arg(&["HISTOGRAM", "eval", "evalsha"])
        .query_async::<::redis::Value>(&mut connection)
        .await
        .map(|histogram| format!("{histogram:?}"))?;
    println!("scripts, by their longest times: {scripts}");
    println!("the largest key: {}", largest_key(&mut connection).await?);
    Ok(())
}

/// The median of the windows' p99, in milliseconds.
async fn windows(stack: &Stack, name: &str) -> Result<f64> {
    let mut p99s = vec![];
    for window in 0..WINDOWS {
        let mut times = orders(stack, &format!("{name}-{window}")).await?;
        times.sort_by(f64::total_cmp);
        let at = |permille: usize| times[times.len() * permille / 1_000];
        println!("{name}: p50 {:.2} ms, p99 {:.2} ms", at(500), at(990));
        p99s.push(at(990));
    }
    Ok(median(p99s))
}

/// How long each of some orders from the small sale takes, from when it is due.
async fn orders(stack: &Stack, name: &str) -> Result<Vec<f64>> {
    let mut connection = Connection::open(&stack.gateway_authority()).await?;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut times = Vec::with_capacity(SAMPLES);
    for n in 0..SAMPLES {
        let due = ticks.tick().await;
        let user = format!("{name}-{n}");
        let headers = [("x-user-id", user.as_str())];
        let path = "/sales/small/orders";
        let answer = connection.send(Method::POST, path, &headers, "").await?;
        ensure!(answer.status == 201, "{answer:?}");
        times.push(due.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(times)
}

/// Of those of the big sale: its name and bytes.
async fn largest_key(connection: &mut ::redis::aio::MultiplexedConnection) -> Result<String> {
    let (mut cursor, mut largest) = (0_u64, (0_u64, String::new()));
    loop {
        let mut scan = ::redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg("large:{big:*")
            .arg("COUNT")
            .arg(1_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(connection).await?;
        for key in keys {
            let mut usage = ::redis::cmd("MEMORY");
            let bytes: u64 = usage.arg("USAGE").arg(&key).query_async(connection).await?;
            largest = largest.max((bytes, key));
        }
        cursor = next;
        if cursor == 0 {
            return Ok(format!("{} with {} bytes", largest.1, largest.0));
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
