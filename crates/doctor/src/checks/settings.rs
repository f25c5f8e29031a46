//! Checks that there are filters of Weir, that each accepts its configuration, and that each restarts after a trap.

use weir_limit::engine::config::Config as LimiterConfig;
use weir_registry::{GATE, LIMITER};

use super::Gateway;
use crate::diagnostic::Diagnostic;
use crate::filters::{ConfigSource, Filter, Host};
use crate::tree::{at, is_set, text};

/// Filters that identify the user. They must come before Weir's filters.
const IDENTIFIERS: [&str; 4] = [
    "jwt_authn.v3.JwtAuthentication",
    "ext_authz.v3.ExtAuthz",
    "oauth2.v3.OAuth2",
    "basic_auth.v3.BasicAuth",
];

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    if gateway.filters.is_empty() {
        findings.push(Diagnostic::error(
            "filters",
            "Envoy",
            "no listener has a Weir filter",
            "add one to the http_filters of a listener, as in the files in envoy/",
        ));
    }
    for filter in &gateway.filters {
        findings.extend(twice(gateway, filter));
        findings.extend(is_struct(filter));
        findings.extend(configuration(filter));
        findings.extend(rules(filter));
        findings.extend(reload(filter));
        findings.extend(stop_iteration(filter));
        findings.extend(identified_late(filter));
    }
}

/// A filter before another one of its kind on the same listener: the second decides on the requests that the first
/// passes. Two limiters with different rules are allowed.
fn twice(gateway: &Gateway<'_>, filter: &Filter<'_>) -> Option<Diagnostic> {
    let is_other = |other: &&Filter<'_>| {
        std::ptr::eq(other.manager.value, filter.manager.value)
            && *other.kind == *filter.kind
            && other.at > filter.at
    };
    let other = gateway.filters.iter().find(is_other)?;
    let is_meant = *filter.kind == LIMITER && other.json != filter.json;
    (!is_meant).then(|| {
        Diagnostic::error(
            "filter-twice",
            filter.place(),
            format!(
                "{} is also on this listener: each request is decided and counted twice",
                crate::tree::name(other.value)
            ),
            "remove one of them",
        )
    })
}

/// Envoy passes a Struct to WebAssembly as protobuf, which the filter refuses.
fn is_struct(filter: &Filter<'_>) -> Option<Diagnostic> {
    let value = at(filter.value, "typed_config.config.configuration.value");
    let is_struct = filter.host == Host::Wasm && value.is_some_and(serde_json::Value::is_object);
    is_struct.then(|| {
        Diagnostic::error(
            "configuration",
            filter.place(),
            "the configuration is a google.protobuf.Struct, which the filter refuses",
            "write it as google.protobuf.StringValue with JSON in value",
        )
    })
}

fn configuration(filter: &Filter<'_>) -> Option<Diagnostic> {
    let place = filter.place();
    match (&filter.json, &filter.settings) {
        (ConfigSource::Unreadable, _) => Some(Diagnostic::warning(
            "configuration",
            place,
            "the configuration is neither a StringValue nor a Struct, and was not checked",
            "write it as google.protobuf.StringValue",
        )),
        // The limiter accepts it, and limits nothing.
        (ConfigSource::Missing, _) => Some(Diagnostic::error(
            "configuration",
            place,
            "`configuration` is missing, so the filter does nothing",
            "add one as in the files in envoy/",
        )),
        (_, Some(Err(error))) => Some(Diagnostic::error(
            "configuration",
            place,
            format!("the filter refuses its configuration: {error}"),
            "correct that field",
        )),
        _ => None,
    }
}

fn rules(filter: &Filter<'_>) -> Option<Diagnostic> {
    let config: &LimiterConfig = filter.settings()?;
    (config.rules.is_empty() && !config.reload).then(|| {
        Diagnostic::warning(
            "rules",
            filter.place(),
            "there are no rules, so nothing is limited",
            "add \"rules\", or set \"reload\": true and write them to Redis",
        )
    })
}

fn reload(filter: &Filter<'_>) -> Option<Diagnostic> {
    let policy = text(filter.value, "typed_config.config.failure_policy");
    let is_bad = filter.host == Host::Wasm && policy != Some("FAIL_RELOAD");
    is_bad.then(|| {
        Diagnostic::warning(
            "failure-policy",
            filter.place(),
            "after a trap the filter answers 503 until Envoy restarts",
            "set failure_policy: FAIL_RELOAD",
        )
    })
}

fn stop_iteration(filter: &Filter<'_>) -> Option<Diagnostic> {
    let flag = "typed_config.config.allow_on_headers_stop_iteration";
    let is_bad =
        filter.kind.reads_bodies && filter.host == Host::Wasm && !is_set(filter.value, flag);
    is_bad.then(|| {
        Diagnostic::error(
            "stop-iteration",
            filter.place(),
            "the filter cannot wait for a request body: queries reach the origin before it reads them",
            "set allow_on_headers_stop_iteration: true next to root_id",
        )
    })
}

fn identified_late(filter: &Filter<'_>) -> Option<Diagnostic> {
    let behind = filter.manager.filters().get(filter.at..)?;
    let late = behind.iter().find(|other| {
        let kind = crate::tree::type_of(other);
        IDENTIFIERS.iter().any(|end| kind.ends_with(end))
    })?;
    (*filter.kind == GATE).then(|| {
        Diagnostic::error(
            "identity-order",
            filter.place(),
            format!(
                "{} comes after the gate, so the gate trusts user headers from clients",
                crate::tree::name(late)
            ),
            "move it before the gate",
        )
    })
}
