//! Everything that breaks, in the middle of a rush. Each test ends with exactly the stock sold.
//!
//! The crowd does not give up, as people do not; what it cannot ask for again, because a gateway
//! died with it, comes back when the claim ends.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::Connection;
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::fault::Fault;
use weir_stack::redis::RedisKind;
use weir_tests::{Crowd, Verdicts, faulty, sold_out_exactly, users};

const STOCK: u64 = 600;
const SHARDS: u32 = 4;
const USERS: usize = 1_200;
const CONNECTIONS: usize = 32;

/// How long a part stays away: longer than the gateway's time limits for a call.
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
    let books = sold_out_exactly(stack, sale).await?;
    assert_eq!(books.orders, STOCK, "{verdicts:?}");
    stack.check_children()?;
    Ok(verdicts)
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_with_an_append_only_file() -> Result<()> {
    let mut stack = faulty("kept").start().await?;
    let crowd = rush(&stack, "kept").await?;
    let redis = stack.redis.as_mut().context("its own Redis")?;
    redis.kill();
    sleep(AWAY).await;
    redis.start_again().await?;
    end(&mut stack, "kept", crowd).await?;
    Ok(())
}

/// Everything in it is lost: stock, claims, who has bought. SQL knows what was ordered, and the origin
/// rebuilds the rest from that.
#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_without_any_file() -> Result<()> {
    let mut stack = faulty("lost")
        .redis_kind(RedisKind::Forgetful)
        .start()
        .await?;
    let crowd = rush(&stack, "lost").await?;
    let redis = stack.redis.as_mut().context("its own Redis")?;
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

/// Several times, so that it dies before and after commits: of 32 buyers at once, each is somewhere
/// else on the way.
#[tokio::test(flavor = "multi_thread")]
async fn the_origin_killed_three_times() -> Result<()> {
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

/// A sale whose way to Redis suffers from `fault` for a while.
async fn redis_behind(prefix: &str, fault: Fault) -> Result<()> {
    let mut stack = faulty(prefix).faults_before_redis().start().await?;
    let crowd = rush(&stack, prefix).await?;
    let proxy = stack.redis_faults.as_ref().context("a proxy")?;
    proxy.set(fault);
    sleep(AWAY).await;
    proxy.set(Fault::Pass);
    end(&mut stack, prefix, crowd).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_redis_delayed_but_in_time() -> Result<()> {
    redis_behind("slow", Fault::Delay(Duration::from_millis(100))).await
}

/// Later than `deadline_ms`: the gateway has given up each call whose reply comes.
#[tokio::test(flavor = "multi_thread")]
async fn replies_of_redis_delayed_beyond_the_deadline() -> Result<()> {
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

/// The orders are made, and nobody hears of them.
#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_origin_swallowed_and_cut() -> Result<()> {
    let mut stack = faulty("unheard").faults_before_origin().start().await?;
    let crowd = rush(&stack, "unheard").await?;
    let proxy = stack.origin_faults.as_ref().context("a proxy")?;
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
async fn sql_locked_for_seconds() -> Result<()> {
    let mut stack = faulty("locked").start().await?;
    let crowd = rush(&stack, "locked").await?;
    let url = format!("sqlite://{}", stack.database_path.display());
    let mut sql = sqlx::SqliteConnection::connect(&url).await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut sql).await?;
    sleep(Duration::from_secs(3)).await;
    sqlx::query("ROLLBACK").execute(&mut sql).await?;
    end(&mut stack, "locked", crowd).await?;
    Ok(())
}
