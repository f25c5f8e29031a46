//! Limits in a Redis Cluster.

use anyhow::Result;
use weir_tests::{RedisPath, Setup};

use super::config;

/// Enough users that all three nodes have keys.
const USERS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn each_key_keeps_its_limit_on_any_cluster_node() -> Result<()> {
    let rule = r#"{ "name": "r", "store": "redis", "on_store_error": "closed", "key": ["user"],
        "limit": { "rate": 5, "per": "1h" } }"#;
    let patient = r#""redis": { "deadline_ms": 5000, "topology": "cluster" }"#;
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::Cluster,
        config: &config(&[rule.into()], patient),
    };
    let mut limiters = setup.start().await?;
    for user in 0..USERS {
        let burst = limiters.burst("/", &format!("user-{user}"), 8).await?;
        assert_eq!((burst.passed.len(), burst.limited.len()), (5, 3), "{user}");
    }
    for node in &limiters.nodes {
        let mut connection = node.connection().await?;
        let keys: usize = redis::cmd("DBSIZE").query_async(&mut connection).await?;
        assert!(keys > 0, "a node has no keys: {keys}");
    }
    limiters.check()
}
