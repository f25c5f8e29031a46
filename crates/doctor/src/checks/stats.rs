//! Checks that metrics get their labels.

use super::Gateway;
use crate::diagnostic::Diagnostic;
use crate::filters::{Filter, Host};
use crate::route::compiled;
use crate::tree::{at, list, text};

/// This gives the metrics of native filters the same names as the others.
const STRIP: &str = "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix";

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    let mut missing: Vec<&str> = Vec::new();
    let on_wasm = |filter: &&Filter<'_>| filter.host == Host::Wasm;
    for filter in gateway.filters.iter().filter(on_wasm) {
        for &label in filter.kind.labels {
            if !is_tagged(gateway, filter.kind.outer_label, label) && !missing.contains(&label) {
                missing.push(label);
            }
        }
    }
    if !missing.is_empty() {
        findings.push(Diagnostic::warning(
            "stats-tags",
            "stats_config",
            format!("no tag extracts {} from the names of Weir's metrics: Prometheus gets a separate metric for each value", missing.join(", ")),
            "copy stats_tags from the files in envoy/",
        ));
    }
    let is_native = gateway
        .filters
        .iter()
        .any(|filter| filter.host == Host::Native);
    if is_native && !strips(gateway) {
        findings.push(Diagnostic::warning(
            "stats-prefix",
            "layered_runtime",
            "the native filters' metric names differ from docs/metrics.md",
            format!("set {STRIP}: true in a static layer"),
        ));
    }
}

/// Whether a tag extracts the label from a metric's name, after the outer label.
fn is_tagged(gateway: &Gateway<'_>, outer: Option<&str>, label: &str) -> bool {
    let outer = outer.filter(|outer| *outer != label);
    let outer = outer.map_or_else(String::new, |outer| format!(".{outer}.any"));
    let name = format!("wasmcustom.weir_doctor_total{outer}.{label}.any");
    let mut tags = list(gateway.envoy.root(), "stats_config.stats_tags").iter();
    tags.any(|tag| {
        let regex = text(tag, "regex").and_then(compiled);
        text(tag, "tag_name") == Some(label) && regex.is_some_and(|regex| regex.is_match(&name))
    })
}

fn strips(gateway: &Gateway<'_>) -> bool {
    let mut layers = list(gateway.envoy.root(), "layered_runtime.layers").iter();
    layers.any(|layer| {
        let flag = at(layer, "static_layer").and_then(|layer| layer.get(STRIP));
        flag.and_then(serde_json::Value::as_bool) == Some(true)
    })
}
