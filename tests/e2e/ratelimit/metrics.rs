//! `docs/metrics.md` lists exactly the metrics of the rate limiter.

use anyhow::{Context, Result};
use weir_stack::http;
use weir_tests::{RedisPath, Setup};

use super::{PATIENT, config};
use crate::metrics::{Gateways, documented, scraped};

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_match_envoys() -> Result<()> {
    let rule = r#"{ "name": "all", "store": "redis", "limit": { "rate": 1, "per": "1h" } }"#;
    let setup = Setup {
        gateways: 1,
        workers: 1,
        redis: RedisPath::Straight,
        config: &config(&[rule.into()], PATIENT),
    };
    let limiters = setup.start().await?;
    limiters.burst("/", "anyone", 2).await?;
    limiters.count_reaching("limited_total.rule.all", 1).await?;
    let url = format!("{}/stats/prometheus", limiters.envoys[0].admin_url());
    assert_eq!(scraped(&url).await?, documented(Gateways::Limits));
    let stats = http::get(&url).await?.text();
    let limited = stats
        .lines()
        .find(|line| line.starts_with("weir_ratelimit_limited_total"))
        .context("no such counter")?;
    assert_eq!(limited, r#"weir_ratelimit_limited_total{rule="all"} 1"#);
    Ok(())
}
