//! The storm with every kind of Redis that the shipped files support.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::Role;
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::native::Host;
use weir_stack::redis::{RedisKind, RedisServer};
use weir_tests::{Crowd, buy, faulty, redis_connections, sold_out_exactly, until, users, verdict};

const STOCK: u64 = 300;
/// More than the number of nodes, so that each has some.
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
async fn sale_works_with_redis_over_tls_with_a_password() -> Result<()> {
    let mut stack = faulty("secured")
        .redis_kind(RedisKind::Secured)
        .start()
        .await?;
    storm(&mut stack, "secured").await?;
    // The native module's connections are visible only in Redis, which accepts only TLS.
    if !Host::of_run().is_native() {
        let name = "cluster.weir_redis_upstream.ssl.handshake";
        let tls = stack.envoy.stat(name).await?;
        assert!(tls > 0, "it did go over TLS");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_works_with_a_redis_cluster_of_three_nodes() -> Result<()> {
    let mut stack = faulty("cluster")
        .redis_kind(RedisKind::Cluster)
        .start()
        .await?;
    storm(&mut stack, "cluster").await?;
    for node in &stack.redis.cluster {
        let calls = node.command_calls().await?;
        let scripts = calls.get("evalsha").copied().unwrap_or(0);
        ensure!(scripts > 0, "a node has no shard: {calls:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_after_a_cluster_node_restarts() -> Result<()> {
    let mut stack = faulty("node")
        .redis_kind(RedisKind::Cluster)
        .start()
        .await?;
    stack.open_sale("node", STOCK, SHARDS).await?;
    let crowd = Crowd::start(&stack, "node", users(0..USERS), CONNECTIONS);
    crowd.until_done(USERS / 20).await?;
    stack.redis.cluster[1].kill();
    sleep(Duration::from_secs(1)).await;
    stack.redis.cluster[1].start_again().await?;
    crowd.finish().await?;
    assert_eq!(sold_out_exactly(&stack, "node").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

/// The number of scripts that ran on each node of a replicated set.
async fn scripts(node: &RedisServer) -> Result<u64> {
    let calls = node.command_calls().await?;
    Ok(calls.get("evalsha").copied().unwrap_or(0) + calls.get("eval").copied().unwrap_or(0))
}

async fn role(node: &RedisServer) -> Result<Role> {
    let mut connection = node.connection().await?;
    Ok(redis::cmd("ROLE").query_async(&mut connection).await?)
}

/// Waits until Sentinel has promoted a replica; returns its index.
async fn promoted(nodes: &[RedisServer]) -> Result<usize> {
    let end = Instant::now() + PROMOTION_LIMIT;
    loop {
        for (index, node) in nodes.iter().enumerate().skip(1) {
            if matches!(role(node).await?, Role::Primary { .. }) {
                return Ok(index);
            }
        }
        ensure!(Instant::now() < end, "Sentinel has not promoted a replica");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a new user's order is accepted.
async fn first_order(stack: &Stack, sale: &str, prefix: &str) -> Result<()> {
    let end = Instant::now() + PROMOTION_LIMIT;
    for n in 0.. {
        let answer = buy(stack, sale, &format!("{prefix}-{n}")).await?;
        if answer.status == 201 {
            return Ok(());
        }
        ensure!(Instant::now() < end, "no order is accepted: {answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Sentinel's own time, which depends on its settings and the machine.
const PROMOTION_LIMIT: Duration = Duration::from_secs(30);

/// How soon after a promotion a gateway and the origin use the new primary.
const FOLLOW_LIMIT: Duration = Duration::from_secs(5);

/// More than the crowd takes, so that units remain after the failover.
const LARGE_STOCK: u64 = 2_000;

#[tokio::test(flavor = "multi_thread")]
async fn sale_follows_a_promoted_replica_and_is_exact() -> Result<()> {
    let mut stack = faulty("sentinel")
        .redis_kind(RedisKind::Replicated)
        .start()
        .await?;
    stack.open_sale("sentinel", LARGE_STOCK, SHARDS).await?;
    let crowd = Crowd::start(&stack, "sentinel", users(0..USERS), CONNECTIONS);
    crowd.until_done(USERS / 20).await?;
    let set = stack.redis.replicated.as_mut().context("no set")?;
    set.nodes[0].kill();
    let killed = Instant::now();
    let primary = promoted(&set.nodes).await?;
    let since_promotion = Instant::now();
    first_order(&stack, "sentinel", "after").await?;
    let followed = since_promotion.elapsed();
    eprintln!(
        "promoted {:?} after the kill; an order {followed:?} after the promotion",
        since_promotion.duration_since(killed),
    );
    ensure!(followed < FOLLOW_LIMIT, "followed only after {followed:?}");

    // The former primary returns as a primary, until Sentinel demotes it. No script may run there meanwhile.
    let set = stack.redis.replicated.as_mut().context("no set")?;
    set.nodes[0].start_again().await?;
    ensure!(
        matches!(role(&set.nodes[0]).await?, Role::Primary { .. }),
        "it did not return as a primary, so this test shows nothing"
    );
    let end = Instant::now() + PROMOTION_LIMIT;
    while matches!(role(&set.nodes[0]).await?, Role::Primary { .. }) {
        assert_eq!(
            scripts(&set.nodes[0]).await?,
            0,
            "a gateway or the origin uses it"
        );
        ensure!(Instant::now() < end, "Sentinel has not demoted it");
        sleep(Duration::from_millis(100)).await;
    }
    ensure!(scripts(&set.nodes[primary]).await? > 0);
    crowd.finish().await?;
    assert_eq!(
        sold_out_exactly(&stack, "sentinel").await?.orders,
        LARGE_STOCK
    );
    stack.check_children()?;
    Ok(())
}

/// The number of dropped connections during a sale.
const DROPS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn sale_is_exact_while_redis_repeatedly_drops_connections() -> Result<()> {
    let mut stack = faulty("dropped").start().await?;
    stack.open_sale("dropped", STOCK, SHARDS).await?;
    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let opened = redis_connections(&stack).await?;
    let crowd = Crowd::start(&stack, "dropped", users(0..USERS), CONNECTIONS);
    for n in 0..DROPS {
        crowd.until_done(n * USERS / DROPS).await?;
        let _: u64 = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .query_async(&mut redis)
            .await?;
    }
    crowd.finish().await?;
    // No connection closes otherwise in such a short sale, and each dropped one is replaced.
    let again = redis_connections(&stack).await? - opened;
    ensure!(
        again > DROPS as u64 / 2,
        "only {again} connections were opened again"
    );
    assert_eq!(sold_out_exactly(&stack, "dropped").await?.orders, STOCK);
    stack.check_children()?;
    Ok(())
}

/// As after a failover, when connections still lead to the former primary.
#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_demoted_redis_are_replaced() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("replica")
        .start()
        .await?;
    stack.open_sale("replica", 10, 1).await?;
    let mut redis = weir_stack::redis::connect(stack.redis_url()).await?;
    let opened = async || redis_connections(&stack).await;
    let replica_of = |of: [String; 2]| redis::cmd("REPLICAOF").arg(&of).clone();
    let unreachable = weir_stack::ports::free()?.to_string();
    let _: String = replica_of(["127.0.0.1".into(), unreachable])
        .query_async(&mut redis)
        .await?;
    let before = opened().await?;
    for n in 0..3 {
        let answer = buy(&stack, "replica", &format!("early-{n}")).await?;
        assert_eq!((answer.status, verdict(&answer)), (503, "unavailable"));
    }
    assert!(opened().await? >= before + 2, "each on a new connection");
    let _: String = replica_of(["NO".into(), "ONE".into()])
        .query_async(&mut redis)
        .await?;
    until("a purchase goes through", async || {
        buy(&stack, "replica", "late")
            .await
            .is_ok_and(|answer| matches!(answer.status, 200 | 201 | 409))
    })
    .await?;
    let balance = weir_tests::stock_balance(&stack, "replica").await?;
    assert_eq!((balance.orders, balance.held, balance.stock), (1, 0, 9));
    Ok(())
}
