//! Checks Envoy's own replies to buyers when the origin does not answer.

use serde_json::Value;
use weir_registry::GATE;

use super::Gateway;
use crate::diagnostic::Diagnostic;
use crate::tree::{at, list, number, text};

/// Envoy's response flags of upstream failures: no connection, no host, a broken connection, a timeout.
const FLAGS: [&str; 6] = ["UF", "UH", "UC", "UT", "UO", "UR"];

/// Envoy's status when `max_stream_duration` ends a request, without a flag.
const TIMED_OUT: u64 = 504;

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    let gates = gateway.filters.iter();
    for gate in gates.filter(|filter| *filter.kind == GATE) {
        let mappers = list(gate.manager.value, "local_reply_config.mappers");
        let lacks = match mappers
            .iter()
            .find(|mapper| is_for_all(mapper) && is_honest(mapper))
        {
            None => {
                vec!["a mapper that sets x-weir-verdict to unavailable and Retry-After".to_owned()]
            }
            Some(mapper) => uncovered(mapper),
        };
        if !lacks.is_empty() {
            findings.push(Diagnostic::error(
                "local-reply",
                gate.manager.place(),
                format!("local_reply_config lacks {}: during an origin outage, buyers would get `granted` with a 503", lacks.join(", ")),
                "copy local_reply_config from envoy/weir.yaml",
            ));
        }
    }
}

/// Whether it applies to all clients. The mappers of pages apply to browsers only.
fn is_for_all(mapper: &Value) -> bool {
    list(mapper, "filter.and_filter.filters").is_empty()
        && at(mapper, "filter.header_filter").is_none()
}

/// Whether it replaces the gate's verdict by `unavailable`, and sets `retry-after`.
fn is_honest(mapper: &Value) -> bool {
    let sets = |name: &str, value: Option<&str>| {
        let mut headers = list(mapper, "headers_to_add").iter();
        headers.any(|header| {
            let key = text(header, "header.key").unwrap_or_default();
            let is_value = value.is_none_or(|value| text(header, "header.value") == Some(value));
            key.eq_ignore_ascii_case(name) && is_value
        })
    };
    sets(weir_base::headers::VERDICT, Some("unavailable")) && sets("retry-after", None)
}

/// The failures that it does not cover.
fn uncovered(mapper: &Value) -> Vec<String> {
    let filters: Vec<&Value> = match list(mapper, "filter.or_filter.filters") {
        [] => mapper.get("filter").into_iter().collect(),
        filters => filters.iter().collect(),
    };
    let flags: Vec<&str> = filters
        .iter()
        .flat_map(|filter| list(filter, "response_flag_filter.flags"))
        .filter_map(Value::as_str)
        .collect();
    let mut lacks: Vec<String> = FLAGS
        .iter()
        .filter(|flag| !flags.contains(flag))
        .map(|flag| format!("the flag {flag}"))
        .collect();
    let covers_status = filters.iter().any(|filter| {
        let comparison = "status_code_filter.comparison";
        let value = number(filter, &format!("{comparison}.value.default_value"));
        match text(filter, &format!("{comparison}.op")) {
            Some("GE") => value.is_some_and(|value| value <= TIMED_OUT),
            // Envoy omits the first value of an enum when it prints.
            Some("EQ") | None => value == Some(TIMED_OUT),
            Some(_) => false,
        }
    });
    if !covers_status {
        lacks.push("the status 504".to_owned());
    }
    lacks
}
