//! Redis, origin and Envoy together, as `cargo xtask up` and the end-to-end tests run them.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

mod builder;
mod data;
mod start;

pub use builder::Builder;
pub use data::DataDir;

use crate::backing::Backing;
use crate::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use crate::fault::FaultProxy;
use crate::native::Host;
use crate::objects::ShardProxy;
use crate::origin::{CLICK_SECRET, Origin};
use crate::process::{DiedChild, Process};
use crate::provider::PaymentProvider;
use crate::redis::RedisServer;
use crate::secrets::{CLAIM, TOKEN};
use crate::{edge, http, ports, tools};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The default prefix of Redis keys.
const KEY_PREFIX: &str = "weir";

/// The fitment filter's settings with this key prefix.
fn fitment_settings(key_prefix: &str) -> String {
    serde_json::json!({ "redis": { "key_prefix": key_prefix } }).to_string()
}

/// Gateways poll domains every second; a busy machine needs longer.
const DOMAINS_LIMIT: Duration = Duration::from_secs(30);
const DOMAINS_POLL: Duration = Duration::from_millis(50);

/// The running processes. Dropping it stops Envoy, the origin and Redis, in that order. It deletes the data unless a
/// data folder was named or the thread is panicking, so that logs of failed tests remain.
#[derive(Debug)]
pub struct Stack {
    /// The payment provider, which notifies the origin through the gateway.
    pub provider: PaymentProvider,
    /// Envoy.
    pub envoy: Envoy,
    /// Additional gateways in start order.
    pub gateways: Vec<Envoy>,
    /// A gateway for short links, if it was started.
    pub link_gateway: Option<Envoy>,
    /// A gateway for events, if it was started.
    pub event_gateway: Option<Envoy>,
    /// A gateway for fitment queries, if it was started.
    pub fitment_gateway: Option<Envoy>,
    /// The edge for Cloudflare in workerd, if it was started.
    pub worker: Option<edge::Server>,
    /// The proxy before the shards in Durable Objects, if the stock is there.
    pub shard_proxy: Option<ShardProxy>,
    /// The requested fault proxies.
    pub faults: Faults,
    /// The origin.
    pub origin: Origin,
    /// Redis, of any kind.
    pub redis: Backing,
    /// What every key in Redis starts with.
    pub key_prefix: String,
    /// The bearer token for the origin's admin routes.
    pub admin_token: String,
    /// The write key of the shop's servers for events.
    pub event_key: String,
    edge_secret: Option<String>,
    envoy_tool: tools::Envoy,
    envoy_options: EnvoyOptions,
    data: DataDir,
}

/// Proxies that inject faults on demand.
#[derive(Debug, Default)]
pub struct Faults {
    /// Between gateways and origin.
    pub before_origin: Option<FaultProxy>,
    /// Between gateways and Redis.
    pub before_redis: Option<FaultProxy>,
    /// Between the origin and Redis.
    pub behind_origin: Option<FaultProxy>,
}

/// The options of an additional gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatewayOptions {
    /// Worker threads; 0 for as many as the first gateway has.
    pub workers: u32,
    /// Runs it with its own clock, this many milliseconds ahead of the machine's; behind if negative. It can be
    /// [set](Envoy::set_clock) later.
    pub clock_ahead_ms: Option<i64>,
}

impl Stack {
    /// Creates a builder: `Stack::builder().workers(2).start().await?`.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `http://127.0.0.1:<port>` of the gateway.
    pub fn gateway_url(&self) -> String {
        self.envoy.url()
    }

    /// The same without `http://`, for an explicit connection.
    pub fn gateway_authority(&self) -> String {
        self.gateway_url().trim_start_matches("http://").to_owned()
    }

    /// The environment variables with a gateway's secrets.
    pub fn gateway_variables(&self) -> &[(String, String)] {
        &self.envoy_options.variables
    }

    /// The URL for orders from gateways.
    pub fn origin_url(&self) -> String {
        self.origin.url()
    }

    /// The origin's admin routes.
    pub fn origin_admin_url(&self) -> String {
        self.origin.admin_url()
    }

    /// Envoy's admin interface.
    pub fn envoy_admin_url(&self) -> String {
        self.envoy.admin_url()
    }

    /// `redis://host:port`, with a password if it has one; a cluster's nodes comma-separated.
    pub fn redis_url(&self) -> &str {
        &self.redis.access.url
    }

    /// The origin's SQLite file.
    pub fn database_path(&self) -> &Path {
        self.origin.database()
    }

    /// The folder with data, logs and the rendered configuration.
    pub fn data_dir(&self) -> &Path {
        &self.data.path
    }

    /// Starts another gateway on its own ports with the first one's configuration, Redis and origin. Returns its URL;
    /// it is the last of `gateways`.
    pub async fn start_gateway(&mut self, options: GatewayOptions) -> Result<String> {
        let mut envoy = self.envoy_options.clone();
        let name = format!("gateway-{}", self.gateways.len() + 2);
        envoy.dir = self.data_dir().join(name);
        let config = envoy.config.gateway_port(ports::free()?)?;
        envoy.config = config.admin_port(ports::free()?)?;
        if options.workers > 0 {
            envoy.workers = options.workers;
        }
        envoy.clock_ahead_ms = options.clock_ahead_ms;
        let gateway = Envoy::start(&self.envoy_tool, &envoy).await?;
        let url = gateway.url();
        self.gateways.push(gateway);
        Ok(url)
    }

    /// Starts a gateway on `port` that only answers short links, from `envoy/shortlink.yaml`, with the same origin and
    /// the same plain Redis. Waits until every worker has loaded the domains, which the origin must
    /// [have](Builder::links). Returns its URL.
    pub async fn start_link_gateway(&mut self, port: u16) -> Result<String> {
        ensure!(
            self.key_prefix == KEY_PREFIX,
            "envoy/shortlink.yaml has the usual key prefix"
        );
        let origin = self.origin_url().trim_start_matches("http://").parse()?;
        let config = EnvoyConfig::shortlink()?
            .gateway_port(port)?
            .admin_port(ports::free()?)?
            .origin(origin)?
            .links_naming_clicks(CLICK_SECRET)?;
        let secret = (CLICK_SECRET.to_owned(), self.event_key.clone());
        let options = EnvoyOptions {
            config: Backing::at(&self.redis.access.url)?.configure(config)?,
            variables: vec![secret],
            clock_ahead_ms: None,
            drain_s: None,
            dir: self.data_dir().join("link-gateway"),
            ..self.envoy_options.clone()
        };
        let envoy = Envoy::start(&self.envoy_tool, &options).await?;
        wait_for_domains(&envoy, options.workers).await?;
        let url = envoy.url();
        self.link_gateway = Some(envoy);
        Ok(url)
    }

    /// Starts a gateway on `port` that accepts events, from `envoy/events.yaml`, with the same origin, which must
    /// [accept](Builder::events) them. Envoy itself answers in place of the site. Returns its URL.
    pub async fn start_event_gateway(&mut self, port: u16) -> Result<String> {
        self.start_event_gateway_with(port, None).await
    }

    /// As [`Stack::start_event_gateway`], with another filter configuration, as JSON.
    pub async fn start_event_gateway_with(
        &mut self,
        port: u16,
        json: Option<&str>,
    ) -> Result<String> {
        let origin = self.origin_url().trim_start_matches("http://").parse()?;
        let secret = self.event_key.clone();
        let mut config = EnvoyConfig::events_alone()?
            .gateway_port(port)?
            .admin_port(ports::free()?)?
            .origin(origin)?;
        if let Some(json) = json {
            config = config.events_config(json)?;
        }
        let options = EnvoyOptions {
            config,
            variables: vec![("WEIR_EVENTS_KEY_SHOP".to_owned(), secret)],
            clock_ahead_ms: None,
            drain_s: None,
            dir: self.data_dir().join("event-gateway"),
            ..self.envoy_options.clone()
        };
        let envoy = Envoy::start(&self.envoy_tool, &options).await?;
        let url = envoy.url();
        self.event_gateway = Some(envoy);
        Ok(url)
    }

    /// Starts a gateway on `port` that answers fitment queries, from `envoy/fitment.yaml`, with the same origin and the
    /// same plain Redis. Returns its URL.
    pub async fn start_fitment_gateway(&mut self, port: u16) -> Result<String> {
        let origin = self.origin_url().trim_start_matches("http://").parse()?;
        let config = EnvoyConfig::fitment()?
            .fitment_config(&fitment_settings(&self.key_prefix))?
            .gateway_port(port)?
            .admin_port(ports::free()?)?
            .origin(origin)?;
        let options = EnvoyOptions {
            config: Backing::at(&self.redis.access.url)?.configure(config)?,
            variables: Vec::new(),
            clock_ahead_ms: None,
            drain_s: None,
            dir: self.data_dir().join("fitment-gateway"),
            ..self.envoy_options.clone()
        };
        let envoy = Envoy::start(&self.envoy_tool, &options).await?;
        let url = envoy.url();
        self.fitment_gateway = Some(envoy);
        Ok(url)
    }

    /// Starts the edge for Cloudflare in workerd on `port`. It answers for sales and forwards other requests to the
    /// first gateway. The stack must [have edges](Builder::edges). Returns its URL.
    pub async fn start_worker(&mut self, port: u16) -> Result<String> {
        let variables = self.worker_variables()?;
        let start = move || edge::cloudflare_at(edge::Build::Shipped, port, &variables);
        let worker = tokio::task::spawn_blocking(start).await??;
        let url = format!("http://{}", worker.address);
        self.worker = Some(worker);
        Ok(url)
    }

    fn worker_variables(&self) -> Result<BTreeMap<String, String>> {
        let secret = self.edge_secret.clone();
        let secret = secret.context("the stack was started without edges")?;
        let mut gateway = self.gateway_variables().iter();
        let token = gateway.find(|(name, _)| name == TOKEN);
        let (_, token) = token.context("gateways have no token secret")?;
        let places = WorkerPlaces {
            origin: self.origin_url(),
            gateway: self.gateway_url(),
        };
        Ok(worker_variables(&places, secret, token.clone(), None))
    }

    /// The URLs of all gateways, the first one's first.
    pub fn gateway_urls(&self) -> Vec<String> {
        let further = self.gateways.iter().map(Envoy::url);
        std::iter::once(self.gateway_url()).chain(further).collect()
    }

    /// Returns an error if a child ended unexpectedly, with its name and the end of its log.
    pub fn check_children(&mut self) -> Result<(), DiedChild> {
        self.envoy.check()?;
        self.gateways.iter_mut().try_for_each(Envoy::check)?;
        let mut others = self.link_gateway.iter_mut().chain(&mut self.event_gateway);
        others.try_for_each(Envoy::check)?;
        self.worker.iter_mut().try_for_each(edge::Server::check)?;
        let proxies = self.shard_proxy.iter_mut();
        let mut proxies = proxies.map(ShardProxy::process);
        proxies.try_for_each(Process::check)?;
        self.origin.check()?;
        self.redis.servers().try_for_each(RedisServer::check)
    }

    /// Stops edge, gateways, origin and Redis in that order, each with SIGTERM. An edge with the stock stops after the
    /// origin.
    pub fn stop(&mut self) {
        if self.shard_proxy.is_none() {
            self.worker.iter_mut().for_each(edge::Server::stop);
        }
        self.envoy.process().stop();
        let others = self.link_gateway.iter_mut().chain(&mut self.event_gateway);
        for gateway in self.gateways.iter_mut().chain(others) {
            gateway.process().stop();
        }
        self.origin.process().stop();
        if let Some(proxy) = &mut self.shard_proxy {
            proxy.process().stop();
            self.worker.iter_mut().for_each(edge::Server::stop);
        }
        self.redis.servers().for_each(RedisServer::stop);
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            self.data.keep();
            eprintln!("logs are in {}", self.data_dir().display());
        }
    }
}

/// The URLs to which the edge for Cloudflare sends requests.
struct WorkerPlaces {
    origin: String,
    gateway: String,
}

/// The settings that an edge needs to sell from its Durable Objects.
struct WorkerStock {
    key_prefix: String,
    claim_secret: String,
}

/// The bindings of the edge for Cloudflare. The routes are those of `envoy/weir.yaml`.
fn worker_variables(
    places: &WorkerPlaces,
    secret: String,
    token: String,
    stock: Option<WorkerStock>,
) -> BTreeMap<String, String> {
    let mut config = json!({
        "edge": "worker-1",
        "keys": edge::keys(),
        "gate": {
            "routes": [{ "path": "/sales/{sale}/orders" }],
            "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
            "status_routes": [{ "path": "/sales/{sale}" }],
            "token": { "keys": [{ "id": "t1", "secret": { "env": TOKEN } }] },
            "user_header": "x-user-id",
        },
    });
    let mut variables = BTreeMap::from([
        (edge::ORIGIN.to_owned(), places.origin.clone()),
        (edge::GATEWAY.to_owned(), places.gateway.clone()),
        (edge::SECRET.to_owned(), secret),
        (TOKEN.to_owned(), token),
    ]);
    if let Some(stock) = stock {
        let keys = json!([{ "id": "k1", "secret": { "env": CLAIM } }]);
        config["stock_in_objects"] = true.into();
        config["gate"]["claim"] = json!({ "keys": keys });
        config["gate"]["redis"] =
            json!({ "key_prefix": stock.key_prefix, "deadline_ms": edge::OBJECTS_DEADLINE_MS });
        variables.insert(CLAIM.to_owned(), stock.claim_secret);
    }
    variables.insert(edge::CONFIG.to_owned(), config.to_string());
    variables
}

/// Each worker loads the domains separately, starting at its first request, and a connection reaches any worker.
async fn wait_for_domains(envoy: &Envoy, workers: u32) -> Result<()> {
    let deadline = Instant::now() + DOMAINS_LIMIT;
    loop {
        // For any host: the response does not matter.
        http::get(&envoy.url()).await.ok();
        let loaded = envoy.stat("wasmcustom.weir_shortlink_domains_loaded_total");
        if loaded
            .await
            .is_ok_and(|count| count >= Host::of_run().engines(workers))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "not every worker has read its domains within {DOMAINS_LIMIT:?}"
        );
        tokio::time::sleep(DOMAINS_POLL).await;
    }
}
