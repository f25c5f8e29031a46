//! Checks that gateways and origin use the same Redis, with the right topology.

use std::collections::BTreeSet;

use weir_engine::config::{RedisConfig, Topology};
use weir_registry::RedisUse;

use super::Gateway;
use super::bridge::{BridgeRoute, bridge_route, bridge_settings};
use crate::diagnostic::Diagnostic;
use crate::facts::OriginFacts;
use crate::filters::{Filter, Host};
use crate::place::same_spelling;
use crate::tree::{duration_ms, is_set, list, text};

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    let (mut observed, mut compared) = (BTreeSet::new(), BTreeSet::new());
    for filter in &gateway.filters {
        findings.extend(prefix(filter, gateway.origin));
        for (cluster, redis) in filter.redis() {
            let redis = redis.clone();
            let found = match filter.host {
                Host::Native => native(filter, cluster, gateway.origin),
                Host::Wasm => {
                    let Ok(way) = bridge_route(gateway.envoy, cluster, "") else {
                        continue;
                    };
                    // A limiter alone needs no origin, and may have its own Redis.
                    let is_shared = cluster == redis.cluster && needs_origin(filter);
                    let is_new = observed.insert(cluster.to_owned());
                    let mut found: Vec<Diagnostic> =
                        topology(filter, &redis, &way).into_iter().collect();
                    if is_new {
                        found.extend(of_way(&way));
                    }
                    if is_shared && let Some(origin) = gateway.origin {
                        found.extend(shared(&way, origin, &mut compared));
                    }
                    found
                }
            };
            findings.extend(found);
        }
    }
}

fn prefix(filter: &Filter<'_>, origin: Option<&OriginFacts>) -> Option<Diagnostic> {
    let prefix = &filter.redis().first()?.1.key_prefix;
    let origins = &origin.filter(|_| needs_origin(filter))?.key_prefix;
    (prefix != origins).then(|| {
        Diagnostic::error(
            "key-prefix",
            filter.place(),
            format!("redis.key_prefix is {prefix:?}, but the origin's is {origins:?}: they do not share keys"),
            "use the same prefix in redis.key_prefix and in WEIR_KEY_PREFIX of the origin",
        )
    })
}

/// Whether this filter reads data that the origin writes to Redis.
fn needs_origin(filter: &Filter<'_>) -> bool {
    filter.kind.redis == RedisUse::Shared
}

fn topology(filter: &Filter<'_>, redis: &RedisConfig, way: &BridgeRoute<'_>) -> Option<Diagnostic> {
    if !filter.kind.spans_slots {
        return None;
    }
    let is_cluster = way.is_redis_proxy && way.upstream.is_redis_cluster();
    let (problem, fix) = match (redis.topology, is_cluster) {
        (Topology::Single, true) => (
            "redis.topology is single, but Redis is a cluster, which refuses calls with keys of two slots",
            "set \"topology\": \"cluster\"",
        ),
        (Topology::Cluster, false) => (
            "redis.topology is cluster, but the bridge connects to a single Redis",
            "set \"topology\": \"single\", or use redis_proxy and the cluster of envoy/snippets/redis-cluster.yaml",
        ),
        _ => return None,
    };
    Some(Diagnostic::error("topology", filter.place(), problem, fix))
}

/// Checks that the origin uses the same Redis; one finding per Redis.
fn shared(
    way: &BridgeRoute<'_>,
    origin: &OriginFacts,
    compared: &mut BTreeSet<String>,
) -> Vec<Diagnostic> {
    if !compared.insert(way.upstream.name().to_owned()) {
        return Vec::new();
    }
    let place = way.upstream.place();
    let other = same_redis(&place, &way.upstream.addresses(), origin);
    other.into_iter().chain(password(way, origin)).collect()
}

fn of_way(way: &BridgeRoute<'_>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let place = way.upstream.place();
    if !way.is_redis_proxy && way.upstream.is_redis_cluster() {
        findings.push(Diagnostic::error(
            "topology",
            place,
            "it is a Redis Cluster, but tcp_proxy connects to any of its nodes",
            "replace tcp_proxy by the redis_proxy of envoy/snippets/redis-cluster.yaml",
        ));
        return findings;
    }
    findings.extend(several_addresses(way));
    findings.extend(redis_proxy(way));
    findings.extend(idle(way));
    findings
}

fn several_addresses(way: &BridgeRoute<'_>) -> Option<Diagnostic> {
    let addresses = way.upstream.addresses();
    let is_bad = !way.is_redis_proxy && addresses.len() > 1 && !way.upstream.follows_primary();
    is_bad.then(|| {
        Diagnostic::error(
            "redis-several",
            way.upstream.place(),
            format!("it has {} addresses, and each connection uses one of them: each Redis would have only a part of the data", addresses.len()),
            "use one address with a DNS name that follows a failover, or the health check of envoy/snippets/redis-replicated.yaml; for a Redis Cluster see envoy/snippets/redis-cluster.yaml",
        )
    })
}

fn redis_proxy(way: &BridgeRoute<'_>) -> Option<Diagnostic> {
    let is_bad = way.is_redis_proxy
        && way.upstream.is_redis_cluster()
        && !(is_set(way.proxy, "settings.enable_hashtagging")
            && is_set(way.proxy, "settings.enable_redirection"));
    is_bad.then(|| {
        Diagnostic::error(
            "redis-proxy",
            format!("listener {}", way.listener.name()),
            "redis_proxy lacks enable_hashtagging or enable_redirection: calls would reach nodes without their keys",
            "set both to true in its settings",
        )
    })
}

fn idle(way: &BridgeRoute<'_>) -> Option<Diagnostic> {
    let is_bad = !way.is_redis_proxy && duration_ms(way.proxy, "idle_timeout") != Some(0);
    is_bad.then(|| {
        Diagnostic::warning(
            "bridge-idle",
            format!("listener {}", way.listener.name()),
            "tcp_proxy closes idle connections, possibly just as one is used again",
            "set idle_timeout: 0s: the filters close idle streams themselves",
        )
    })
}

fn same_redis(place: &str, gateways: &[String], origin: &OriginFacts) -> Option<Diagnostic> {
    if gateways.is_empty() || origin.redis_addresses.is_empty() {
        return None;
    }
    let spelt = |addresses: &[String]| -> BTreeSet<String> {
        addresses.iter().map(|text| same_spelling(text)).collect()
    };
    let (ours, theirs) = (spelt(gateways), spelt(&origin.redis_addresses));
    ours.is_disjoint(&theirs).then(|| {
        Diagnostic::warning(
            "redis-other",
            place,
            format!(
                "it connects to {}, but the origin uses {}: if these are different servers, gateways and origin do not share data",
                gateways.join(", "),
                origin.redis_addresses.join(", ")
            ),
            "use the same Redis in WEIR_REDIS_URL and in the cluster; ignore this if both names mean one server",
        )
    })
}

fn password(way: &BridgeRoute<'_>, origin: &OriginFacts) -> Option<Diagnostic> {
    let settings = bridge_settings(way.bridge).unwrap_or_default();
    let has_own = text(&settings, "auth.password.env").is_some();
    (origin.has_redis_password && !has_own).then(|| {
        Diagnostic::error(
            "redis-password",
            format!("listener {}", way.listener.name()),
            "the origin has a Redis password, but the bridge has none",
            "add \"auth\" to the bridge's configuration as in envoy/snippets/redis-tls.yaml",
        )
    })
}

/// A native filter has its own connections, whose addresses are in its settings.
fn native(filter: &Filter<'_>, cluster: &str, origin: Option<&OriginFacts>) -> Vec<Diagnostic> {
    let native = filter.native().unwrap_or_default();
    let redis = list(&native, "redis").iter();
    let Some(redis) = redis
        .into_iter()
        .find(|redis| text(redis, "name") == Some(cluster))
    else {
        return vec![Diagnostic::error(
            "redis-cluster",
            filter.place(),
            format!("native.redis lacks the address of the Redis named \"{cluster}\""),
            "add it as in envoy/native.yaml",
        )];
    };
    let addresses: Vec<String> = list(redis, "addresses")
        .iter()
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let is_cluster = text(redis, "kind") == Some("cluster");
    let wants_cluster = filter
        .redis()
        .iter()
        .any(|(name, redis)| *name == cluster && redis.topology == Topology::Cluster);
    let mut findings = Vec::new();
    if is_cluster != wants_cluster && filter.kind.spans_slots {
        findings.push(Diagnostic::error(
            "topology",
            filter.place(),
            "redis.topology and the kind in native.redis differ",
            "set both to single, or both to cluster",
        ));
    }
    if let Some(origin) = origin.filter(|_| needs_origin(filter)) {
        findings.extend(same_redis(&filter.place(), &addresses, origin));
    }
    findings
}
