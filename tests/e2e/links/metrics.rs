//! `docs/metrics.md` lists exactly the metrics of short links.

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::http;
use weir_tests::until;

use super::{SHIPPED, TARGET};
use crate::metrics::{Gateways, documented, scraped};

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_match_envoys() -> Result<()> {
    let gateways = SHIPPED.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    gateways.location(0, &code).await?;
    until("workers have told what they counted", async || {
        let count = gateways.count("answers_total.answer.redirect").await;
        count.is_ok_and(|count| count == 1)
    })
    .await?;
    let url = format!("{}/stats/prometheus", gateways.envoys[0].admin_url());
    assert_eq!(scraped(&url).await?, documented(Gateways::Links));
    let stats = http::get(&url).await?.text();
    let mut lines = stats.lines();
    let line =
        lines.find(|line| line.starts_with("weir_shortlink_answers_total{answer=\"redirect\""));
    assert_eq!(
        line.context("no such counter")?,
        "weir_shortlink_answers_total{answer=\"redirect\"} 1"
    );
    Ok(())
}
