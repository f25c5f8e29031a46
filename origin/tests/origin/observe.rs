//! `observe/`: its rules and dashboard only use existing metrics, and each alert has a section in the runbook.
//!
//! The tests that scrape gateways and origin check that the metrics in `docs/metrics.md` exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use weir_stack::report::SilentReporter;
use weir_stack::tools::Promtool;

const DOCUMENTED: &str = include_str!("../../../docs/metrics.md");
const RUNBOOK: &str = include_str!("../../../docs/runbook.md");
const RULES: &str = include_str!("../../../observe/prometheus/weir.rules.yml");
const TESTS: &str = include_str!("../../../observe/prometheus/weir.test.yml");
const DASHBOARD: &str = include_str!("../../../observe/grafana/weir.json");

/// Suffixes that Prometheus adds to counters and histograms.
const ENDINGS: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

/// The words that may be metric names: `weir:` is the prefix of recording rules.
fn words(text: &str) -> BTreeSet<&str> {
    let is_of_name = |char: char| char.is_ascii_alphanumeric() || "_:".contains(char);
    text.split(|char| !is_of_name(char)).collect()
}

fn named(text: &'static str, prefixes: &[&str]) -> BTreeSet<&'static str> {
    let is_ours = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    words(text).into_iter().filter(is_ours).collect()
}

/// The values of a key in a rule file, which has one per line.
fn values(text: &'static str, key: &str) -> Vec<&'static str> {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let of_key = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    of_key.map(|value| value.trim_matches('\'')).collect()
}

fn expressions() -> Vec<String> {
    fn add(value: &Value, to: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| match value {
                Value::String(text) if key == "expr" => to.push(text.clone()),
                value => add(value, to),
            }),
            Value::Array(items) => items.iter().for_each(|item| add(item, to)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    add(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    found
}

#[test]
fn alert_rules_and_dashboard_use_only_existing_metrics() {
    let cells = DOCUMENTED.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("- `")?.split_once('`')?;
        Some(name)
    });
    let documented: BTreeSet<&str> = cells.collect();
    let is_known = |name: &str| {
        let of_series = ENDINGS.iter().filter_map(|end| name.strip_suffix(end));
        documented.contains(name) || of_series.into_iter().any(|base| documented.contains(base))
    };
    let recorded: BTreeSet<&str> = values(RULES, "record").into_iter().collect();
    let queries = values(RULES, "expr").into_iter().map(str::to_owned);
    let queries: Vec<String> = queries.chain(expressions()).collect();
    assert!(queries.len() > 70, "{}", queries.len());
    let mut observed = 0;
    for query in &queries {
        for name in words(query) {
            let is_ours = name.starts_with("weir_") || name.starts_with("process_");
            assert!(!is_ours || is_known(name), "{name}, in {query}");
            let is_rule = name.starts_with("weir:");
            assert!(!is_rule || recorded.contains(name), "{name}, in {query}");
            observed += usize::from(is_ours || is_rule);
        }
    }
    assert!(observed > 80, "{observed}");
}

#[test]
fn each_alert_has_exactly_one_paragraph_and_test() {
    let alerts: BTreeSet<&str> = values(RULES, "alert").into_iter().collect();
    assert!(alerts.len() > 30, "{alerts:?}");
    let parts = RUNBOOK.split("\n## ").skip(1);
    let replies: BTreeSet<&str> = parts
        .map(|part| {
            let (name, text) = part.split_once("\n\n").unwrap();
            assert!(text.trim().len() > 80, "{name} says too little");
            name
        })
        .collect();
    assert_eq!(replies, alerts);
    let attempted: BTreeSet<&str> = values(TESTS, "alertname").into_iter().collect();
    assert_eq!(attempted, alerts);
    for alert in alerts {
        let page = "{{ $externalLabels.weir_docs }}/runbook.html";
        let link = format!("runbook_url: '{page}#{}'\n", alert.to_lowercase());
        assert!(RULES.contains(&link), "{link}");
        let silent = format!("  - name: {alert}, once\n");
        assert!(
            TESTS.contains(&silent),
            "no test of a single event: {alert}"
        );
    }
    let no_pages = RULES.matches("runbook: ").count();
    assert_eq!(no_pages, 0, "tools link only `runbook_url`");
    for link in named(RUNBOOK, &["weir"]) {
        let is_anchor = RUNBOOK.contains(&format!("(#{link})"));
        let is_alert = replies.iter().any(|alert| alert.to_lowercase() == link);
        assert!(!is_anchor || is_alert, "{link}");
    }
}

#[test]
fn alerts_fire_on_their_conditions() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../observe/prometheus");
    let promtool = match Promtool::find_or_get(&mut SilentReporter) {
        Ok(promtool) => promtool,
        Err(error) => {
            eprintln!("left out: {error:#}");
            return;
        }
    };
    promtool
        .run(&folder, &["check", "config", "prometheus.yml"])
        .unwrap();
    promtool
        .run(&folder, &["test", "rules", "weir.test.yml"])
        .unwrap();
}
