//! From a [`Builder`] to a running [`Stack`], step by step.

use super::builder::Builder;
use super::{DataDir, Faults, KEY_PREFIX, Stack, WorkerPlaces, WorkerStock, worker_variables};
use crate::backing::Backing;
use crate::edge;
use crate::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use crate::fault::FaultProxy;
use crate::native::Host;
use crate::objects::{ProxyOptions, ShardProxy};
use crate::origin::{self, Origin, OriginOptions};
use crate::ports;
use crate::provider::PaymentProvider;
use crate::redis::Access;
use crate::report::{Reporter, SilentReporter};
use crate::secrets::{CLAIM, EVENTS, ROOM, Secrets, TOKEN, random_hex};
use crate::tools::{self, WasmToolchain};
use crate::wasm::{self, Messages};
use anyhow::{Context, Result, anyhow};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Envoy's default number of worker threads.
const WORKERS: u32 = 2;

/// The gateway path for the payment provider's callbacks.
const PAYMENT_CALLBACK: &str = "/payments/callback";

/// Programs found or built before anything starts.
struct Programs {
    envoy: tools::Envoy,
    origin: PathBuf,
}

/// Values shared by all parts of one stack.
struct Common {
    data: DataDir,
    secrets: Secrets,
    /// The secret shared by origin, gateways and edges, if there are edges. It is new for each run, because nothing
    /// that it signs lives longer.
    edge_secret: Option<String>,
    key_prefix: String,
}

impl Builder {
    /// Builds outdated programs, then starts Redis, origin and Envoy, and waits until each is ready. If one fails,
    /// stops those already running.
    pub async fn start(self) -> Result<Stack> {
        self.start_reporting(&mut SilentReporter).await
    }

    /// Like [`Builder::start`], and reports one line per step.
    pub async fn start_reporting(mut self, reporter: &mut (dyn Reporter + Send)) -> Result<Stack> {
        // Before any build: an invalid URL or an unreachable Redis should fail immediately.
        let running = match self.redis_url.as_deref() {
            Some(url) => Some(Backing::running(url).await?),
            None => None,
        };
        let programs = Programs::get(&self, reporter)?;
        let common = self.common()?;
        let mut redis = match running {
            Some(running) => running,
            None => {
                let (kind, port) = (self.redis_kind, self.ports.redis);
                Backing::start(kind, port, &common.data.path, reporter).await?
            }
        };
        let objects = self.objects(&common, &programs, &mut redis).await?;
        let (worker, shard_proxy) = objects.unzip();
        let mut faults = Faults::default();
        let origin_redis = self.redis_of_origin(&redis, &mut faults).await?;
        let options = self.origin_options(&common, origin_redis)?;
        let provider_port = options.provider_port;
        let log = common.data.path.join("origin.log");
        let origin = Origin::start(&programs.origin, options, &log).await?;
        self.stand_between(&origin, &mut redis, &mut faults).await?;
        let envoy_options = self.envoy_options(&common, &redis, &origin, &faults)?;
        let envoy = Envoy::start(&programs.envoy, &envoy_options).await?;
        let callback_url = format!("{}{PAYMENT_CALLBACK}", envoy.url());
        let secret = &common.secrets.payment;
        Ok(Stack {
            provider: PaymentProvider::start(provider_port, &callback_url, secret).await?,
            envoy,
            gateways: Vec::new(),
            link_gateway: None,
            event_gateway: None,
            fitment_gateway: None,
            faults,
            origin,
            redis,
            key_prefix: common.key_prefix,
            worker,
            shard_proxy,
            edge_secret: common.edge_secret,
            admin_token: common.secrets.admin_token,
            event_key: common.secrets.events,
            envoy_tool: programs.envoy,
            envoy_options,
            data: common.data,
        })
    }

    fn chosen_host(&self) -> Host {
        self.host.unwrap_or_else(Host::of_run)
    }

    fn common(&self) -> Result<Common> {
        let data = DataDir::open(self.data_dir.clone())?;
        let prefix = self.key_prefix.as_deref().unwrap_or(KEY_PREFIX);
        Ok(Common {
            secrets: Secrets::kept_in(&data.path.join("secrets.env"))?,
            edge_secret: self.has_edges.then(random_hex).transpose()?,
            key_prefix: prefix.to_owned(),
            data,
        })
    }

    /// Starts the edge with the stock, if the stock is in Durable Objects, and the proxy to it. The edge needs the
    /// addresses of the other processes in advance.
    async fn objects(
        &mut self,
        common: &Common,
        programs: &Programs,
        redis: &mut Backing,
    ) -> Result<Option<(edge::Server, ShardProxy)>> {
        let Some(port) = self.worker_port else {
            return Ok(None);
        };
        let edge_secret = common.edge_secret.clone();
        let edge_secret = edge_secret.context("stock in objects needs edges")?;
        let at = |port: &mut Option<u16>| -> Result<String> {
            Ok(format!(
                "http://127.0.0.1:{}",
                *port.insert(or_free(*port)?)
            ))
        };
        let places = WorkerPlaces {
            origin: at(&mut self.ports.origin)?,
            gateway: at(&mut self.ports.gateway)?,
        };
        let stock = WorkerStock {
            key_prefix: common.key_prefix.clone(),
            claim_secret: common.secrets.claim.clone(),
        };
        let (secret, token) = (edge_secret.clone(), common.secrets.token.clone());
        let variables = worker_variables(&places, secret, token, Some(stock));
        let start = move || edge::cloudflare_at(edge::Build::Shipped, port, &variables);
        let worker = tokio::task::spawn_blocking(start).await??;
        let options = ProxyOptions {
            binary: programs.origin.clone(),
            redis_url: redis.access.url.clone(),
            shards_url: format!("http://{}", worker.address),
            key_prefix: common.key_prefix.clone(),
            edge_secret,
        };
        let log = common.data.path.join("shard-proxy.log");
        let proxy = ShardProxy::start(options, &log).await?;
        redis.stand_behind(proxy.port());
        Ok(Some((worker, proxy)))
    }

    /// The origin's connection to Redis, through a proxy if requested.
    async fn redis_of_origin(&self, redis: &Backing, faults: &mut Faults) -> Result<Access> {
        if !self.faults.behind_origin {
            return Ok(redis.access.clone());
        }
        let proxy = redis.faults_behind_origin().await?;
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        faults.behind_origin = Some(proxy);
        Ok(Access::plain(url))
    }

    fn origin_options(&self, common: &Common, redis: Access) -> Result<OriginOptions> {
        let data = &common.data;
        Ok(OriginOptions {
            port: or_free(self.ports.origin)?,
            admin_port: or_free(self.ports.origin_admin)?,
            database: data.path.join("weir.db"),
            redis_url: redis.url,
            redis_ca: redis.ca,
            key_prefix: common.key_prefix.clone(),
            risk_rules: data.write("risk-rules.json", self.risk_rules.as_deref())?,
            links: data.write("links.json", self.links.as_deref())?,
            events_log: self.has_events.then(|| data.path.join("events-log")),
            fitment: self.has_fitment.then(|| data.path.join("fitment")),
            edge_secret: common.edge_secret.clone(),
            provider_port: ports::free()?,
            flags: self.origin_flags.clone(),
            secrets: common.secrets.clone(),
        })
    }

    /// Starts the requested proxies before gateways.
    async fn stand_between(
        &self,
        origin: &Origin,
        redis: &mut Backing,
        faults: &mut Faults,
    ) -> Result<()> {
        if self.faults.before_origin {
            let proxy = FaultProxy::start(ports::free()?, origin.address()).await?;
            faults.before_origin = Some(proxy);
        }
        if self.faults.before_redis {
            faults.before_redis = Some(redis.faults_before_gateways().await?);
        }
        Ok(())
    }

    fn envoy_options(
        self,
        common: &Common,
        redis: &Backing,
        origin: &Origin,
        faults: &Faults,
    ) -> Result<EnvoyOptions> {
        let proxied = faults.before_origin.as_ref().map(FaultProxy::address);
        let address = proxied.unwrap_or_else(|| origin.address());
        let config = self.gateway_config(&common.key_prefix, redis, address)?;
        let mut edits = self.edits.into_iter();
        let mut variables = vec![
            (CLAIM.to_owned(), common.secrets.claim.clone()),
            (TOKEN.to_owned(), common.secrets.token.clone()),
        ];
        if self.has_all {
            variables.push((EVENTS.to_owned(), common.secrets.events.clone()));
            variables.push((ROOM.to_owned(), common.secrets.room.clone()));
        }
        if let Some(secret) = &common.edge_secret {
            variables.push((edge::SECRET.to_owned(), secret.clone()));
        }
        Ok(EnvoyOptions {
            config: edits.try_fold(config, |config, edit| edit(config))?,
            workers: self.workers.unwrap_or(WORKERS),
            log_level: self.envoy_log_level.unwrap_or_else(|| "info".to_owned()),
            variables: [&variables[..], &redis.variables].concat(),
            clock_ahead_ms: None,
            drain_s: None,
            dir: common.data.path.clone(),
        })
    }

    fn gateway_config(
        &self,
        key_prefix: &str,
        redis: &Backing,
        origin: SocketAddr,
    ) -> Result<EnvoyConfig> {
        let config = match self.has_all {
            true => EnvoyConfig::all()?,
            false => EnvoyConfig::shipped()?.host(self.chosen_host()),
        };
        let config = config
            .gateway_port(or_free(self.ports.gateway)?)?
            .admin_port(or_free(self.ports.envoy_admin)?)?
            .origin(origin)?
            .key_prefix(key_prefix)?;
        let config = match self.has_edges {
            true => config.edges()?,
            false => config,
        };
        let config = match self.worker_port {
            Some(_) => config.shards_in_objects()?,
            None => config,
        };
        redis.configure(config)
    }
}

impl Programs {
    fn get(builder: &Builder, reporter: &mut (dyn Reporter + Send)) -> Result<Self> {
        // In parallel with the filters, whose last build steps leave cores idle.
        let (has_kafka, is_release) = (builder.kafka.is_some(), builder.origin_is_release);
        let origin = std::thread::spawn(move || build_origin(has_kafka, is_release));
        let envoy = tools::Envoy::find_or_get(&builder.tools, reporter)?;
        match builder.chosen_host() {
            Host::Wasm => {
                let toolchain = WasmToolchain::find_or_get(reporter)?;
                let filters = wasm::build_filters(&toolchain, Messages::Keep)?;
                wasm::report(&filters, reporter);
            }
            host => reporter.line("native module", &host.library()?.display().to_string()),
        }
        let origin = origin.join();
        let origin = origin.map_err(|_| anyhow!("building the origin panicked"))??;
        reporter.line("origin", &origin.display().to_string());
        Ok(Self { envoy, origin })
    }
}

fn build_origin(has_kafka: bool, is_release: bool) -> Result<PathBuf> {
    match (has_kafka, is_release) {
        (true, true) => origin::ensure_built_with_kafka(&origin::RELEASE),
        (true, false) => origin::ensure_built_with_kafka(&[]),
        (false, true) => origin::ensure_built_release(),
        (false, false) => origin::ensure_built(),
    }
}

fn or_free(port: Option<u16>) -> Result<u16> {
    port.map_or_else(ports::free, Ok)
}
