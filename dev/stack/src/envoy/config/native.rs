//! Converts a shipped file from WebAssembly filters to the native module.
//!
//! The Redis settings of the bridge's listener and clusters become the object `native` of each filter that uses them. The
//! bridge becomes `weir.worker_redis`, or is removed with its clusters if it serves a Redis Cluster. All else stays, so the
//! same tests run on both hosts.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::super::tree::{self, at, list, set};
use super::{CLUSTERS, LISTENERS, SETTINGS, TRUSTED_CA};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_registry::{Filter, RedisUse};

const WASM_FILTER: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
const NATIVE_FILTER: &str =
    "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const NATIVE_NETWORK_FILTER: &str = "type.googleapis.com/envoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilter";
const NATIVE_EXTENSION: &str = "type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension";
const DRAIN: &str = "weir.drain";
pub(super) const FAST_PATH: &str = "weir.fast_path";
const WORKER_REDIS: &str = "weir.worker_redis";

/// The pointer to a listener's port.
pub(super) const PORT: &str = "/address/socket_address/port_value";

/// The worker socket in `envoy/native.yaml`.
const SHIPPED_SOCKET: &str = "@weir-redis";

const TEXT: &str = "type.googleapis.com/google.protobuf.StringValue";
const REDIS_PROXY: &str = "envoy.filters.network.redis_proxy";
const INTERNAL_LISTENERS: &str = "envoy.bootstrap.internal_listener";

/// The library path in `envoy/native.yaml`.
const SHIPPED_LIBRARY: &str = "target/native/libweir_native.so";

/// The metric prefix of both hosts, so that tests find metrics in either.
const METRICS: &str = "wasmcustom";

/// Gives Prometheus metrics the names that they have in WebAssembly.
const METRICS_WITHOUT_PREFIX: &str =
    "envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix";

/// The bridge's default cluster, for configurations without a name.
const DEFAULT_REDIS: &str = "weir_redis";

/// Longer than any successful connection takes.
const CONNECT_PATIENT_MS: u64 = 10_000;

/// Converts a complete Envoy configuration.
pub(super) fn convert(root: &mut Value, library: &Path) -> Result<()> {
    let redis = take_bridges(root, library)?;
    let metrics = json!({ "name": "weir", "static_layer": { METRICS_WITHOUT_PREFIX: true } });
    match root["layered_runtime"]["layers"].as_array_mut() {
        // Later layers override, so values that the admin interface sets must stay last.
        Some(layers) => {
            // Replacing the configuration of a running Envoy runs this code again.
            layers.retain(|layer| layer["name"] != metrics["name"]);
            layers.insert(0, metrics);
        }
        None => root["layered_runtime"] = json!({ "layers": [metrics] }),
    }
    let mut result = Ok(());
    tree::visit(root, &mut |value| {
        let name = value["name"].as_str();
        let is_ours = name.and_then(Filter::of_envoy_name).is_some();
        let is_wasm = value["typed_config"]["@type"] == WASM_FILTER;
        if is_ours && is_wasm && result.is_ok() {
            result = convert_filter(value, &redis, library);
        }
    });
    result?;
    for listener in list(root, LISTENERS)? {
        for chain in list(listener, "/filter_chains")? {
            add_fast_path(chain, library)?;
        }
    }
    add_drain(root, library)
}

/// Adds the extension that tells the fast path of a drain.
fn add_drain(root: &mut Value, library: &Path) -> Result<()> {
    if root.get("bootstrap_extensions").is_none() {
        root["bootstrap_extensions"] = json!([]);
    }
    let extensions = list(root, "/bootstrap_extensions")?;
    extensions.retain(|extension| extension["name"] != DRAIN);
    extensions.push(json!({
        "name": DRAIN,
        "typed_config": {
            "@type": NATIVE_EXTENSION,
            "dynamic_module_config": {
                "module": { "local": { "filename": library } },
                "do_not_close": true,
            },
            "extension_name": DRAIN,
        },
    }));
    Ok(())
}

/// The filters that the fast path may query, and their names there.
const FAST: [(&str, &str); 4] = [
    ("weir.seckill_gate", "gate"),
    ("weir.shortlink_redirect", "links"),
    ("weir.waiting_room", "room"),
    ("weir.ratelimit", "limits"),
];

/// Adds `weir.fast_path` before a connection manager whose only filter is supported by the fast path.
fn add_fast_path(chain: &mut Value, library: &Path) -> Result<()> {
    let filters = list(chain, "/filters")?;
    let is_there = filters.iter().any(|filter| filter["name"] == FAST_PATH);
    let mut managers = filters.iter_mut().filter_map(|filter| {
        let manager = filter.get_mut("typed_config")?.as_object_mut()?;
        manager.contains_key("http_filters").then_some(manager)
    });
    let Some(manager) = managers.next() else {
        return Ok(());
    };
    let mut settings = address_settings(manager);
    let http_filters = manager
        .get_mut("http_filters")
        .and_then(Value::as_array_mut);
    let Some([filter, _router]) = http_filters.map(Vec::as_mut_slice) else {
        return Ok(());
    };
    let named = FAST
        .iter()
        .find(|(filter_name, _)| filter["name"] == *filter_name);
    let is_native = filter["typed_config"]["@type"] == NATIVE_FILTER;
    let Some((_, name)) = named.filter(|_| is_native && !is_there) else {
        return Ok(());
    };
    let mut is_object = false;
    edit(filter, |json| {
        is_object = json.is_object();
        if is_object {
            json["native"]["name"] = (*name).into();
        }
        Ok(())
    })
    .ok();
    // Keeps an invalid configuration unchanged, so that Envoy refuses it.
    if is_object {
        settings["ask"] = json!([name]);
        settings["trusts_user_header"] = true.into();
        filters.insert(0, network_filter(FAST_PATH, &settings.to_string(), library));
    }
    Ok(())
}

/// The connection manager's settings that the fast path must share.
fn address_settings(manager: &Map<String, Value>) -> Value {
    let mut settings = json!({});
    // Its default is false in the connection manager, and true in the fast path.
    if manager.get("use_remote_address") != Some(&Value::Bool(true)) {
        settings["use_remote_address"] = false.into();
    }
    for name in ["skip_xff_append", "xff_num_trusted_hops"] {
        if let Some(value) = manager.get(name) {
            settings[name] = value.clone();
        }
    }
    settings
}

fn network_filter(name: &str, settings: &str, library: &Path) -> Value {
    json!({
        "name": name,
        "typed_config": {
            "@type": NATIVE_NETWORK_FILTER,
            "dynamic_module_config": {
                "module": { "local": { "filename": library } },
                "do_not_close": true,
            },
            "filter_name": name,
            "filter_config": { "@type": TEXT, "value": settings },
        },
    })
}

fn convert_filter(filter: &mut Value, redis: &Map<String, Value>, library: &Path) -> Result<()> {
    let name = filter["name"].as_str().context("no name")?.to_owned();
    let settings = filter.pointer(SETTINGS).and_then(Value::as_str);
    let settings = settings.unwrap_or_default();
    let settings = match serde_json::from_str::<Value>(settings) {
        Ok(mut json) if json.is_object() => {
            let requested = redis_names(&name, &json);
            let requested: Vec<&Value> = requested
                .iter()
                .filter_map(|name| redis.get(name))
                .collect();
            // Keeps other settings that a test adds.
            json["native"]["redis"] = json!(requested);
            json.to_string()
        }
        // Both hosts refuse what is not a configuration.
        _ => settings.to_owned(),
    };
    filter["typed_config"] = typed_config(&name, &settings, library);
    Ok(())
}

fn typed_config(name: &str, settings: &str, library: &Path) -> Value {
    json!({
        "@type": NATIVE_FILTER,
        "dynamic_module_config": {
            "module": { "local": { "filename": library } },
            "do_not_close": true,
            "metrics_namespace": METRICS,
        },
        "filter_name": name,
        "filter_config": { "@type": TEXT, "value": settings },
    })
}

/// The native filter `name` with these settings, as listed in a listener. `address` has the address and the worker socket of
/// each Redis that they name. The connect timeout is long, for busy machines.
pub fn native_filter(
    name: &str,
    settings: &Value,
    address: impl Fn(&str) -> (String, Option<String>),
    library: &Path,
) -> Value {
    let mut settings = settings.clone();
    let redis = |redis: String| {
        let (address, worker_socket) = address(&redis);
        json!({
            "name": redis, "addresses": [address], "connect_timeout_ms": CONNECT_PATIENT_MS, "worker_socket": worker_socket,
        })
    };
    let requested: Vec<Value> = redis_names(name, &settings)
        .into_iter()
        .map(redis)
        .collect();
    settings["native"] = json!({ "redis": requested });
    json!({ "name": name, "typed_config": typed_config(name, &settings.to_string(), library) })
}

/// The names of the Redis servers that a filter's configuration uses.
fn redis_names(filter: &str, settings: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let mut copy = settings.clone();
    tree::visit(&mut copy, &mut |value| {
        if let Some(redis) = value.get("redis").filter(|redis| redis.is_object()) {
            let name = redis["cluster"].as_str().unwrap_or(DEFAULT_REDIS);
            names.push(name.to_owned());
        }
    });
    let further = settings["clusters"].as_object().into_iter().flatten();
    names.extend(further.filter_map(|(_, name)| name.as_str().map(str::to_owned)));
    let is_shared = |filter: &Filter| filter.redis == RedisUse::Shared;
    if names.is_empty() && Filter::of_envoy_name(filter).is_some_and(is_shared) {
        names.push(DEFAULT_REDIS.to_owned());
    }
    names.sort();
    names.dedup();
    names
}

/// Replaces all bridges. Returns the Redis settings of each one's cluster, by its name.
fn take_bridges(root: &mut Value, library: &Path) -> Result<Map<String, Value>> {
    let mut redis = Map::new();
    let listeners = list(root, LISTENERS)?;
    let ports = listeners.iter().filter_map(|it| it.pointer(PORT)?.as_u64());
    let port = ports.min().unwrap_or_default();
    let is_bridge = |listener: &Value| !listener["internal_listener"].is_null();
    let bridges: Vec<Value> = listeners.iter().filter(|l| is_bridge(l)).cloned().collect();
    listeners.retain(|listener| !is_bridge(listener));
    for bridge in bridges {
        let listener = bridge["name"].as_str().context("a bridge has no name")?;
        let upstream = upstream_of(&bridge)?;
        let clusters = list(root, CLUSTERS)?;
        let names: Vec<String> = clusters
            .iter()
            .filter(|cluster| cluster.to_string().contains(&internal_address(listener)))
            .filter_map(|cluster| cluster["name"].as_str().map(str::to_owned))
            .collect();
        let upstream = clusters[tree::position(clusters, &upstream)?].clone();
        let is_cluster = bridge.to_string().contains(REDIS_PROXY);
        let socket = worker_socket(listener, port);
        for name in &names {
            let mut of = redis_of(name, &bridge, &upstream)?;
            if !is_cluster {
                of["worker_socket"] = socket.clone().into();
            }
            redis.insert(name.clone(), of);
        }
        clusters.retain(|cluster| {
            let name = &cluster["name"];
            let is_unused = is_cluster && *name == upstream["name"];
            names.iter().all(|removed| name != removed) && !is_unused
        });
        if !is_cluster {
            let password = redis.values().find_map(|of| of.get("password")).cloned();
            let listener = worker_listener(bridge.clone(), &socket, password, library)?;
            list(root, LISTENERS)?.push(listener);
        }
    }
    if let Some(Value::Array(extensions)) = root.get_mut("bootstrap_extensions") {
        extensions.retain(|extension| extension["name"] != INTERNAL_LISTENERS);
    }
    Ok(redis)
}

/// The socket of `weir.worker_redis` that replaces the bridge `listener`, in the Envoy with this gateway port.
pub fn worker_socket(listener: &str, gateway_port: u64) -> String {
    format!("@weir-{listener}-{gateway_port}")
}

/// A bridge's listener with `weir.worker_redis` in its place.
fn worker_listener(
    mut bridge: Value,
    socket: &str,
    password: Option<Value>,
    library: &Path,
) -> Result<Value> {
    let listener = bridge.as_object_mut().context("a bridge is no object")?;
    listener.remove("internal_listener");
    listener.insert("address".into(), json!({ "pipe": { "path": socket } }));
    listener.insert(
        "connection_balance_config".into(),
        json!({ "exact_balance": {} }),
    );
    let mut settings = json!({ "socket": socket });
    if let Some(password) = password {
        settings["password"] = password;
    }
    let filter = network_filter(WORKER_REDIS, &settings.to_string(), library);
    *at(&mut bridge, "/filter_chains/0/filters/0")? = filter;
    Ok(bridge)
}

/// Renames the worker sockets of a converted configuration for another gateway port.
pub(super) fn rename_worker_sockets(root: &mut Value, before: u64, after: u16) {
    let suffix = format!("-{before}");
    tree::visit(root, &mut |value| {
        let Some(text) = value.as_str().filter(|text| text.contains("@weir-")) else {
            return;
        };
        let renamed = text
            .split('"')
            .map(|part| match part.strip_suffix(&suffix) {
                Some(name) if part.starts_with("@weir-") => format!("{name}-{after}"),
                _ => part.to_owned(),
            });
        *value = renamed.collect::<Vec<_>>().join("\"").into();
    });
}

/// Gives the worker socket of `envoy/native.yaml` a name of its own, because it is one namespace for the whole machine.
pub(super) fn set_worker_socket(root: &mut Value) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("@weir-redis-{}-{number}", std::process::id());
    tree::visit(root, &mut |value| {
        if let Some(text) = value.as_str().filter(|text| text.contains(SHIPPED_SOCKET)) {
            *value = text.replace(SHIPPED_SOCKET, &name).into();
        }
    });
}

fn internal_address(listener: &str) -> String {
    format!(r#""server_listener_name":"{listener}""#)
}

/// The upstream cluster of a bridge's listener.
fn upstream_of(bridge: &Value) -> Result<String> {
    let text = bridge.to_string();
    let cluster = text.rsplit(r#""cluster":""#).next();
    let cluster = cluster.and_then(|rest| rest.split('"').next());
    cluster.map(str::to_owned).context("a bridge goes nowhere")
}

/// The `native.redis` settings of one Redis.
fn redis_of(name: &str, bridge: &Value, upstream: &Value) -> Result<Value> {
    let mut upstream = upstream.clone();
    let endpoints = list(&mut upstream, tree::ENDPOINTS)?.clone();
    let address = |endpoint: &Value| {
        let socket = &endpoint["endpoint"]["address"]["socket_address"];
        let host = socket["address"].as_str().unwrap_or_default();
        format!("{host}:{}", socket["port_value"])
    };
    let addresses: Vec<String> = endpoints.iter().map(address).collect();
    let is_cluster = bridge.to_string().contains(REDIS_PROXY);
    let timeout = upstream["connect_timeout"].as_str().unwrap_or("1s");
    let timeout_s: f64 = timeout.trim_end_matches('s').parse()?;
    let kind = match (is_cluster, addresses.len()) {
        (true, _) => "cluster",
        (false, 1) => "single",
        (false, _) => "replicated",
    };
    let mut redis = json!({
        "name": name,
        "kind": kind,
        "addresses": addresses,
        "connect_timeout_ms": (timeout_s * 1_000.0).round() as u64,
    });
    if let Some(ca) = upstream.pointer(TRUSTED_CA) {
        redis["tls"] = json!({ "ca_file": ca, "server_name": "localhost" });
    }
    let settings = bridge.pointer("/filter_chains/0/filters/0");
    let settings = settings.and_then(|filter| filter.pointer(SETTINGS)?.as_str());
    let settings: Value = serde_json::from_str(settings.unwrap_or("{}"))?;
    if let Some(password) = settings.pointer("/auth/password/env") {
        redis["password"] = json!({ "env": password });
    }
    Ok(redis)
}

/// Replaces the library that `envoy/native.yaml` names.
pub(super) fn set_library(root: &mut Value, library: &Path) {
    tree::visit(root, &mut |value| {
        if value.as_str() == Some(SHIPPED_LIBRARY) {
            *value = library.display().to_string().into();
        }
    });
}

/// Changes the settings of a native filter.
pub(super) fn edit(filter: &mut Value, edit: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
    let settings = at(filter, "/typed_config/filter_config/value")?;
    let mut json: Value = serde_json::from_str(settings.as_str().context("no text")?)?;
    edit(&mut json)?;
    *settings = json.to_string().into();
    Ok(())
}

/// Sets the Redis address of a native filter.
pub(super) fn set_redis(filter: &mut Value, port: u16) -> Result<()> {
    let address = format!("127.0.0.1:{port}");
    edit(filter, |json| {
        set(json, "/native/redis/0/addresses/0", address)
    })
}

#[cfg(test)]
mod tests {
    use super::super::EnvoyConfig;
    use super::*;
    use weir_registry::FILTERS;

    fn native(config: Result<EnvoyConfig>) -> Value {
        let mut tree = config.unwrap().tree;
        convert(&mut tree, Path::new("/lib.so")).unwrap();
        tree
    }

    fn redis(tree: &Value) -> Value {
        let filters = "/static_resources/listeners/0/filter_chains/0/filters";
        let filters = tree.pointer(filters).unwrap().as_array().unwrap();
        let manager = filters
            .iter()
            .find(|filter| !filter["typed_config"]["http_filters"].is_null());
        let value = "/typed_config/http_filters/0/typed_config/filter_config/value";
        let text = manager.unwrap().pointer(value).unwrap().as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()["native"]["redis"].clone()
    }

    #[test]
    fn native_config_has_redis_addresses_and_no_bridge() {
        let config = EnvoyConfig::shipped().and_then(|config| config.redis("127.0.0.1", 7));
        let tree = native(config);
        let expected = json!([{
            "name": "weir_redis", "kind": "single",
            "addresses": ["127.0.0.1:7"], "connect_timeout_ms": 200,
            "worker_socket": "@weir-weir_redis-10000",
        }]);
        assert_eq!(redis(&tree), expected);
        let text = tree.to_string();
        assert!(
            !text.contains("wasm.v3") && !text.contains("internal"),
            "{text}"
        );
        // The listener of the bridge became that of the workers.
        assert!(
            text.contains(r#""pipe":{"path":"@weir-weir_redis-10000"}"#),
            "{text}"
        );
    }

    #[test]
    fn each_shipped_filter_runs_natively() {
        for filter in FILTERS {
            let text = native(EnvoyConfig::alone(filter.envoy_name)).to_string();
            let name = format!(r#""filter_name":"{}""#, filter.envoy_name);
            assert!(text.contains(&name), "{text}");
            assert!(!text.contains("wasm.v3"), "{text}");
        }
    }

    /// Normalizes filter settings: parses them, and removes values that equal their defaults.
    fn read_settings(tree: &mut Value) {
        tree::visit(tree, &mut |value| {
            let is_http = value["@type"] == NATIVE_FILTER;
            if is_http || value["@type"] == NATIVE_NETWORK_FILTER {
                let settings = value.pointer_mut("/filter_config/value").unwrap();
                let mut json: Value = serde_json::from_str(settings.as_str().unwrap()).unwrap();
                if is_http {
                    let redis = json["native"]["redis"][0].as_object_mut().unwrap();
                    let shown = ["name", "addresses", "worker_socket"];
                    redis.retain(|name, _| shown.contains(&name.as_str()));
                }
                *settings = json;
            }
            if value.as_str() == Some("@weir-weir_redis-10000") {
                *value = SHIPPED_SOCKET.into();
            }
        });
    }

    #[test]
    fn native_file_differs_from_wasm_only_in_filter_and_bridge() {
        let mut wasm = EnvoyConfig::shipped().unwrap().tree;
        convert(&mut wasm, Path::new(SHIPPED_LIBRARY)).unwrap();
        let mut native = EnvoyConfig::read(super::super::NATIVE).unwrap().tree;
        // WebAssembly metric tags; the module uses Envoy's own. Nothing else remains.
        wasm.as_object_mut().unwrap().remove("stats_config");
        for tree in [&mut wasm, &mut native] {
            read_settings(tree);
        }
        assert_eq!(format!("{wasm:#}"), format!("{native:#}"));
    }

    #[test]
    fn native_config_has_password_tls_and_cluster_of_redis() {
        let tls = EnvoyConfig::shipped().and_then(|config| {
            config
                .redis_tls(Path::new("/ca.pem"))?
                .redis("127.0.0.1", 7)
        });
        let redis_of = redis(&native(tls));
        assert_eq!(redis_of[0]["tls"]["ca_file"], "/ca.pem");
        assert_eq!(redis_of[0]["password"]["env"], "WEIR_REDIS_PASSWORD");
        let cluster = EnvoyConfig::shipped().and_then(|config| config.redis_cluster([1, 2, 3]));
        let redis_of = redis(&native(cluster));
        assert_eq!(redis_of[0]["kind"], "cluster");
        assert_eq!(redis_of[0]["addresses"][2], "127.0.0.1:3");
    }

    #[test]
    fn filter_alone_on_its_listener_gets_the_fast_path() {
        for (filter, name) in FAST {
            let text = native(EnvoyConfig::alone(filter)).to_string();
            let settings = format!(r#"\"ask\":[\"{name}\"],\"trusts_user_header\":true"#);
            assert!(text.contains(&settings), "{filter}: {text}");
        }
    }

    #[test]
    fn native_limiter_without_redis_has_no_redis_settings() {
        let tree = native(EnvoyConfig::ratelimit(false));
        assert_eq!(redis(&tree), json!([]));
    }
}
