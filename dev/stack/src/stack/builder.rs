//! The options of a stack.

use crate::envoy::EnvoyConfig;
use crate::native::Host;
use crate::redis::RedisKind;
use crate::tools;
use anyhow::Result;
use std::path::PathBuf;

/// An edit of the shipped configuration, after ports and paths.
pub(super) type Edit = Box<dyn FnOnce(EnvoyConfig) -> Result<EnvoyConfig> + Send>;

/// The options of a stack. Unset ports are free ones.
#[derive(Default)]
pub struct Builder {
    pub(super) tools: tools::Options,
    pub(super) workers: Option<u32>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) ports: Ports,
    pub(super) redis_url: Option<String>,
    pub(super) redis_kind: RedisKind,
    pub(super) faults: FaultPlacement,
    pub(super) key_prefix: Option<String>,
    pub(super) origin_is_release: bool,
    pub(super) kafka: Option<String>,
    pub(super) origin_flags: Vec<String>,
    pub(super) risk_rules: Option<String>,
    pub(super) links: Option<String>,
    pub(super) has_events: bool,
    pub(super) has_fitment: bool,
    pub(super) has_edges: bool,
    pub(super) worker_port: Option<u16>,
    pub(super) has_all: bool,
    pub(super) envoy_log_level: Option<String>,
    pub(super) host: Option<Host>,
    pub(super) edits: Vec<Edit>,
}

/// Explicitly set ports.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) gateway: Option<u16>,
    pub(super) origin: Option<u16>,
    pub(super) origin_admin: Option<u16>,
    pub(super) envoy_admin: Option<u16>,
    pub(super) redis: Option<u16>,
}

/// The positions of [`FaultProxy`](crate::fault::FaultProxy)s.
#[derive(Debug, Default)]
pub(super) struct FaultPlacement {
    pub(super) before_redis: bool,
    pub(super) before_origin: bool,
    pub(super) behind_origin: bool,
}

impl Builder {
    /// Options for tools, such as the Envoy binary.
    pub fn tools(mut self, tools: tools::Options) -> Self {
        self.tools = tools;
        self
    }

    /// Envoy's worker threads; 2 unless set.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Keeps data, logs and secrets in this folder, for this run and later ones.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// The gateway's port.
    pub fn gateway_port(mut self, port: u16) -> Self {
        self.ports.gateway = Some(port);
        self
    }

    /// The origin's port.
    pub fn origin_port(mut self, port: u16) -> Self {
        self.ports.origin = Some(port);
        self
    }

    /// The port of the origin's admin routes.
    pub fn origin_admin_port(mut self, port: u16) -> Self {
        self.ports.origin_admin = Some(port);
        self
    }

    /// The port of Envoy's admin interface.
    pub fn envoy_admin_port(mut self, port: u16) -> Self {
        self.ports.envoy_admin = Some(port);
        self
    }

    /// The port of the own Redis.
    pub fn redis_port(mut self, port: u16) -> Self {
        self.ports.redis = Some(port);
        self
    }

    /// A running Redis to use instead of an own one: `redis://host:port`.
    pub fn redis_url(mut self, url: impl Into<String>) -> Self {
        self.redis_url = Some(url.into());
        self
    }

    /// The kind of the own Redis; [`RedisKind::Durable`] unless set.
    pub fn redis_kind(mut self, kind: RedisKind) -> Self {
        self.redis_kind = kind;
        self
    }

    /// Puts a [`FaultProxy`](crate::fault::FaultProxy) between gateways and Redis. The origin bypasses it.
    pub fn faults_before_redis(mut self) -> Self {
        self.faults.before_redis = true;
        self
    }

    /// Puts a [`FaultProxy`](crate::fault::FaultProxy) between gateways and the origin.
    pub fn faults_before_origin(mut self) -> Self {
        self.faults.before_origin = true;
        self
    }

    /// Puts a [`FaultProxy`](crate::fault::FaultProxy) between the origin and a single Redis over plain TCP. Gateways
    /// bypass it.
    pub fn faults_behind_origin(mut self) -> Self {
        self.faults.behind_origin = true;
        self
    }

    /// The prefix of all Redis keys; `weir` unless set.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// The rules of the origin's risk check, as JSON, stored in the data folder's `risk-rules.json`. Without rules
    /// there is no risk check.
    pub fn risk_rules(mut self, rules: impl Into<String>) -> Self {
        self.risk_rules = Some(rules.into());
        self
    }

    /// Runs the release build of the origin, for measurements.
    pub fn release_origin(mut self) -> Self {
        self.origin_is_release = true;
        self
    }

    /// Puts the event log on a running Kafka, as `kafka://HOST:PORT,…/TOPIC`. Builds the origin with the Kafka client.
    pub fn events_on_kafka(mut self, url: &str) -> Self {
        self.kafka = Some(url.to_owned());
        self.origin_flags(["--events", url, "--history"])
    }

    /// Additional flags of the origin, such as `["--hold-cooldown-ms", "0"]`.
    pub fn origin_flags<'f>(mut self, flags: impl IntoIterator<Item = &'f str>) -> Self {
        self.origin_flags
            .extend(flags.into_iter().map(str::to_owned));
        self
    }

    /// Lets users whose hold has expired buy again immediately, without a limit.
    pub fn holds_may_expire(self) -> Self {
        self.origin_flags(["--hold-cooldown-ms", "0", "--expired-holds-max", "0"])
    }

    /// The domains of short links, as JSON, stored in the data folder's `links.json`. Without domains there are no
    /// short links.
    pub fn links(mut self, domains: impl Into<String>) -> Self {
        self.links = Some(domains.into());
        self
    }

    /// Enables events and browse history.
    pub fn events(mut self) -> Self {
        self.has_events = true;
        self
    }

    /// Enables vehicle fitment.
    pub fn fitment(mut self) -> Self {
        self.has_fitment = true;
        self
    }

    /// Runs all filters, from `envoy/all.yaml`, in WebAssembly. The default is those of sales, from `envoy/weir.yaml`.
    pub fn all_filters(mut self) -> Self {
        self.has_all = true;
        self
    }

    /// Makes the origin publish feeds for edges, and the gateway's gate accept edge assertions.
    /// [`Stack::start_worker`](crate::Stack::start_worker) starts an edge later.
    pub fn edges(mut self) -> Self {
        self.has_edges = true;
        self
    }

    /// Stores the stock of all sales in Durable Objects of the edge for Cloudflare, which runs in workerd on this port.
    /// Origin and gateways reach it through the origin's `shard-proxy`.
    pub fn stock_in_objects(mut self, port: u16) -> Self {
        self.worker_port = Some(port);
        self.edges().origin_flags(["--stock-in-objects"])
    }

    /// The host of the filters; [`Host::of_run`] unless set.
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// Envoy's log level; `info` unless set.
    pub fn envoy_log_level(mut self, level: impl Into<String>) -> Self {
        self.envoy_log_level = Some(level.into());
        self
    }

    /// Edits the shipped configuration further, for example to test a configuration error.
    pub fn edit_config(
        mut self,
        edit: impl FnOnce(EnvoyConfig) -> Result<EnvoyConfig> + Send + 'static,
    ) -> Self {
        self.edits.push(Box::new(edit));
        self
    }
}
