//! Several gateways on one Redis, with more requests than the limit allows.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use weir_stack::http::{Connection, Method};
use weir_tests::{Limiters, RedisPath, Setup};

use super::{PATIENT, config};

const RATE_PER_S: u64 = 100;
const BURST: u64 = 100;
const OFFERED_PER_S: u64 = 5 * RATE_PER_S;
const LASTS: Duration = Duration::from_secs(10);

const GATEWAYS: usize = 2;
const WORKERS: u32 = 2;

/// Connections per gateway, enough for both its workers to get some.
const CONNECTIONS: usize = 8;

/// The maximum size of a slice.
const SLICE: u64 = 10;

async fn limiters(limit: &str, lease: &str) -> Result<Limiters> {
    let rule = format!(
        r#"{{ "name": "all", "store": "redis", "on_store_error": "closed", "limit": {limit}{lease} }}"#
    );
    let setup = Setup {
        gateways: GATEWAYS,
        workers: WORKERS,
        redis: RedisPath::Straight,
        config: &config(&[rule], PATIENT),
    };
    setup.start().await
}

/// The results of a crowd with a constant rate, independent of the answers.
struct CrowdFigures {
    passed: u64,
    limited: u64,
    /// From before the first request until after the last answer: an upper bound for recovered units.
    lasted: Duration,
    /// Until the last refused request: a lower bound for units that recovered and were all used.
    used_up_after: Duration,
}

/// Sends [`OFFERED_PER_S`] requests to all gateways for [`LASTS`].
async fn overload(limiters: &Limiters) -> Result<CrowdFigures> {
    let lines = GATEWAYS * CONNECTIONS;
    let every = Duration::from_secs(lines as u64) / OFFERED_PER_S as u32;
    let mut connections = Vec::new();
    for line in 0..lines {
        let authority = limiters.authority(line % GATEWAYS);
        connections.push(Connection::open(&authority).await?);
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        tasks.spawn(async move {
            // Delayed requests catch up, as in a crowd.
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let (mut passed, mut limited, mut used_up_after) = (0, 0, Duration::ZERO);
            while started.elapsed() < LASTS {
                ticks.tick().await;
                let sent_after = started.elapsed();
                match connection.send(Method::GET, "/", &[], "").await?.status {
                    200 => passed += 1,
                    429 => (limited, used_up_after) = (limited + 1, sent_after),
                    status => anyhow::bail!("{status}"),
                }
            }
            anyhow::Ok((passed, limited, used_up_after))
        });
    }
    let (mut passed, mut limited, mut used_up_after) = (0, 0, Duration::ZERO);
    while let Some(line) = tasks.join_next().await {
        let line = line??;
        (passed, limited) = (passed + line.0, limited + line.1);
        used_up_after = used_up_after.max(line.2);
    }
    let lasted = started.elapsed();
    let offered = u128::from(passed + limited) * 1_000;
    ensure!(
        offered >= u128::from(3 * RATE_PER_S) * lasted.as_millis(),
        "no overload: {} requests in {lasted:?}",
        passed + limited
    );
    for envoy in &limiters.envoys {
        let tasks = envoy.stat("http.gateway.downstream_rq_total").await?;
        ensure!(tasks > passed / 4, "both gateways work: {tasks}");
    }
    Ok(CrowdFigures {
        passed,
        limited,
        lasted,
        used_up_after,
    })
}

/// The maximum that may pass in a time, rounded up.
fn limit(lasted: Duration) -> u64 {
    BURST + (lasted.as_millis() as u64 * RATE_PER_S).div_ceil(1_000)
}

/// On a machine that stalls, the crowd may stop before the gateways do. Units that recover later have no demand.
fn assert_nearly_all_passed(observed: &CrowdFigures) {
    let (passed, limit) = (observed.passed, limit(observed.used_up_after));
    assert!(passed * 100 >= limit * 98, "{passed} of {limit}");
}

fn limit_config() -> String {
    format!(r#"{{ "rate": {RATE_PER_S}, "per": "1s", "burst": {BURST} }}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_admit_nearly_the_limit_and_never_more() -> Result<()> {
    let mut limiters = limiters(&limit_config(), "").await?;
    let observed = overload(&limiters).await?;
    let limit = limit(observed.lasted);
    println!(
        "{} of {limit}, {} limited",
        observed.passed, observed.limited
    );
    assert!(observed.passed <= limit, "{} of {limit}", observed.passed);
    assert_nearly_all_passed(&observed);
    let counted = limiters
        .count_reaching("allowed_total.rule.all", observed.passed)
        .await?;
    assert_eq!(counted, observed.passed);
    limiters.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_admit_at_most_the_limit_plus_one_slice_per_worker() -> Result<()> {
    let lease = format!(r#", "lease": {{ "max": {SLICE}, "lasts": "500ms" }}"#);
    let mut limiters = limiters(&limit_config(), &lease).await?;
    let observed = overload(&limiters).await?;
    let slices = SLICE * u64::from(WORKERS) * GATEWAYS as u64;
    let limit = limit(observed.lasted);
    println!("{} of {limit} and {slices}", observed.passed);
    assert!(
        observed.passed <= limit + slices,
        "{} of {limit} and {slices}",
        observed.passed
    );
    assert_nearly_all_passed(&observed);
    limiters.check()
}

/// The number of script calls to pass `requests` requests, sequentially on each connection.
async fn script_calls_for(requests: u64, lease: &str) -> Result<u64> {
    let limit = r#"{ "rate": 1000000, "per": "1s" }"#;
    let mut limiters = limiters(limit, lease).await?;
    let mut tasks = JoinSet::new();
    for line in 0..GATEWAYS * CONNECTIONS {
        let authority = limiters.authority(line % GATEWAYS);
        tasks.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            for _ in 0..requests / (GATEWAYS * CONNECTIONS) as u64 {
                let answer = connection.send(Method::GET, "/", &[], "").await?;
                ensure!(answer.status == 200, "{}", answer.status);
            }
            Ok(())
        });
    }
    while let Some(line) = tasks.join_next().await {
        line??;
    }
    assert_eq!(
        limiters
            .count_reaching("allowed_total.rule.all", requests)
            .await?,
        requests
    );
    assert_eq!(limiters.count("fallback_total.rule.all").await?, 0);
    limiters.script_calls().await
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_save_script_calls() -> Result<()> {
    const REQUESTS: u64 = 4_800;
    let without = script_calls_for(REQUESTS, "").await?;
    let with = script_calls_for(REQUESTS, r#", "lease": { "max": 100, "lasts": "1s" }"#).await?;
    println!("{without} script calls without leases, {with} with them");
    assert!(with > 0);
    assert!(with * 4 <= without, "{with} of {without}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_reach_redis_together_share_commands() -> Result<()> {
    const REQUESTS: usize = 8_000;
    const LINES: usize = 128;
    let rule = r#"{ "name": "per-user", "key": ["user"], "store": "redis", "on_store_error": "closed",
        "limit": { "rate": 1000000, "per": "1s" } }"#;
    let setup = Setup {
        gateways: 1,
        workers: 1,
        redis: RedisPath::Straight,
        config: &config(&[rule.into()], PATIENT),
    };
    let mut limiters = setup.start().await?;
    let mut tasks = JoinSet::new();
    for line in 0..LINES {
        let (authority, user) = (limiters.authority(0), format!("user-{line}"));
        tasks.spawn(async move {
            let mut connection = Connection::open(&authority).await?;
            for _ in 0..REQUESTS / LINES {
                let headers = [("x-user-id", user.as_str())];
                let answer = connection.send(Method::GET, "/", &headers, "").await?;
                ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
            }
            Ok(())
        });
    }
    while let Some(line) = tasks.join_next().await {
        line?.context("a connection")?;
    }
    let requests = (REQUESTS / LINES * LINES) as u64;
    let counted = limiters
        .count_reaching("allowed_total.rule.per-user", requests)
        .await?;
    assert_eq!(counted, requests, "all were decided by Redis");
    let commands = limiters.script_calls().await?;
    println!("{commands} commands for {requests} requests");
    assert!(
        commands * 20 <= requests,
        "{commands} commands for {requests} requests"
    );
    Ok(())
}
