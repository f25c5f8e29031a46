//! The filters of `envoy/all.yaml`: without requests they do nothing, and the first request starts their polls.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weir_host_test::{Host, LogLevel, Thread, Upstream};
use weir_stack::envoy::EnvoyConfig;
use weir_stack::wasm;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

const FILTERS: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// Filters that poll Redis.
const POLLING: [&str; 5] = [
    "ratelimit",
    "seckill-gate",
    "shortlink-redirect",
    "fitment",
    "waiting-room",
];

/// Each filter's name, and a host with two workers that runs it with the file's configuration.
fn hosts() -> Vec<(String, Host)> {
    let file = EnvoyConfig::all().unwrap().render().unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let filters = file.pointer(FILTERS).unwrap().as_array().unwrap();
    filters.iter().filter_map(host).collect()
}

fn host(filter: &Value) -> Option<(String, Host)> {
    let config = filter.pointer("/typed_config/config")?;
    let text = |pointer: &str| config.pointer(pointer).unwrap().as_str().unwrap();
    let module = Path::new(text("/vm_config/code/local/filename"));
    let module = module.file_stem().unwrap().to_str().unwrap();
    let mut builder = Host::builder()
        .module_file(wasm::filter(module).unwrap())
        .vm_id(text("/vm_config/vm_id"))
        .plugin_config(text("/configuration/value"))
        .workers(2)
        .allow_on_headers_stop_iteration()
        .cluster("weir_redis", Upstream::held())
        .cluster("origin", Upstream::held());
    let secrets = config.pointer("/vm_config/environment_variables/host_env_keys");
    for secret in secrets.and_then(Value::as_array).into_iter().flatten() {
        builder = builder.env(secret.as_str().unwrap(), SECRET);
    }
    Some((text("/root_id").to_owned(), builder.start().unwrap()))
}

#[test]
fn idle_filters_make_no_calls_and_log_no_warnings() {
    let hosts = hosts();
    assert_eq!(hosts.len(), weir_registry::FILTERS.len());
    for (name, host) in hosts {
        host.advance(Duration::from_secs(120));
        assert!(host.calls().is_empty(), "{name}: {:?}", host.calls());
        let grave = host.logs_from(LogLevel::Warn);
        assert!(grave.is_empty(), "{name}: {grave:?}");
    }
}

#[test]
fn worker_reads_redis_from_its_first_stream() {
    for (name, host) in hosts() {
        host.malformed_request(1);
        host.advance(Duration::from_millis(100));
        let threads: Vec<_> = host.calls().iter().map(|call| call.thread).collect();
        assert!(
            threads.iter().all(|thread| *thread == Thread::Worker(1)),
            "{name}: {threads:?}"
        );
        assert_eq!(
            POLLING.contains(&name.as_str()),
            !threads.is_empty(),
            "{name}"
        );
    }
}
