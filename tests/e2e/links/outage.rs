//! Without Redis, without the origin, and without both.

use anyhow::Result;
use serde_json::json;
use weir_tests::until;

use super::{SHIPPED, TARGET};

/// Clicks until each worker knows the link: connections meet any of them.
const CLICKS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn links_outlive_a_redis_that_has_lost_everything() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let hot = gateways.create(TARGET, json!({})).await?;
    let cold = gateways.create("https://cold.example/", json!({})).await?;
    assert_eq!(gateways.location(0, &hot).await?, TARGET);
    let mut connection = gateways.redis.connection().await?;
    redis::cmd("FLUSHALL")
        .query_async::<()>(&mut connection)
        .await?;
    // From the cold store, through the origin; and then from Redis, where the origin has put it again.
    assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    // A worker tells what it has counted with its next tick.
    until("the origin was asked", async || {
        let lookups = gateways.count("lookups_total").await;
        lookups.is_ok_and(|lookups| lookups >= 1)
    })
    .await?;
    // Redis is gone altogether.
    gateways.redis.stop();
    assert_eq!(gateways.location(0, &cold).await?, "https://cold.example/");
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_origin_what_is_in_redis_resolves_and_without_both_what_is_cached() -> Result<()>
{
    let mut gateways = SHIPPED.start().await?;
    let hot = gateways.create(TARGET, json!({})).await?;
    let warm = gateways.create("https://warm.example/", json!({})).await?;
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    gateways.origin.process().kill();
    // It was never asked for at this gateway: Redis has it.
    assert_eq!(gateways.location(0, &warm).await?, "https://warm.example/");
    let unknown = gateways.ask(0, "/nowhere", &[]).await?;
    assert_eq!(
        (unknown.status, unknown.header("retry-after")),
        (503, Some("1"))
    );
    gateways.redis.stop();
    for _ in 0..CLICKS {
        assert_eq!(gateways.location(0, &hot).await?, TARGET);
    }
    until("neither can be asked", async || {
        let answer = gateways.ask(0, "/anything", &[]).await;
        answer.is_ok_and(|answer| answer.status == 503)
    })
    .await?;
    // Both come back, and what Redis has forgotten the cold store has.
    gateways.redis.start_again().await?;
    gateways.origin.start_again().await?;
    until("it resolves again", async || {
        let location = gateways.location(0, &warm).await;
        location.is_ok_and(|at| at == "https://warm.example/")
    })
    .await?;
    gateways.check()
}
