//! The path of a filter's calls to Redis, in Envoy with WebAssembly: its cluster, the internal listener, the bridge,
//! the proxy behind it, and that proxy's cluster.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Gateway;
use crate::diagnostic::Diagnostic;
use crate::envoy::{Cluster, Envoy, Listener};
use crate::filters::Host;
use crate::tree::{field, list, name, number, text, type_of};

const BRIDGE: &str = "filters.network.wasm.v3.Wasm";
const TCP_PROXY: &str = "tcp_proxy.v3.TcpProxy";
const REDIS_PROXY: &str = "redis_proxy.v3.RedisProxy";
const EXTENSION: &str = "internal_listener.v3.InternalListener";

/// The default of the bridge's `request_bytes_max`, in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A complete path.
pub(super) struct BridgeRoute<'a> {
    pub(super) listener: Listener<'a>,
    /// The bridge.
    pub(super) bridge: &'a Value,
    /// Its `typed_config`.
    pub(super) proxy: &'a Value,
    pub(super) is_redis_proxy: bool,
    /// The cluster to which it leads.
    pub(super) upstream: Cluster<'a>,
}

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    for (cluster, requesting) in clusters(gateway) {
        match bridge_route(gateway.envoy, &cluster, &requesting) {
            Err(Some(finding)) => findings.push(*finding),
            Err(None) => {}
            Ok(route) => findings.extend(buffer(&route)),
        }
    }
}

/// Each cluster that a filter in WebAssembly calls, once, with the place of the first such filter.
pub(super) fn clusters(gateway: &Gateway<'_>) -> Vec<(String, String)> {
    let mut observed = BTreeSet::new();
    let mut clusters = Vec::new();
    let filters = gateway.filters.iter();
    for filter in filters.filter(|filter| filter.host == Host::Wasm) {
        for (cluster, _) in filter.redis() {
            if observed.insert(cluster.to_owned()) {
                clusters.push((cluster.to_owned(), filter.place()));
            }
        }
    }
    clusters
}

/// The path that starts at `cluster`, or the first part that is missing; no finding if that part may come over the
/// network.
pub(super) fn bridge_route<'a>(
    envoy: &'a Envoy,
    cluster: &str,
    requesting: &str,
) -> Result<BridgeRoute<'a>, Option<Box<Diagnostic>>> {
    let broken = |check, place: String, problem: String, fix: String| {
        Some(Box::new(Diagnostic::error(check, place, problem, fix)))
    };
    let Some(first) = envoy.cluster(cluster) else {
        return Err(match envoy.is_partial() {
            true => None,
            false => broken(
                "redis-cluster",
                requesting.to_owned(),
                format!("redis.cluster names the unknown cluster \"{cluster}\""),
                format!("add the cluster \"{cluster}\" and its upstream, or correct the name"),
            ),
        });
    };
    let Some(target) = first.internal_listener() else {
        return Err(broken(
            "redis-not-bridged",
            first.place(),
            "it connects to the network, but filter calls are not Redis protocol and need the bridge".into(),
            "connect it to the bridge's internal listener: envoy_internal_address: { server_listener_name: weir_redis }".into(),
        ));
    };
    if !has_extension(envoy) {
        return Err(broken(
            "internal-listener-extension",
            "bootstrap_extensions".into(),
            "envoy.bootstrap.internal_listener is missing, so the bridge is unreachable".into(),
            "add it as in part (1) of envoy/weir.yaml".into(),
        ));
    }
    let Some(listener) = envoy.listeners().find(|listener| listener.name() == target) else {
        return Err(broken(
            "bridge-listener",
            first.place(),
            format!("it connects to the unknown internal listener \"{target}\""),
            "add that listener as in part (4) of envoy/weir.yaml".into(),
        ));
    };
    let place = format!("listener {target}");
    if !listener.is_internal() {
        return Err(broken(
            "bridge-listener",
            place,
            "it has the bridge's name but is not an internal listener".into(),
            "set internal_listener: {} instead of its address".into(),
        ));
    }
    let filters = listener.filters();
    let Some(at) = filters.iter().position(|filter| is_bridge(filter)) else {
        return Err(broken(
            "bridge-filter",
            place,
            "redis-bridge is missing, so Redis receives requests that it cannot parse".into(),
            "put the network filter redis-bridge.wasm before the proxy".into(),
        ));
    };
    let behind = filters.get(at + 1..).unwrap_or_default().iter();
    let mut proxies = behind.filter_map(|filter| {
        let is_redis_proxy = type_of(filter).ends_with(REDIS_PROXY);
        let is_proxy = is_redis_proxy || type_of(filter).ends_with(TCP_PROXY);
        let config = field(filter, "typed_config").filter(|_| is_proxy)?;
        Some((config, is_redis_proxy))
    });
    let Some((proxy, is_redis_proxy)) = proxies.next() else {
        return Err(broken(
            "bridge-proxy",
            place,
            "no proxy after redis-bridge forwards its calls to Redis".into(),
            "add tcp_proxy for one Redis, or redis_proxy for a Redis Cluster".into(),
        ));
    };
    let path = match is_redis_proxy {
        true => "prefix_routes.catch_all_route.cluster",
        false => "cluster",
    };
    let upstream = text(proxy, path).unwrap_or_default();
    let bridge = filters.get(at).copied();
    match (envoy.cluster(upstream), bridge) {
        (Some(upstream), Some(bridge)) => Ok(BridgeRoute {
            listener,
            bridge,
            proxy,
            is_redis_proxy,
            upstream,
        }),
        _ if envoy.is_partial() => Err(None),
        _ => Err(broken(
            "bridge-upstream",
            place,
            format!("its proxy uses the unknown cluster {upstream:?}"),
            "add that cluster as in part (5) of envoy/weir.yaml, or correct the name".into(),
        )),
    }
}

fn has_extension(envoy: &Envoy) -> bool {
    let mut extensions = list(envoy.root(), "bootstrap_extensions").iter();
    extensions.any(|extension| type_of(extension).ends_with(EXTENSION))
}

fn is_bridge(filter: &Value) -> bool {
    let names = [
        text(filter, "typed_config.config.root_id"),
        text(filter, "typed_config.config.vm_config.code.local.filename"),
        text(
            filter,
            "typed_config.config.vm_config.code.remote.http_uri.uri",
        ),
        Some(name(filter)),
    ];
    let is_named = |name: &str| name.replace('_', "-").contains("redis-bridge");
    type_of(filter).ends_with(BRIDGE) && names.into_iter().flatten().any(is_named)
}

/// A whole call must fit into the listener's buffer.
fn buffer(route: &BridgeRoute<'_>) -> Option<Diagnostic> {
    let limit = number(route.listener.value, "per_connection_buffer_limit_bytes")?;
    let largest = bridge_settings(route.bridge)
        .and_then(|settings| settings.get("request_bytes_max")?.as_u64())
        .unwrap_or(REQUEST_BYTES_MAX);
    (limit <= largest).then(|| {
        Diagnostic::warning(
            "bridge-buffer",
            format!("listener {}", route.listener.name()),
            format!("per_connection_buffer_limit_bytes is {limit}, but a call can have {largest} bytes plus a header"),
            "set it to 4194304",
        )
    })
}

/// The bridge's own configuration.
pub(super) fn bridge_settings(bridge: &Value) -> Option<Value> {
    use crate::filters::{ConfigSource, written};
    match written(bridge, "typed_config.config.configuration") {
        ConfigSource::Text(json) => serde_json::from_str(&json).ok(),
        _ => None,
    }
}
