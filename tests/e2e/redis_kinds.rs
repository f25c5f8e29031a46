//! The storm over every kind of Redis that the shipped files are for.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::redis::RedisKind;
use weir_tests::{Crowd, faulty, sold_out_exactly, users};

const STOCK: u64 = 300;
/// More than nodes, so that each of these has some.
const SHARDS: u32 = 8;
const USERS: usize = 3_000;
const CONNECTIONS: usize = 64;

async fn storm(stack: &mut Stack, sale: &str) -> Result<()> {
    stack.open_sale(sale, STOCK, SHARDS).await?;
    let crowd = Crowd::start(stack, sale, users(0..USERS), CONNECTIONS);
    let verdicts = crowd.finish().await?;
    assert!(verdicts.contains_key("sold_out"), "{verdicts:?}");
    assert_eq!(sold_out_exactly(stack, sale).await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_a_password() -> Result<()> {
    let mut stack = faulty("secured")
        .redis_kind(RedisKind::Secured)
        .start()
        .await?;
    storm(&mut stack, "secured").await?;
    let tls = stack
        .envoy
        .stat("cluster.weir_redis_upstream.ssl.handshake")
        .await?;
    assert!(tls > 0, "it did go over TLS");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_cluster_of_three() -> Result<()> {
    let mut stack = faulty("cluster")
        .redis_kind(RedisKind::Cluster)
        .start()
        .await?;
    storm(&mut stack, "cluster").await?;
    for node in &stack.redis_cluster {
        let calls = node.command_calls().await?;
        let scripts = calls.get("evalsha").copied().unwrap_or(0);
        ensure!(scripts > 0, "a node has no shard: {calls:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_cluster_killed() -> Result<()> {
    let mut stack = faulty("node")
        .redis_kind(RedisKind::Cluster)
        .start()
        .await?;
    stack.open_sale("node", STOCK, SHARDS).await?;
    let crowd = Crowd::start(&stack, "node", users(0..USERS), CONNECTIONS);
    crowd.until_done(USERS / 20).await?;
    stack.redis_cluster[1].kill();
    sleep(Duration::from_secs(1)).await;
    stack.redis_cluster[1].start_again().await?;
    crowd.finish().await?;
    assert_eq!(sold_out_exactly(&stack, "node").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}
