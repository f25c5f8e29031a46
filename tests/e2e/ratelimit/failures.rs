//! Redis slow, silent, or down: each rule applies its `on_store_error` mode, and recovers afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_stack::fault::Fault;
use weir_stack::http::{Connection, Method, Response};
use weir_tests::{Limiters, PATIENCE, RedisPath, Setup, rests, until};

use super::config;

/// No request may wait this long, which is much longer than the deadline of 20 ms.
const LONG: Duration = Duration::from_secs(5);

/// Much longer than the deadline, but shorter than Envoy's own timeout, so a waiting request would get Redis' reply.
const LATE: Duration = Duration::from_millis(600);

const BURST: usize = 5;

/// Two workers, and one rule per `on_store_error` mode, selected by path.
async fn limiters() -> Result<Limiters> {
    let rule = |route: &str| {
        format!(
            r#"{{ "name": "{route}", "match": {{ "path": {{ "exact": "/{route}" }} }}, "key": ["user"],
              "store": "redis", "on_store_error": "{route}",
              "limit": {{ "rate": 1, "per": "1h", "burst": {BURST} }} }}"#
        )
    };
    let rules = ["open", "closed", "local"].map(rule);
    // As in the shipped file: rules may be in Redis, too, so polls continue during an outage.
    let more = r#""redis": { "deadline_ms": 20 }, "reload": true"#;
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::Faults,
        config: &config(&rules, more),
    };
    setup.start().await
}

async fn ask(limiters: &Limiters, route: &str, user: &str) -> Result<Response> {
    let started = Instant::now();
    let mut connection = Connection::open(&limiters.authority(0)).await?;
    let headers = [("x-user-id", user)];
    let path = format!("/{route}");
    let answer = connection.send(Method::GET, &path, &headers, "");
    let answer = tokio::time::timeout(LONG, answer)
        .await
        .context("no answer")??;
    ensure!(started.elapsed() < LONG, "late");
    Ok(answer)
}

/// The counter of a breaker's state.
async fn entered(limiters: &Limiters, state: &str) -> Result<u64> {
    let name = format!("redis_breaker_total.state.{state}");
    limiters.count(&name).await
}

/// Waits until Redis decides: only then a rule that fails closed passes any request.
async fn until_redis_decides(limiters: &Limiters, user: &str) -> Result<()> {
    let number = std::sync::atomic::AtomicUsize::new(0);
    let next = || {
        let n = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        format!("{user}-{n}")
    };
    // Several in sequence, to reach both workers.
    until("Redis decides", async || {
        for _ in 0..8 {
            let answer = ask(limiters, "closed", &next()).await;
            if !answer.is_ok_and(|answer| answer.status == 200) {
                return false;
            }
        }
        true
    })
    .await
}

/// Checks the answers while Redis does not decide. `user` must be new.
async fn outage(limiters: &mut Limiters, user: &str) -> Result<()> {
    let opened = entered(limiters, "open").await?;
    for _ in 0..4 * BURST {
        let answer = ask(limiters, "open", user).await?;
        assert_eq!(answer.status, 200, "{user}: {}", answer.text());
    }
    for n in 0..4 * BURST {
        let answer = ask(limiters, "closed", &format!("{user}-{n}")).await?;
        assert_eq!(answer.status, 503, "{user}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()?["error"], "unavailable");
    }
    let mut passed = 0;
    for _ in 0..4 * BURST {
        let answer = ask(limiters, "local", user).await?;
        ensure!(matches!(answer.status, 200 | 429), "{}", answer.text());
        passed += usize::from(answer.status == 200);
    }
    assert_eq!(passed, BURST, "{user}: the gateway counts by itself");
    // Until the breaker opens, each request waits for its deadline; afterwards, none does.
    let deadline = Instant::now() + PATIENCE;
    while entered(limiters, "open").await? == opened {
        ensure!(Instant::now() < deadline, "the breaker stays closed");
        ask(limiters, "open", user).await?;
    }
    rests(limiters.envoys[0].process().pid().context("Envoy runs")?).await?;
    limiters.check()
}

/// Checks an outage and the recovery.
async fn survives(
    limiters: &mut Limiters,
    name: &str,
    begin: impl AsyncFn(&mut Limiters) -> Result<()>,
    end: impl AsyncFn(&mut Limiters) -> Result<()>,
) -> Result<()> {
    until_redis_decides(limiters, &format!("before-{name}")).await?;
    let pid = limiters.envoys[0].process().pid();
    let fallbacks = limiters.count("fallback_total.rule.open").await?;
    begin(limiters).await?;
    outage(limiters, name).await?;
    let least = fallbacks + 4 * BURST as u64;
    limiters
        .count_reaching("fallback_total.rule.open", least)
        .await?;
    limiters
        .count_reaching("store_error_total.rule.open", 1)
        .await?;
    let closed = entered(limiters, "closed").await?;
    end(limiters).await?;
    until_redis_decides(limiters, &format!("after-{name}")).await?;
    until("the breaker has closed", async || {
        entered(limiters, "closed")
            .await
            .is_ok_and(|now| now > closed)
    })
    .await?;
    assert_eq!(limiters.envoys[0].process().pid(), pid, "without a restart");
    limiters.check()
}

async fn survives_fault(name: &str, fault: Fault) -> Result<()> {
    let mut limiters = limiters().await?;
    let set = |limiters: &mut Limiters, fault| {
        let proxy = limiters.faults.as_ref().context("a proxy")?;
        proxy.set(fault);
        anyhow::Ok(())
    };
    let begin = async |limiters: &mut Limiters| set(limiters, fault);
    let end = async |limiters: &mut Limiters| set(limiters, Fault::Pass);
    survives(&mut limiters, name, begin, end).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_survive_late_redis_replies() -> Result<()> {
    survives_fault("late", Fault::Delay(LATE)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_redis_swallowed() -> Result<()> {
    survives_fault("swallowed", Fault::Swallow).await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_redis_cut() -> Result<()> {
    survives_fault("cut", Fault::Cut).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_survive_a_redis_restart() -> Result<()> {
    let mut limiters = limiters().await?;
    let begin = async |limiters: &mut Limiters| {
        limiters.redis()?.kill();
        Ok(())
    };
    let end = async |limiters: &mut Limiters| limiters.redis()?.start_again().await;
    survives(&mut limiters, "killed", begin, end).await
}
