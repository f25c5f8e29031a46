//! Faults of every part during a rush. Each test ends with exactly the stock sold.
//!
//! The crowd keeps retrying, like people. Claims that it cannot request again, because a gateway died with them,
//! expire.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::{Connection, SqliteConnection};
use tokio::task::JoinSet;
use tokio::time::sleep;
use weir_base::id::SaleId;
use weir_sale::redis::keys::ShardKeys;
use weir_stack::envoy::{GATE, set};
use weir_stack::fault::Fault;
use weir_stack::http::{self, Method, Response};
use weir_stack::redis::RedisKind;
use weir_stack::{Builder, Stack};
use weir_tests::{Crowd, Verdicts, buy, faulty, sold_out_exactly, until, users, verdict};

const STOCK: u64 = 600;
const SHARDS: u32 = 4;
const USERS: usize = 1_200;
const CONNECTIONS: usize = 32;

/// How long a part is down: longer than the gateway's time limits for a call.
const AWAY: Duration = Duration::from_millis(1_500);

/// Opens the sale and lets the crowd run until a part of it is served.
async fn rush(stack: &Stack, sale: &str) -> Result<Crowd> {
    stack.open_sale(sale, STOCK, SHARDS).await?;
    let crowd = Crowd::start(stack, sale, users(0..USERS), CONNECTIONS);
    crowd.until_done(USERS / 10).await?;
    Ok(crowd)
}

/// Waits for the crowd and then for the last unit.
async fn end(stack: &mut Stack, sale: &str, crowd: Crowd) -> Result<Verdicts> {
    let verdicts = crowd.finish().await?;
    let balance = sold_out_exactly(stack, sale).await?;
    assert_eq!(balance.orders, STOCK, "{verdicts:?}");
    stack.check_children()?;
    Ok(verdicts)
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_redis_crash_with_append_only_file() -> Result<()> {
    let mut stack = faulty("kept").start().await?;
    let crowd = rush(&stack, "kept").await?;
    let redis = stack.redis.server.as_mut().context("its own Redis")?;
    redis.kill();
    sleep(AWAY).await;
    redis.start_again().await?;
    end(&mut stack, "kept", crowd).await?;
    Ok(())
}

/// Redis loses everything: stock, claims, and users' orders. SQL has the orders, and the origin rebuilds the rest from
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_redis_crash_without_persistence() -> Result<()> {
    let mut stack = faulty("lost")
        .redis_kind(RedisKind::Forgetful)
        .start()
        .await?;
    let crowd = rush(&stack, "lost").await?;
    let redis = stack.redis.server.as_mut().context("its own Redis")?;
    redis.kill();
    sleep(AWAY).await;
    redis.start_again().await?;
    end(&mut stack, "lost", crowd).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_killed() -> Result<()> {
    let mut stack = faulty("envoy").start().await?;
    let crowd = rush(&stack, "envoy").await?;
    stack.envoy.process().kill();
    sleep(AWAY).await;
    stack.envoy.start_again().await?;
    end(&mut stack, "envoy", crowd).await?;
    Ok(())
}

/// Killed several times, so that it dies before and after commits: 32 concurrent buyers are at different stages.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_three_origin_crashes() -> Result<()> {
    let mut stack = faulty("shot").start().await?;
    let crowd = rush(&stack, "shot").await?;
    for part in [2, 3, 4] {
        stack.origin.process().kill();
        sleep(AWAY / 3).await;
        stack.origin.start_again().await?;
        crowd.until_done(USERS * part / 10).await?;
    }
    end(&mut stack, "shot", crowd).await?;
    Ok(())
}

/// Buyers whose orders are all at the same stage when the origin dies.
const CAUGHT: usize = 16;

/// A claim of these tests outlives a restart, and ends while the test still waits.
const LONG_TTL_MS: u64 = 10_000;

fn long_claims(prefix: &str) -> Builder {
    Stack::builder().key_prefix(prefix).edit_config(|config| {
        config
            .edit_filter(GATE, |json| set(json, "/claim/ttl_ms", LONG_TTL_MS))?
            .route_timeouts("1s")
    })
}

async fn sql(stack: &Stack) -> Result<SqliteConnection> {
    let url = format!("sqlite://{}", stack.database_path().display());
    Ok(SqliteConnection::connect(&url).await?)
}

/// Every order in SQL with its user. The origin need not run.
async fn orders(stack: &Stack) -> Result<Vec<(String, String)>> {
    let select = "SELECT user_id, id FROM orders ORDER BY user_id";
    let mut sql = sql(stack).await?;
    Ok(sqlx::query_as(select).fetch_all(&mut sql).await?)
}

/// Open claims in Redis. The origin need not run.
async fn open_claims(stack: &Stack, sale: &str) -> Result<usize> {
    let sale = SaleId::new(sale).context("a sale's id")?;
    let mut redis = stack.redis.access.connect().await?;
    let mut open = 0;
    for shard in 0..SHARDS {
        let pending = ShardKeys::new(&stack.key_prefix, &sale, shard).pending();
        let mut count = redis::cmd("ZCARD");
        open += count.arg(pending).query_async::<usize>(&mut redis).await?;
    }
    Ok(open)
}

/// SQL is locked, so no order commits before the origin dies, although all are in progress.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_origin_crash_before_commit() -> Result<()> {
    let sale = "uncommitted";
    let mut stack = long_claims(sale).start().await?;
    stack.open_sale(sale, STOCK, SHARDS).await?;
    let mut lock = sql(&stack).await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut lock).await?;
    let crowd = Crowd::start(&stack, sale, users(0..CAUGHT), CAUGHT);
    until("all orders are at the origin", async || {
        let active = stack.envoy.stat("cluster.origin.upstream_rq_active").await;
        active.is_ok_and(|active| active == CAUGHT as u64)
    })
    .await?;
    stack.origin.process().kill();
    sqlx::query("ROLLBACK").execute(&mut lock).await?;
    assert_eq!(orders(&stack).await?, [], "none was committed");
    assert_eq!(open_claims(&stack, sale).await?, CAUGHT);

    stack.origin.start_again().await?;
    let verdicts = crowd.finish().await?;
    assert_eq!(verdicts, [("granted_again".to_owned(), CAUGHT)].into());
    assert_eq!(orders(&stack).await?.len(), CAUGHT);
    let crowd = Crowd::start(&stack, sale, users(CAUGHT..USERS), CONNECTIONS);
    end(&mut stack, sale, crowd).await?;
    Ok(())
}

/// SQL has the orders, but the origin dies before it updates Redis. Half of the users retry; the others do not.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_crash_between_commit_and_redis_update() -> Result<()> {
    let sale = "unsettled";
    let mut stack = long_claims(sale).faults_behind_origin().start().await?;
    stack.open_sale(sale, STOCK, SHARDS).await?;
    let proxy = stack.faults.behind_origin.as_ref().context("a proxy")?;
    proxy.set(Fault::Lose);
    let mut buyers = JoinSet::new();
    for user in users(0..CAUGHT) {
        let url = stack.buy_url(sale);
        buyers.spawn(async move {
            let headers = [("x-user-id", user.as_str())];
            http::send(Method::POST, &url, &headers, "").await.ok();
        });
    }
    until("all orders are in SQL", async || {
        orders(&stack)
            .await
            .is_ok_and(|created| created.len() == CAUGHT)
    })
    .await?;
    stack.origin.process().kill();
    let created = orders(&stack).await?;
    assert_eq!(open_claims(&stack, sale).await?, CAUGHT, "none is settled");

    let proxy = stack.faults.behind_origin.as_ref().context("a proxy")?;
    proxy.set(Fault::Pass);
    buyers.join_all().await;
    stack.origin.start_again().await?;
    for (user, order) in &created[..CAUGHT / 2] {
        let answer = ask_until_final(&stack, sale, user).await?;
        let body = answer.json()?;
        assert_eq!(body["order"], order.as_str(), "the same order: {body}");
    }
    until("the reconciler settles the others", async || {
        open_claims(&stack, sale).await.is_ok_and(|open| open == 0)
    })
    .await?;
    assert_eq!(orders(&stack).await?, created);
    let crowd = Crowd::start(&stack, sale, users(CAUGHT..USERS), CONNECTIONS);
    end(&mut stack, sale, crowd).await?;
    Ok(())
}

/// Retries like a user whom the gateway tells to retry.
async fn ask_until_final(stack: &Stack, sale: &str, user: &str) -> Result<Response> {
    loop {
        let answer = buy(stack, sale, user).await?;
        if answer.status != 503 && verdict(&answer) != "all_reserved" {
            return Ok(answer);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A sale with `fault` between gateways and Redis for a while.
async fn redis_behind(prefix: &str, fault: Fault) -> Result<()> {
    let mut stack = faulty(prefix).faults_before_redis().start().await?;
    let crowd = rush(&stack, prefix).await?;
    let proxy = stack.faults.before_redis.as_ref().context("a proxy")?;
    proxy.set(fault);
    sleep(AWAY).await;
    proxy.set(Fault::Pass);
    end(&mut stack, prefix, crowd).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_with_redis_delays_within_the_deadline() -> Result<()> {
    redis_behind("slow", Fault::Delay(Duration::from_millis(100))).await
}

/// Longer than `deadline_ms`: each call times out before its reply arrives.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_with_redis_delays_beyond_the_deadline() -> Result<()> {
    redis_behind("late", Fault::Delay(Duration::from_millis(400))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_redis_cut() -> Result<()> {
    redis_behind("cut", Fault::Cut).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_redis_swallowed() -> Result<()> {
    redis_behind("swallowed", Fault::Swallow).await
}

/// The orders are made, but the responses are lost.
#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_with_lost_and_cut_origin_responses() -> Result<()> {
    let mut stack = faulty("unheard").faults_before_origin().start().await?;
    let crowd = rush(&stack, "unheard").await?;
    let proxy = stack.faults.before_origin.as_ref().context("a proxy")?;
    for fault in [Fault::Swallow, Fault::Cut, Fault::Swallow] {
        proxy.set(fault);
        sleep(AWAY / 2).await;
        proxy.set(Fault::Pass);
        sleep(Duration::from_millis(50)).await;
    }
    end(&mut stack, "unheard", crowd).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_while_sql_is_locked_for_seconds() -> Result<()> {
    let mut stack = faulty("locked").start().await?;
    let crowd = rush(&stack, "locked").await?;
    let mut lock = sql(&stack).await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut lock).await?;
    sleep(Duration::from_secs(3)).await;
    sqlx::query("ROLLBACK").execute(&mut lock).await?;
    end(&mut stack, "locked", crowd).await?;
    Ok(())
}
