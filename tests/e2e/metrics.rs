//! `docs/metrics.md` lists exactly the existing metrics.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_stack::Stack;
use weir_stack::http;
use weir_stack::native::Host;
use weir_tests::{Crowd, sold_out_exactly, until, users};

const DASHBOARD: &str = include_str!("../../observe/grafana/weir.json");
const DOCUMENTED: &str = include_str!("../../docs/metrics.md");

/// The origin of metrics. Filters with a separate section have their own test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gateways {
    Sales,
    Limits,
    Links,
    Events,
    Fitment,
    Rooms,
    /// Every filter of the native module.
    Native,
    /// Filters of the native module that the fast path has asked, or that have called Redis.
    NativeInUse,
    /// The origin's event groups, which exist when it accepts events: tested separately.
    Groups,
}

impl Gateways {
    fn of(name: &str) -> Self {
        match name {
            name if name.starts_with("weir_ratelimit_") => Self::Limits,
            name if name.starts_with("weir_shortlink_") => Self::Links,
            name if name.starts_with("weir_events_") => Self::Events,
            name if name.starts_with("weir_fitment_") => Self::Fitment,
            name if name.starts_with("weir_room_") => Self::Rooms,
            name if name.starts_with("weir_native_fast_path_") => Self::NativeInUse,
            name if name.starts_with("weir_native_redis_") => Self::NativeInUse,
            name if name.starts_with("weir_native_") => Self::Native,
            name if name.starts_with("weir_origin_event_group_") => Self::Groups,
            _ => Self::Sales,
        }
    }
}

/// Whether `docs/metrics.md` must list the metric: Weir's own, and those common to all processes.
fn is_documented(name: &str) -> bool {
    name.starts_with("weir_") || name.starts_with("process_")
}

/// The names at the start of list items for these gateways; the origin's are listed with those of sales.
pub(crate) fn documented(gateways: Gateways) -> BTreeSet<String> {
    let names = DOCUMENTED.lines().filter_map(|line| {
        let item = line.strip_prefix("- `")?;
        let (name, _) = item.split_once('`')?;
        let is_asked_for = is_documented(name) && Gateways::of(name) == gateways;
        is_asked_for.then(|| name.to_owned())
    });
    names.collect()
}

/// The names that a scrape declares, without those common to all filters of the native module.
pub(crate) async fn scraped(url: &str) -> Result<BTreeSet<String>> {
    let mut names = all_scraped(url).await?;
    let is_gateway = names.iter().all(|name| !name.starts_with("weir_origin_"));
    let mut take = |gateways| {
        let accepted = names.extract_if(.., |name| Gateways::of(name) == gateways);
        accepted.collect::<BTreeSet<String>>()
    };
    let (native, in_use) = (take(Gateways::Native), take(Gateways::NativeInUse));
    if is_gateway && Host::of_run().is_native() {
        assert_eq!(native, documented(Gateways::Native));
        assert!(in_use.is_subset(&documented(Gateways::NativeInUse)));
    }
    Ok(names)
}

async fn all_scraped(url: &str) -> Result<BTreeSet<String>> {
    let text = http::get(url).await?.text();
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("# TYPE ")?.split(' ').next()?;
        is_documented(name).then(|| name.to_owned())
    });
    Ok(names.collect())
}

#[test]
fn metrics_are_in_base_units() {
    let names = DOCUMENTED.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("- `")?.split_once('`')?;
        is_documented(name).then_some(name)
    });
    let mut count = 0;
    for name in names {
        count += 1;
        let others = [
            "ms", "us", "ns", "millis", "minutes", "hours", "days", "kb", "kib", "mb", "mib",
            "percent",
        ];
        let unit = name.split('_').find(|word| others.contains(word));
        assert_eq!(unit, None, "{name}: use seconds, bytes or a ratio");
    }
    assert!(count > 100, "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_match_the_scrape() -> Result<()> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("metrics")
        .start()
        .await?;
    // As in docs/observe.md.
    let all = "runtime_modify?weir.access_log=100";
    let all = format!("{}/{all}", stack.envoy_admin_url());
    let headers: [(&str, &str); 0] = [];
    ensure!(
        http::send(http::Method::POST, &all, &headers, String::new())
            .await?
            .status
            == 200
    );
    stack.open_sale("metrics", 20, 4).await?;
    let crowd = Crowd::start(&stack, "metrics", users(0..200), 16);
    crowd.finish().await?;
    sold_out_exactly(&stack, "metrics").await?;
    let gateway = format!("{}/stats/prometheus", stack.envoy_admin_url());
    let origin = format!("{}/metrics", stack.origin_admin_url());
    until("the reconciler has looked at the sale", async || {
        let names = scraped(&origin).await;
        names.is_ok_and(|names| names.contains("weir_origin_drift_units"))
    })
    .await?;
    if Host::of_run().is_native() {
        until("the fast path has published its counters", async || {
            let names = all_scraped(&gateway).await;
            names.is_ok_and(|names| names.is_superset(&documented(Gateways::NativeInUse)))
        })
        .await?;
    }
    let mut names = scraped(&gateway).await?;
    assert!(names.len() > 10, "{names:?}");
    names.append(&mut scraped(&origin).await?);
    assert_eq!(names, documented(Gateways::Sales));
    let envoys = http::get(&gateway).await?.text();
    for name in DASHBOARD.split(|char: char| !char.is_alphanumeric() && char != '_') {
        let is_there = || envoys.contains(&format!("# TYPE {name} "));
        ensure!(!name.starts_with("envoy_cluster_u") || is_there(), "{name}");
    }
    check_gateway_log(&stack).await
}

/// A gateway's log lines: the filter's start, Redis' first reply, and the reasons for refused requests.
async fn check_gateway_log(stack: &Stack) -> Result<()> {
    let log = stack.data_dir().join("envoy.log");
    let (asks, answers) = match Host::of_run().is_native() {
        true => ("uses Redis at 127.0.0.1:", "seckill-gate: Redis answers"),
        false => (
            "uses Redis through cluster weir_redis",
            "seckill-gate: Redis answers through cluster weir_redis",
        ),
    };
    for line in [
        ": configured, ",
        asks,
        answers,
        r#""details":"weir_sold_out""#,
        r#""details":"via_upstream""#,
    ] {
        let read = || std::fs::read_to_string(&log).unwrap_or_default();
        let is_told = until(line, async || read().contains(line)).await;
        is_told.with_context(|| format!("{line} is not in {}", log.display()))?;
    }
    check_request_id_in_both_logs(stack)
}

fn check_request_id_in_both_logs(stack: &Stack) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(stack.data_dir().join(name));
    let (gateway, origin) = (read("envoy.log")?, read("origin.log")?);
    let mut lines = gateway
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ordered = lines.find(|line| line["details"] == "via_upstream");
    let id = ordered.context("no order in the gateway's log")?["request_id"].clone();
    ensure!(id.as_str().is_some_and(|id| id.len() == 36), "{id}");
    ensure!(origin.contains(&format!("\"request_id\":{id}")), "{id}");
    Ok(())
}
