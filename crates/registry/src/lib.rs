//! The list of Weir's HTTP filters.
//!
//! Everything that works on all filters iterates over [`FILTERS`]: the native module, the doctor, the test stack, the
//! settings reference and the conformance suite. The feature `engines` adds [`engines`], which checks configurations
//! and builds engines for any host. `CONTRIBUTING.md` describes how to add a filter.
//!
//! ```
//! use weir_registry::{Filter, LIMITER};
//!
//! let filter = Filter::of_module("ratelimit-headers").unwrap();
//! assert_eq!(*filter, LIMITER);
//! assert_eq!(filter.envoy_name, "weir.ratelimit");
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "engines")]
pub mod engines;

/// One HTTP filter: facts that hosts and tools need before they read a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Filter {
    /// Its folder below `filters/`, its module without `.wasm`, its root id, and its engine's name.
    pub name: &'static str,
    /// Its name in Envoy's configuration, and the native module's `filter_name`.
    pub envoy_name: &'static str,
    /// The folder of its engine's crate in `crates/`.
    pub crate_folder: &'static str,
    /// The file in `envoy/` that shows the filter alone.
    pub envoy_file: &'static str,
    /// The labels of its metrics.
    pub labels: &'static [&'static str],
    /// The label that precedes the others in each metric's name, if any.
    pub outer_label: Option<&'static str>,
    /// The module with the callback for responses, if the engine changes any. A native filter always has that callback.
    pub responses_module: Option<&'static str>,
    /// Whether it reads bodies: its module has that callback, and Envoy needs `allow_on_headers_stop_iteration`.
    pub reads_bodies: bool,
    /// How it uses Redis.
    pub redis: RedisUse,
    /// Whether one call to Redis touches keys of several slots, so that the engine must know whether Redis is a cluster.
    pub spans_slots: bool,
    /// Whether forwarded requests must reach a certain route, so that the doctor checks the routes.
    pub needs_routes: bool,
}

/// How a filter uses Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisUse {
    /// It always reads Redis, for data that the origin writes.
    Shared,
    /// It uses Redis only if configured, and may have a separate Redis.
    Configured,
}

/// Flash-sale admission.
pub const GATE: Filter = Filter {
    name: "seckill-gate",
    envoy_name: "weir.seckill_gate",
    crate_folder: "sale",
    envoy_file: "weir.yaml",
    labels: &["verdict", "outcome", "reason", "state", "le"],
    outer_label: None,
    responses_module: None,
    reads_bodies: false,
    redis: RedisUse::Shared,
    spans_slots: true,
    needs_routes: true,
};

/// Rate limits.
pub const LIMITER: Filter = Filter {
    name: "ratelimit",
    envoy_name: "weir.ratelimit",
    crate_folder: "limit",
    envoy_file: "ratelimit.yaml",
    labels: &["rule", "reason", "state", "le"],
    outer_label: None,
    responses_module: Some("ratelimit-headers"),
    reads_bodies: false,
    redis: RedisUse::Configured,
    spans_slots: true,
    needs_routes: false,
};

/// Short links.
pub const LINKS: Filter = Filter {
    name: "shortlink-redirect",
    envoy_name: "weir.shortlink_redirect",
    crate_folder: "link",
    envoy_file: "shortlink.yaml",
    labels: &["answer", "place", "outcome", "reason", "state", "le"],
    outer_label: None,
    responses_module: None,
    reads_bodies: false,
    redis: RedisUse::Shared,
    spans_slots: false,
    needs_routes: true,
};

/// Behaviour events.
pub const EVENTS: Filter = Filter {
    name: "events",
    envoy_name: "weir.events",
    crate_folder: "event",
    envoy_file: "events.yaml",
    labels: &["outcome", "rule", "reason", "state", "le"],
    outer_label: None,
    responses_module: Some("events"),
    reads_bodies: false,
    redis: RedisUse::Configured,
    spans_slots: true,
    needs_routes: true,
};

/// Vehicle fitment.
pub const FITMENT: Filter = Filter {
    name: "fitment",
    envoy_name: "weir.fitment",
    crate_folder: "fitment",
    envoy_file: "fitment.yaml",
    labels: &["answer", "outcome", "reason", "state", "le"],
    outer_label: None,
    responses_module: None,
    reads_bodies: true,
    redis: RedisUse::Shared,
    spans_slots: false,
    needs_routes: true,
};

/// Waiting rooms.
pub const ROOM: Filter = Filter {
    name: "waiting-room",
    envoy_name: "weir.waiting_room",
    crate_folder: "room",
    envoy_file: "waiting-room.yaml",
    labels: &["room", "outcome", "reason", "le"],
    outer_label: Some("room"),
    responses_module: Some("waiting-room"),
    reads_bodies: false,
    redis: RedisUse::Shared,
    spans_slots: false,
    needs_routes: true,
};

/// All filters, in the order of the manual.
pub static FILTERS: &[Filter] = &[GATE, LIMITER, LINKS, EVENTS, FITMENT, ROOM];

impl Filter {
    /// The filter of a module of any variant: `seckill-gate`, `ratelimit-headers`.
    pub fn of_module(module: &str) -> Option<&'static Self> {
        let mut all = FILTERS.iter();
        all.find(|filter| filter.name == module || filter.responses_module == Some(module))
    }

    /// The filter with this name in Envoy's configuration: `weir.seckill_gate`.
    pub fn of_envoy_name(name: &str) -> Option<&'static Self> {
        FILTERS.iter().find(|filter| filter.envoy_name == name)
    }

    /// Whether this module of the filter has the callback for responses.
    pub fn sees_responses(&self, module: &str) -> bool {
        self.responses_module == Some(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// The section of a manifest that describes its module.
    const METADATA: &str = "[package.metadata.weir]";

    fn workspace() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn text(file: &str) -> String {
        let path = workspace().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    }

    /// The callbacks of a module from its filter's manifest: its own and those of a variant.
    fn has_callback(filter: &Filter, module: &str, callback: &str) -> bool {
        let manifest = text(&format!("filters/{}/Cargo.toml", filter.name));
        let metadata = manifest.split_once(METADATA).unwrap().1;
        let variant = format!("[package.metadata.weir.variants.{module}]");
        let own = metadata.split("\n[").next().unwrap();
        let further = metadata.split_once(&variant).map(|(_, rest)| rest);
        let further = further.and_then(|rest| rest.split("\n[").next());
        [Some(own), further]
            .into_iter()
            .flatten()
            .any(|part| part.contains(&format!("\"{callback}\"")))
    }

    #[test]
    fn each_filter_in_the_filters_directory_is_listed() {
        let folders = std::fs::read_dir(workspace().join("filters")).unwrap();
        let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // The bridge is a network filter; a folder without callbacks contains no filter.
        let is_http = |name: &String| {
            name != "redis-bridge" && text(&format!("filters/{name}/Cargo.toml")).contains(METADATA)
        };
        let mut names: Vec<_> = names.filter(is_http).collect();
        let mut listed: Vec<_> = FILTERS.iter().map(|filter| filter.name).collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }

    #[test]
    fn listed_callbacks_match_the_manifests() {
        for filter in FILTERS {
            let name = filter.name;
            let has = |module, callback| has_callback(filter, module, callback);
            assert_eq!(
                has(name, "proxy_on_request_body"),
                filter.reads_bodies,
                "{name}"
            );
            let module = filter.responses_module.unwrap_or(name);
            assert_eq!(
                has(module, "proxy_on_response_headers"),
                filter.responses_module.is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn each_filter_is_in_its_envoy_file_and_in_all_yaml() {
        for filter in FILTERS {
            for file in [filter.envoy_file, "all.yaml"] {
                let name = format!("name: {}\n", filter.envoy_name);
                let yaml = text(&format!("envoy/{file}"));
                assert!(yaml.contains(&name), "{name} is missing in {file}");
            }
        }
    }

    #[test]
    fn filters_are_found_by_module_and_by_name() {
        for filter in FILTERS {
            let existing = Some(filter);
            assert_eq!(Filter::of_module(filter.name), existing);
            assert_eq!(Filter::of_envoy_name(filter.envoy_name), existing);
        }
        assert_eq!(Filter::of_module("ratelimit-headers"), Some(&LIMITER));
        assert_eq!(Filter::of_module("redis-bridge"), None);
        assert!(!LIMITER.sees_responses("ratelimit"));
        assert!(LIMITER.sees_responses("ratelimit-headers"));
    }
}
