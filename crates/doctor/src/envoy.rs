//! Envoy's configuration as a tree, from any source.

use serde_json::{Map, Value};

use crate::tree::{at, field, list, number, text, type_of};

/// `ROLE\r\n` in hexadecimal, as a health check writes it.
const ROLE: &str = "524F4C450D0A";

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is neither YAML nor JSON. (JSON is YAML.)
    #[error("it is not YAML")]
    NotYaml(#[from] yaml_serde::Error),
    /// It is not an Envoy configuration.
    #[error(
        "it is not an Envoy configuration: it has neither static_resources nor the content of /config_dump"
    )]
    NotEnvoy,
}

/// Envoy's configuration: a bootstrap with all listeners, clusters and routes in it.
#[derive(Clone, Debug)]
pub struct Envoy {
    root: Value,
    /// Routes received over the network, by name.
    routes: Vec<Value>,
}

impl Envoy {
    /// Parses a bootstrap in YAML or JSON, or the content of `/config_dump` on the admin port.
    ///
    /// # Errors
    /// If it is neither.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        let tree: Value = yaml_serde::from_str(text)?;
        Self::from_tree(tree)
    }

    /// The same for a parsed tree.
    ///
    /// # Errors
    /// If it is not an Envoy configuration.
    pub fn from_tree(tree: Value) -> Result<Self, ReadError> {
        if tree.get("configs").is_some() {
            return Self::of_dump(&tree).ok_or(ReadError::NotEnvoy);
        }
        let is_bootstrap = ["static_resources", "dynamic_resources"];
        match is_bootstrap.iter().any(|name| field(&tree, name).is_some()) {
            true => Ok(Self {
                root: tree,
                routes: Vec::new(),
            }),
            false => Err(ReadError::NotEnvoy),
        }
    }

    /// The bootstrap of a dump, merged with what Envoy received over the network.
    fn of_dump(dump: &Value) -> Option<Self> {
        let parts = list(dump, "configs");
        let of_kind = |kind: &str| {
            let is = |part: &&Value| text(part, "@type").is_some_and(|name| name.ends_with(kind));
            parts.iter().find(is)
        };
        let mut root = field(of_kind("BootstrapConfigDump")?, "bootstrap")?.clone();
        let listeners = of_kind("ListenersConfigDump").map_or_else(Vec::new, |part| {
            let fixed = list(part, "static_listeners").iter();
            let moving = list(part, "dynamic_listeners").iter();
            let moving = moving.filter_map(|listener| field(listener, "active_state"));
            let all = fixed.chain(moving);
            all.filter_map(|held| field(held, "listener").cloned())
                .collect()
        });
        let clusters = of_kind("ClustersConfigDump").map_or_else(Vec::new, |part| {
            let fixed = list(part, "static_clusters").iter();
            let all = fixed.chain(list(part, "dynamic_active_clusters"));
            all.filter_map(|held| field(held, "cluster").cloned())
                .collect()
        });
        let mut resources = Map::new();
        resources.insert("listeners".into(), listeners.into());
        resources.insert("clusters".into(), clusters.into());
        root.as_object_mut()?
            .insert("static_resources".into(), resources.into());
        let routes = of_kind("RoutesConfigDump").map_or_else(Vec::new, |part| {
            let all = list(part, "dynamic_route_configs").iter();
            all.filter_map(|held| field(held, "route_config").cloned())
                .collect()
        });
        Some(Self { root, routes })
    }

    /// Whether the name of a variable occurs anywhere in it, as a whole word.
    pub fn mentions(&self, name: &str) -> bool {
        let text = self.root().to_string();
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let mut ends = text.match_indices(name).map(|(at, _)| at + name.len());
        ends.any(|end| {
            text.get(end..)
                .is_some_and(|rest| !rest.starts_with(is_part))
        })
    }

    /// The whole tree.
    pub(crate) fn root(&self) -> &Value {
        &self.root
    }

    /// The listeners.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = Listener<'_>> {
        let listeners = list(&self.root, "static_resources.listeners").iter();
        listeners.map(|value| Listener { value })
    }

    /// The clusters.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = Cluster<'_>> {
        let clusters = list(&self.root, "static_resources.clusters").iter();
        clusters.map(|value| Cluster { value })
    }

    /// Whether clusters or routes may come over the network, so that this configuration is incomplete.
    pub(crate) fn is_partial(&self) -> bool {
        field(&self.root, "dynamic_resources").is_some() && self.routes.is_empty()
    }

    /// The cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Option<Cluster<'_>> {
        self.clusters().find(|cluster| cluster.name() == name)
    }

    /// Each HTTP connection manager, with its listener.
    pub(crate) fn managers(&self) -> impl Iterator<Item = Manager<'_>> {
        self.listeners().flat_map(|listener| {
            let filters = listener.filters().into_iter();
            let managers = filters.filter(|filter| type_of(filter).ends_with(MANAGER));
            managers
                .filter_map(|filter| field(filter, "typed_config"))
                .map(move |value| Manager { listener, value })
        })
    }

    /// The routes of a connection manager, if available.
    pub(crate) fn routes<'a>(&'a self, manager: &Manager<'a>) -> Option<&'a Value> {
        if let Some(routes) = field(manager.value, "route_config") {
            return Some(routes);
        }
        let name = text(manager.value, "rds.route_config_name")?;
        let is_named = |routes: &&Value| text(routes, "name") == Some(name);
        self.routes.iter().find(is_named)
    }
}

/// The suffix of a connection manager's type.
const MANAGER: &str = "http_connection_manager.v3.HttpConnectionManager";

/// A listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener<'a> {
    pub(crate) value: &'a Value,
}

impl<'a> Listener<'a> {
    pub(crate) fn name(&self) -> &'a str {
        crate::tree::name(self.value)
    }

    /// Whether it only accepts connections from this process.
    pub(crate) fn is_internal(&self) -> bool {
        field(self.value, "internal_listener").is_some()
    }

    /// The network filters of all its filter chains.
    pub(crate) fn filters(&self) -> Vec<&'a Value> {
        let chains = list(self.value, "filter_chains").iter();
        let chains = chains.chain(field(self.value, "default_filter_chain"));
        chains.flat_map(|chain| list(chain, "filters")).collect()
    }
}

/// An HTTP connection manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    pub(crate) listener: Listener<'a>,
    pub(crate) value: &'a Value,
}

impl<'a> Manager<'a> {
    /// The place in findings.
    pub(crate) fn place(&self) -> String {
        format!("listener {}", self.listener.name())
    }

    pub(crate) fn filters(&self) -> &'a [Value] {
        list(self.value, "http_filters")
    }
}

/// A cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster<'a> {
    pub(crate) value: &'a Value,
}

impl<'a> Cluster<'a> {
    pub(crate) fn name(&self) -> &'a str {
        crate::tree::name(self.value)
    }

    /// The place in findings.
    pub(crate) fn place(&self) -> String {
        format!("cluster {}", self.name())
    }

    /// Its endpoints.
    fn endpoints(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let localities = list(self.value, "load_assignment.endpoints").iter();
        let endpoints = localities.flat_map(|locality| list(locality, "lb_endpoints"));
        endpoints.filter_map(|endpoint| at(endpoint, "endpoint.address"))
    }

    /// The internal listener that it leads to.
    pub(crate) fn internal_listener(&self) -> Option<&'a str> {
        self.endpoints()
            .find_map(|address| text(address, "envoy_internal_address.server_listener_name"))
    }

    /// `host:port` of each endpoint on the network.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let address = |address: &Value| {
            let host = text(address, "socket_address.address")?;
            let port = number(address, "socket_address.port_value")?;
            Some(format!("{host}:{port}"))
        };
        self.endpoints().filter_map(address).collect()
    }

    /// Whether it is a Redis Cluster, whose nodes Envoy discovers.
    pub(crate) fn is_redis_cluster(&self) -> bool {
        text(self.value, "cluster_type.name") == Some("envoy.clusters.redis")
    }

    /// Whether Envoy asks each server for its role, and never uses one that fails this check: see
    /// `envoy/snippets/redis-replicated.yaml`.
    pub(crate) fn follows_primary(&self) -> bool {
        let asks = |check: &Value| text(check, "tcp_health_check.send.text") == Some(ROLE);
        let threshold = at(self.value, "common_lb_config.healthy_panic_threshold");
        list(self.value, "health_checks").iter().any(asks)
            && threshold.is_some_and(|value| number(value, "value").unwrap_or(0) == 0)
    }
}
