//! `docs/metrics.md` names what there is, and nothing else.

use std::collections::BTreeSet;

use anyhow::Result;
use weir_stack::Stack;
use weir_stack::http;
use weir_tests::{Crowd, sold_out_exactly, until, users};

const DOCUMENTED: &str = include_str!("../../docs/metrics.md");

/// Other gateways have these, and their own test.
const LIMITERS: &str = "weir_ratelimit_";

/// The names in the first column of the tables, the rate limiter's or all others.
pub(crate) fn documented(of_limiter: bool) -> BTreeSet<String> {
    let names = DOCUMENTED.lines().filter_map(|line| {
        let cell = line.strip_prefix("| `")?;
        let (name, _) = cell.split_once('`')?;
        let is_asked_for = name.starts_with("weir_") && name.starts_with(LIMITERS) == of_limiter;
        is_asked_for.then(|| name.to_owned())
    });
    names.collect()
}

/// The names that a scrape declares.
pub(crate) async fn scraped(url: &str) -> Result<BTreeSet<String>> {
    let text = http::get(url).await?.text();
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("# TYPE ")?.split(' ').next()?;
        name.starts_with("weir_").then(|| name.to_owned())
    });
    Ok(names.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_metrics_are_those_that_are_scraped() -> Result<()> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("metrics")
        .start()
        .await?;
    stack.open_sale("metrics", 20, 4).await?;
    let crowd = Crowd::start(&stack, "metrics", users(0..200), 16);
    crowd.finish().await?;
    sold_out_exactly(&stack, "metrics").await?;
    let gateway = format!("{}/stats/prometheus", stack.envoy_admin_url);
    let origin = format!("{}/metrics", stack.origin_admin_url);
    until("the reconciler has looked at the sale", async || {
        let names = scraped(&origin).await;
        names.is_ok_and(|names| names.contains("weir_origin_drift_units"))
    })
    .await?;
    let mut names = scraped(&gateway).await?;
    assert!(names.len() > 10, "{names:?}");
    names.append(&mut scraped(&origin).await?);
    assert_eq!(names, documented(false));
    Ok(())
}
