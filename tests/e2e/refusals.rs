//! A Redis that refuses commands: a replica after a failover, a full one, one whose ACL forbids scripts, one that loses its
//! scripts again and again. Gateway and origin report the reason, nothing is lost, and both recover by themselves.

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use weir_stack::Stack;
use weir_stack::envoy::GATE;
use weir_stack::http;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};
use weir_tests::{Crowd, buy, sold_out_exactly, stock_balance, until, users, verdict};

/// This many failures open the gate's circuit breaker for Redis.
const FAILURES: u64 = 4;

async fn shop(sale: &str) -> Result<(Stack, MultiplexedConnection)> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix(sale)
        .edit_config(|config| {
            config.edit_filter(GATE, |json| {
                json["overload"] =
                    serde_json::json!({ "redis_breaker": { "min_requests": FAILURES } });
                Ok(())
            })
        })
        .start()
        .await?;
    stack.open_sale(sale, 10, 1).await?;
    let redis = weir_stack::redis::connect(stack.redis_url()).await?;
    Ok((stack, redis))
}

async fn run(redis: &mut MultiplexedConnection, command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let mut sent = redis::cmd(words.next().unwrap_or_default());
    sent.arg(words.collect::<Vec<_>>());
    let answer: redis::Value = sent.query_async(redis).await?;
    ensure!(answer == redis::Value::Okay, "{command}: {answer:?}");
    Ok(())
}

/// Buyers get 503. The gateway's log and metrics and the origin's log, metrics and `/readyz` have the reason.
async fn assert_all_say_why(stack: &mut Stack, sale: &str, reason: &str, word: &str) -> Result<()> {
    let mut opened = false;
    for n in 0..3 * FAILURES {
        let answer = buy(stack, sale, &format!("early-{n}")).await?;
        ensure!(answer.status == 503, "{}", answer.text());
        opened |= verdict(&answer) == "overloaded";
    }
    ensure!(opened, "the breaker does not open");
    let count = async |name: &str| {
        let name = format!("wasmcustom.weir_seckill_gate_{name}");
        stack.envoy.stat(&name).await.unwrap_or(0)
    };
    until("the gateway has counted it", async || {
        count(&format!("redis_refused_total.reason.{reason}")).await > 0
            && count("redis_failed_total.outcome.definite").await > 0
            && count("redis_breaker_total.state.open").await > 0
    })
    .await?;
    ensure!(
        count("redis_failed_total.outcome.unknown").await == 0,
        "nothing is in doubt"
    );
    let lines = stack.envoy.process().tail(500);
    let reply = lines.lines().filter(|line| line.contains("Redis refuses"));
    let reply: Vec<&str> = reply.collect();
    ensure!(
        (1..=2).contains(&reply.len()) && reply.iter().all(|line| line.contains(word)),
        "{reply:?}"
    );

    let admin = stack.origin.admin_url();
    until("the origin is not ready, and says why", async || {
        let answer = http::get(&format!("{admin}/readyz")).await;
        answer.is_ok_and(|answer| answer.status == 503 && answer.text().contains(word))
    })
    .await?;
    let metrics = http::get(&format!("{admin}/metrics")).await?.text();
    let name = format!("weir_origin_redis_refused_total{{reason=\"{reason}\"}} ");
    let counted = metrics.lines().find_map(|line| line.strip_prefix(&name));
    ensure!(counted.context("no counter")? != "0", "{name}{counted:?}");
    let log = std::fs::read_to_string(stack.origin.process().log())?;
    // Each log line of a failed `/readyz` also contains it.
    let begin = "\"message\":\"Redis refuses";
    let lines = log.lines().filter(|line| line.contains(begin));
    ensure!(
        lines.filter(|line| line.contains(word)).count() == 1,
        "it is said once a minute: {log}"
    );
    Ok(())
}

/// A purchase succeeds, no unit is lost, and the origin is ready.
async fn assert_recovers(stack: &mut Stack, sale: &str) -> Result<()> {
    until("a purchase goes through", async || {
        let answer = buy(stack, sale, "late").await;
        answer.is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    let stock_balance = stock_balance(stack, sale).await?;
    assert_eq!(
        (
            stock_balance.orders,
            stock_balance.held,
            stock_balance.stock
        ),
        (1, 0, 9)
    );
    let ready = http::get(&format!("{}/readyz", stack.origin.admin_url())).await?;
    assert_eq!(ready.status, 200, "{}", ready.text());
    stack.check_children()?;
    Ok(())
}

/// After a failover, the address still leads to the former primary.
#[tokio::test(flavor = "multi_thread")]
async fn demoted_primary_is_reported_as_readonly() -> Result<()> {
    let (mut stack, mut redis) = shop("demoted").await?;
    let dir = tempfile::tempdir()?;
    let port = ports::free()?;
    let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
    let other = RedisServer::start(&tool, port, dir.path(), &dir.path().join("log")).await?;
    let mut next = weir_stack::redis::connect(&format!("redis://127.0.0.1:{port}")).await?;
    let old_port = stack.redis_url().rsplit(':').next().context("a port")?;
    run(&mut next, &format!("REPLICAOF 127.0.0.1 {old_port}")).await?;
    until("the replica has it all", async || {
        let mut next = next.clone();
        let info: Result<String, _> = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut next)
            .await;
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    })
    .await?;
    run(&mut next, "REPLICAOF NO ONE").await?;
    run(&mut redis, &format!("REPLICAOF 127.0.0.1 {port}")).await?;
    until("the old primary follows the new one", async || {
        let mut redis = redis.clone();
        let info: Result<String, _> = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut redis)
            .await;
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    })
    .await?;
    assert_all_say_why(&mut stack, "demoted", "readonly", "READONLY").await?;
    run(&mut redis, "REPLICAOF NO ONE").await?;
    assert_recovers(&mut stack, "demoted").await?;
    drop(other);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn full_redis_is_reported_as_oom() -> Result<()> {
    let (mut stack, mut redis) = shop("full").await?;
    run(&mut redis, "CONFIG SET maxmemory 1").await?;
    assert_all_say_why(&mut stack, "full", "oom", "OOM").await?;
    run(&mut redis, "CONFIG SET maxmemory 0").await?;
    assert_recovers(&mut stack, "full").await
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_evalsha_is_reported_as_noperm() -> Result<()> {
    let (mut stack, mut redis) = shop("forbidden").await?;
    run(&mut redis, "ACL SETUSER default -evalsha").await?;
    assert_all_say_why(&mut stack, "forbidden", "noperm", "NOPERM").await?;
    run(&mut redis, "ACL SETUSER default +evalsha").await?;
    assert_recovers(&mut stack, "forbidden").await
}

/// Each call may need the text of its script.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_while_scripts_are_flushed_repeatedly() -> Result<()> {
    let (stack, mut redis) = shop("flushed").await?;
    let flushes = tokio::spawn(async move {
        loop {
            run(&mut redis, "SCRIPT FLUSH").await?;
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "gives the task its type")]
        Ok::<(), anyhow::Error>(())
    });
    let crowd = Crowd::start(&stack, "flushed", users(0..200), 16);
    crowd.finish().await?;
    sold_out_exactly(&stack, "flushed").await?;
    ensure!(!flushes.is_finished(), "{:?}", flushes.await);
    flushes.abort();
    let name = "wasmcustom.weir_seckill_gate_redis_refused_total.reason.noscript";
    until("the gateway has counted unknown scripts", async || {
        stack.envoy.stat(name).await.unwrap_or(0) > 0
    })
    .await?;
    let ready = http::get(&format!("{}/readyz", stack.origin.admin_url())).await?;
    assert_eq!(ready.status, 200, "{}", ready.text());
    Ok(())
}
