//! Envoy listeners, each with a filter and the configuration of one vector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use weir_registry::Filter;
use weir_stack::envoy::native_filter;
use weir_stack::workspace;

use crate::hosts::engine::{REDIS_CLUSTER, reads_bodies};
use crate::vector::Vector;

/// The origin's cluster name in `envoy/weir.yaml`.
const ORIGIN_CLUSTER: &str = "origin";

/// Secrets that the gate of `envoy/weir.yaml` itself requires, although it receives no requests.
pub(super) fn shipped_secrets() -> BTreeMap<String, String> {
    ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET"]
        .map(|name| (name.to_owned(), "00".repeat(32)))
        .into()
}

/// Longer than any Redis call takes in these tests.
const DEADLINE_MS: u64 = 20_000;

/// An address without a listener: the discard service's.
const NOWHERE: &str = "127.0.0.1:9";

/// How Envoy loads the filters.
pub(super) enum Loader {
    /// As modules in WebAssembly, behind the bridge.
    Wasm,
    /// As the native module, with its own connections to the Redis at this port.
    Native {
        library: PathBuf,
        redis_port: u16,
        /// The socket of the workers' own connections.
        worker_socket: String,
    },
}

impl Loader {
    /// The listener of a vector. It forwards requests that pass the filter to the origin.
    pub(super) fn listener(&self, vector: &Vector, socket: &Path) -> Result<String> {
        let secrets: Vec<&String> = vector.secrets.keys().collect();
        let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": ORIGIN_CLUSTER } });
        let filter = self.filter(&vector.engine, &vector.config, &secrets)?;
        Ok(listener(&filter, &route, socket))
    }

    /// A listener whose filter queries Redis for each request. In WebAssembly, it answers after all earlier work has
    /// finished.
    pub(super) fn fence(&self, socket: &Path) -> Result<String> {
        let config = json!({
            "redis": { "cluster": REDIS_CLUSTER, "key_prefix": "fence" },
            "rules": [{ "name": "fence", "store": "redis", "limit": { "rate": 1_000_000, "per": "1s" } }],
        });
        let route = json!({ "match": { "prefix": "/" }, "direct_response": { "status": 200 } });
        let filter = self.filter("ratelimit", &config, &[])?;
        Ok(listener(&filter, &route, socket))
    }

    fn filter(&self, module: &str, config: &Value, secrets: &[&String]) -> Result<Value> {
        let config = &patient(config);
        match self {
            Self::Wasm => Ok(wasm_filter(module, config, secrets)),
            Self::Native {
                library,
                redis_port,
                worker_socket,
            } => {
                let address = |name: &str| match name {
                    REDIS_CLUSTER => {
                        let address = format!("127.0.0.1:{redis_port}");
                        (address, Some(worker_socket.clone()))
                    }
                    _ => (NOWHERE.to_owned(), None),
                };
                let filter = Filter::of_module(module).context("there is no such filter")?;
                Ok(native_filter(filter.envoy_name, config, address, library))
            }
        }
    }
}

/// The same configuration with a Redis deadline that a busy machine can meet. Clocks are stopped, but deadlines use
/// real time, and no vector tests them.
fn patient(config: &Value) -> Value {
    let mut config = config.clone();
    let redis = config.get_mut("redis").and_then(Value::as_object_mut);
    if let Some(redis) = redis {
        redis.entry("deadline_ms").or_insert(DEADLINE_MS.into());
    }
    config
}

/// Modules are built before any Envoy starts.
fn module_file(module: &str) -> String {
    let file = workspace::out_dir().join(format!("{module}.wasm"));
    file.display().to_string()
}

fn wasm_filter(module: &str, config: &Value, secrets: &[&String]) -> Value {
    json!({
        "name": module,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": module,
                "root_id": module,
                "failure_policy": "FAIL_CLOSED",
                "allow_on_headers_stop_iteration": reads_bodies(module),
                "vm_config": {
                    // One VM for all vectors of a module, each with its own context.
                    "vm_id": format!("conformance-{module}"),
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": { "local": { "filename": module_file(module) } },
                    "environment_variables": { "host_env_keys": secrets },
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": config.to_string(),
                },
            },
        },
    })
}

fn listener(filter: &Value, route: &Value, socket: &Path) -> String {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": true,
        },
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "conformance",
        "codec_type": "HTTP1",
        // The PROXY protocol sets the client's address, and requests reach the filter as in the vector.
        "use_remote_address": true,
        "skip_xff_append": true,
        "generate_request_id": false,
        "server_header_transformation": "PASS_THROUGH",
        "max_request_headers_kb": 96,
        "http_filters": [filter, router],
        "route_config": {
            "name": "conformance",
            "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }],
        },
    });
    let listener = json!({
        "name": socket.display().to_string(),
        "address": { "pipe": { "path": socket.display().to_string() } },
        "listener_filters": [{
            "name": "envoy.filters.listener.proxy_protocol",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
            },
        }],
        "filter_chains": [{
            "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }],
        }],
    });
    listener.to_string()
}
