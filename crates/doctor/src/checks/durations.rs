//! Checks timeouts and their order.

use serde_json::Value;
use weir_registry::GATE;

use super::Gateway;
use super::bridge::bridge_route;
use super::routes::orders_cluster;
use crate::diagnostic::Diagnostic;
use crate::filters::{Filter, Host};
use crate::tree::{at, duration_ms};

/// Envoy's default timeout of a route, in milliseconds.
const ROUTE_TIMEOUT_MS: u64 = 15_000;

/// Envoy's default idle timeout of a cluster's connections, in milliseconds.
const IDLE_MS: u64 = 60 * 60 * 1_000;

/// The origin's idle timeout of connections, in milliseconds: see `origin/core/src/http/server.rs`.
const ORIGIN_IDLE_MS: u64 = 75_000;

const STREAM: &str = "common_http_protocol_options.max_stream_duration";

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    for filter in &gateway.filters {
        findings.extend(stream(filter));
        if *filter.kind == GATE {
            orders(gateway, filter, findings);
            findings.extend(connect(gateway, filter));
        }
    }
}

/// Requests that wait in a VM when it dies would wait forever without a limit.
fn stream(filter: &Filter<'_>) -> Option<Diagnostic> {
    let manager = filter.manager.value;
    let positive = |path: &str| duration_ms(manager, path).filter(|&ms| ms > 0);
    let place = filter.manager.place();
    let fix = "set common_http_protocol_options: { max_stream_duration: 15s }";
    if *filter.kind == GATE {
        return positive(STREAM).is_none().then(|| {
            Diagnostic::error(
                "stream-duration",
                place,
                "max_stream_duration is not set: requests waiting in a crashed VM, and slow clients, stay open permanently",
                fix,
            )
        });
    }
    // Envoy's own default is five minutes.
    let is_off = duration_ms(manager, "stream_idle_timeout") == Some(0);
    (is_off && positive(STREAM).is_none()).then(|| {
        Diagnostic::warning(
            "stream-duration",
            place,
            "neither stream_idle_timeout nor max_stream_duration limits a request",
            "set stream_idle_timeout: 15s",
        )
    })
}

fn orders(gateway: &Gateway<'_>, filter: &Filter<'_>, findings: &mut Vec<Diagnostic>) {
    let (Some((cluster, route)), Some(gate)) = (orders_cluster(gateway, filter), filter.gate())
    else {
        return;
    };
    let place = format!("{}, order route", filter.manager.place());
    let timeout_ms = match duration_ms(route, "route.timeout") {
        // No limit.
        Some(0) => u64::MAX,
        timeout_ms => timeout_ms.unwrap_or(ROUTE_TIMEOUT_MS),
    };
    if timeout_ms >= gate.claim.ttl_ms {
        findings.push(Diagnostic::error(
            "claim-ttl",
            place.clone(),
            format!(
                "an order can take {}, but its claim ends after {} ms (claim.ttl_ms): another buyer could get the unit",
                display_ms(timeout_ms), gate.claim.ttl_ms
            ),
            "set the route's timeout to 5s, or increase claim.ttl_ms",
        ));
    }
    if let Some(limit_ms) = gateway.origin.map(|origin| origin.public_limit_ms)
        && timeout_ms < limit_ms
    {
        findings.push(Diagnostic::warning(
            "route-timeout",
            place.clone(),
            format!("Envoy drops an order after {timeout_ms} ms, but the origin takes up to {limit_ms} ms: its answer is lost"),
            "set the route's timeout to 5s",
        ));
    }
    if at(route, "route.max_stream_duration").is_some() {
        findings.push(Diagnostic::warning(
            "route-stream-duration",
            place,
            "max_stream_duration is set on the route, where it replaces the timeout",
            "move it from the route to common_http_protocol_options",
        ));
    }
    findings.extend(longest(filter, timeout_ms));
    findings.extend(idle(gateway, cluster));
}

fn longest(filter: &Filter<'_>, timeout_ms: u64) -> Option<Diagnostic> {
    let stream_ms = duration_ms(filter.manager.value, STREAM).filter(|&ms| ms > 0)?;
    (timeout_ms != u64::MAX && stream_ms <= timeout_ms).then(|| {
        Diagnostic::warning(
            "stream-duration",
            filter.manager.place(),
            format!("max_stream_duration ({stream_ms} ms) is shorter than the timeout of the order route ({timeout_ms} ms)"),
            "set max_stream_duration to three times that timeout",
        )
    })
}

/// An order must not use a connection that the origin is closing.
fn idle(gateway: &Gateway<'_>, cluster: &str) -> Option<Diagnostic> {
    let cluster = gateway.envoy.cluster(cluster)?;
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let own =
        at(cluster.value, "typed_extension_protocol_options").and_then(|all| all.get(options));
    let idle = "common_http_protocol_options.idle_timeout";
    let own_ms = own.and_then(|own: &Value| duration_ms(own, idle));
    let idle_ms = own_ms
        .or_else(|| duration_ms(cluster.value, idle))
        .unwrap_or(IDLE_MS);
    (idle_ms == 0 || idle_ms >= ORIGIN_IDLE_MS).then(|| {
        Diagnostic::warning(
            "origin-idle",
            cluster.place(),
            format!("idle connections stay open for {}, but the origin closes them after {} s: an order can hit a closing connection", display_ms(idle_ms), ORIGIN_IDLE_MS / 1_000),
            "set idle_timeout: 60s in the cluster's common_http_protocol_options",
        )
    })
}

/// A dead Redis must be detected within the deadline.
fn connect(gateway: &Gateway<'_>, filter: &Filter<'_>) -> Option<Diagnostic> {
    let gate = filter.gate()?;
    let deadline_ms = gate
        .redis
        .deadline_ms
        .unwrap_or(weir_sale::engine::config::DEADLINE_MS);
    let (place, connect_ms) = match filter.host {
        Host::Native => return None,
        Host::Wasm => {
            let route = bridge_route(gateway.envoy, &gate.redis.cluster, "").ok()?;
            // Envoy's default.
            let connect_ms = duration_ms(route.upstream.value, "connect_timeout").unwrap_or(5_000);
            (route.upstream.place(), connect_ms)
        }
    };
    (connect_ms >= deadline_ms).then(|| {
        Diagnostic::warning(
            "redis-connect",
            place,
            format!("connect_timeout is {connect_ms} ms, but requests wait only {deadline_ms} ms (redis.deadline_ms): a dead Redis looks like a slow one"),
            "set a connect_timeout below that deadline",
        )
    })
}

fn display_ms(ms: u64) -> String {
    match ms {
        0 | u64::MAX => "ever".to_owned(),
        ms => format!("{ms} ms"),
    }
}
