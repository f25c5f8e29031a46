//! Redis, origin and Envoy together, as `cargo xtask up` and the end-to-end tests run them.

use crate::backing::Backing;
use crate::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use crate::fault::FaultProxy;
use crate::origin::{self, Origin, OriginOptions};
use crate::process::DiedChild;
use crate::redis::{Access, RedisKind, RedisServer};
use crate::report::{Reporter, Silent};
use crate::secrets::Secrets;
use crate::tools::{self, WasmToolchain};
use crate::wasm::{self, Messages};
use crate::{http, ports, workspace};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What keys start with unless it is said.
const KEY_PREFIX: &str = "weir";

/// Gateways poll for domains every second; a machine that is busy takes longer.
const DOMAINS_LIMIT: Duration = Duration::from_secs(30);
const DOMAINS_POLL: Duration = Duration::from_millis(50);

/// A change of the shipped config on top of ports and paths.
type Edit = Box<dyn FnOnce(EnvoyConfig) -> EnvoyConfig + Send>;

/// How a stack is to be started. Ports that are not named are free ones.
#[derive(Default)]
pub struct Builder {
    tools: tools::Options,
    workers: Option<u32>,
    data_dir: Option<PathBuf>,
    gateway_port: Option<u16>,
    origin_port: Option<u16>,
    origin_admin_port: Option<u16>,
    envoy_admin_port: Option<u16>,
    redis_port: Option<u16>,
    redis_url: Option<String>,
    redis_kind: RedisKind,
    faults_before_redis: bool,
    faults_before_origin: bool,
    faults_behind_origin: bool,
    key_prefix: Option<String>,
    risk_rules: Option<String>,
    links: Option<String>,
    envoy_log_level: Option<String>,
    edits: Vec<Edit>,
}

/// What runs where. Dropping it stops Envoy, the origin and Redis, in that order, and
/// removes the data unless a data folder was named or the thread is panicking: a failed
/// test's logs are worth reading.
#[derive(Debug)]
pub struct Stack {
    /// `http://127.0.0.1:<port>` of the gateway.
    pub gateway_url: String,
    /// Where gateways send orders.
    pub origin_url: String,
    /// The origin's admin routes.
    pub origin_admin_url: String,
    /// The bearer token for them.
    pub admin_token: String,
    /// Envoy's admin interface.
    pub envoy_admin_url: String,
    /// `redis://host:port`; the nodes' with commas between them for a cluster, and with a password
    /// if it has one.
    pub redis_url: String,
    /// How to connect to a single Redis of whatever kind.
    pub redis_access: Access,
    /// What every key in Redis starts with.
    pub key_prefix: String,
    /// The origin's SQLite file.
    pub database_path: PathBuf,
    /// Data, logs and the rendered config.
    pub data_dir: PathBuf,
    // Fields are dropped in this order: what sends goes before what it sends to.
    /// Envoy.
    pub envoy: Envoy,
    /// Further gateways, in the order in which they were started.
    pub gateways: Vec<Envoy>,
    /// A gateway for short links, if it was started.
    pub link_gateway: Option<Envoy>,
    /// What stands between gateways and origin, if it was asked for.
    pub origin_faults: Option<FaultProxy>,
    /// What stands between gateways and Redis, if it was asked for.
    pub redis_faults: Option<FaultProxy>,
    /// The origin.
    pub origin: Origin,
    /// What stands between the origin and Redis, if it was asked for.
    pub origin_redis_faults: Option<FaultProxy>,
    /// Redis, unless a running one was named or it is a cluster.
    pub redis: Option<RedisServer>,
    /// The nodes of a Redis Cluster.
    pub redis_cluster: Vec<RedisServer>,
    envoy_tool: tools::Envoy,
    envoy_options: EnvoyOptions,
    data: DataDir,
}

impl Builder {
    /// The Envoy binary to use and the like.
    pub fn tools(mut self, tools: tools::Options) -> Self {
        self.tools = tools;
        self
    }

    /// Envoy's worker threads; 2 if not set.
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
        self.gateway_port = Some(port);
        self
    }

    /// The origin's port.
    pub fn origin_port(mut self, port: u16) -> Self {
        self.origin_port = Some(port);
        self
    }

    /// The port of the origin's admin routes.
    pub fn origin_admin_port(mut self, port: u16) -> Self {
        self.origin_admin_port = Some(port);
        self
    }

    /// The port of Envoy's admin interface.
    pub fn envoy_admin_port(mut self, port: u16) -> Self {
        self.envoy_admin_port = Some(port);
        self
    }

    /// The port of our own Redis.
    pub fn redis_port(mut self, port: u16) -> Self {
        self.redis_port = Some(port);
        self
    }

    /// A running Redis to use instead of one of our own: `redis://host:port`.
    pub fn redis_url(mut self, url: impl Into<String>) -> Self {
        self.redis_url = Some(url.into());
        self
    }

    /// The kind of our own Redis; [`RedisKind::Durable`] if not set.
    pub fn redis_kind(mut self, kind: RedisKind) -> Self {
        self.redis_kind = kind;
        self
    }

    /// Puts a [`FaultProxy`] between gateways and Redis; the origin reaches Redis past it.
    pub fn faults_before_redis(mut self) -> Self {
        self.faults_before_redis = true;
        self
    }

    /// Puts a [`FaultProxy`] between gateways and the origin.
    pub fn faults_before_origin(mut self) -> Self {
        self.faults_before_origin = true;
        self
    }

    /// Puts a [`FaultProxy`] between the origin and Redis, a single one over plain TCP; gateways
    /// reach Redis past it.
    pub fn faults_behind_origin(mut self) -> Self {
        self.faults_behind_origin = true;
        self
    }

    /// What every key in Redis starts with; `weir` if not set.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// The rules of the origin's risk check, as JSON; without them it has none. They are kept in the
    /// data folder's `risk-rules.json`.
    pub fn risk_rules(mut self, rules: impl Into<String>) -> Self {
        self.risk_rules = Some(rules.into());
        self
    }

    /// The domains of short links, as JSON; without them there are none. They are kept in the data folder's
    /// `links.json`.
    pub fn links(mut self, domains: impl Into<String>) -> Self {
        self.links = Some(domains.into());
        self
    }

    /// Envoy's log level; `info` if not set.
    pub fn envoy_log_level(mut self, level: impl Into<String>) -> Self {
        self.envoy_log_level = Some(level.into());
        self
    }

    /// Changes the shipped config further, as a test of a config error does.
    pub fn edit_config(
        mut self,
        edit: impl FnOnce(EnvoyConfig) -> EnvoyConfig + Send + 'static,
    ) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Builds what isn't up to date, then starts Redis, origin and Envoy and waits until
    /// each is ready. If one can't start, those already running are stopped.
    pub async fn start(self) -> Result<Stack> {
        self.start_reporting(&mut Silent).await
    }

    /// Like [`Builder::start`], and says one line for each step.
    pub async fn start_reporting(self, reporter: &mut (dyn Reporter + Send)) -> Result<Stack> {
        let running = self.redis_url.as_deref().map(Backing::running);
        let running = running.transpose()?;
        let tool = tools::Envoy::find_or_get(&self.tools, reporter)?;
        let toolchain = WasmToolchain::find_or_get(reporter)?;
        let filters = wasm::build_filters(&toolchain, Messages::Keep)?;
        wasm::report(&filters, reporter);
        let origin_binary = origin::ensure_built()?;
        reporter.line("origin", &origin_binary.display().to_string());

        let data = DataDir::open(self.data_dir.clone())?;
        let dir = data.path.clone();
        let secrets = Secrets::kept_in(&dir.join("secrets.env"))?;
        let key_prefix = self.key_prefix.clone();
        let key_prefix = key_prefix.unwrap_or_else(|| KEY_PREFIX.to_owned());

        let risk_rules = keep(&dir, "risk-rules.json", self.risk_rules.as_deref())?;
        let links = keep(&dir, "links.json", self.links.as_deref())?;

        let mut backing = match running {
            Some(running) => running,
            None => Backing::start(self.redis_kind, self.redis_port, &dir, reporter).await?,
        };
        let (mut origin_redis, mut origin_redis_faults) = (backing.access.clone(), None);
        if self.faults_behind_origin {
            let proxy = backing.faults_behind_origin().await?;
            origin_redis = Access::plain(format!("redis://127.0.0.1:{}", proxy.port()));
            origin_redis_faults = Some(proxy);
        }
        let options = OriginOptions {
            port: or_free(self.origin_port)?,
            admin_port: or_free(self.origin_admin_port)?,
            database: dir.join("weir.db"),
            redis_url: origin_redis.url,
            redis_ca: origin_redis.ca,
            key_prefix: key_prefix.clone(),
            risk_rules,
            links,
            secrets: secrets.clone(),
        };
        let mut origin_address = ([127, 0, 0, 1], options.port).into();
        let origin = Origin::start(&origin_binary, options, &dir.join("origin.log")).await?;
        let mut origin_faults = None;
        if self.faults_before_origin {
            let proxy = FaultProxy::start(ports::free()?, origin_address).await?;
            origin_address = ([127, 0, 0, 1], proxy.port()).into();
            origin_faults = Some(proxy);
        }
        let redis_faults = match self.faults_before_redis {
            true => Some(backing.faults_before_gateways().await?),
            false => None,
        };
        let config = EnvoyConfig::shipped()?
            .gateway_port(or_free(self.gateway_port)?)
            .admin_port(or_free(self.envoy_admin_port)?)
            .origin(origin_address)
            .key_prefix(&key_prefix);
        let config = backing.configure(config)?;
        let mut variables = vec![
            ("WEIR_CLAIM_SECRET".to_owned(), secrets.claim),
            ("WEIR_TOKEN_SECRET".to_owned(), secrets.token),
        ];
        variables.append(&mut backing.variables);
        let envoy_options = EnvoyOptions {
            config: self
                .edits
                .into_iter()
                .fold(config, |config, edit| edit(config)),
            workers: self.workers.unwrap_or(2),
            log_level: self.envoy_log_level.unwrap_or_else(|| "info".to_owned()),
            variables,
            dir: dir.clone(),
        };
        let envoy = Envoy::start(&tool, &envoy_options).await?;
        Ok(Stack {
            gateway_url: envoy.url(),
            origin_url: origin.url(),
            origin_admin_url: origin.admin_url(),
            admin_token: secrets.admin_token,
            envoy_admin_url: envoy.admin_url(),
            redis_url: backing.access.url.clone(),
            redis_access: backing.access,
            key_prefix,
            database_path: origin.database().to_path_buf(),
            data_dir: dir,
            envoy,
            gateways: Vec::new(),
            link_gateway: None,
            origin_faults,
            redis_faults,
            origin,
            origin_redis_faults,
            redis: backing.server,
            redis_cluster: backing.cluster,
            envoy_tool: tool,
            envoy_options,
            data,
        })
    }
}

/// How a further gateway differs from the first.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatewayOptions {
    /// Worker threads; 0 for as many as the first one has.
    pub workers: u32,
    /// How far its clock is ahead of the machine's, in milliseconds; behind if negative. Its timers
    /// run as always.
    pub clock_ahead_ms: i64,
}

impl GatewayOptions {
    fn clock_variables(&self) -> Result<Vec<(String, String)>> {
        if self.clock_ahead_ms == 0 {
            return Ok(Vec::new());
        }
        let variables = [
            ("LD_PRELOAD", tools::clock()?.display().to_string()),
            ("WEIR_CLOCK_AHEAD_MS", self.clock_ahead_ms.to_string()),
        ];
        Ok(variables
            .map(|(name, value)| (name.to_owned(), value))
            .into())
    }
}

impl Stack {
    /// How to start one: `Stack::builder().workers(2).start().await?`.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts another gateway with ports of its own before the same Redis and origin. It has the
    /// first one's config. Returns its URL; the gateway itself is the last of `gateways`.
    pub async fn start_gateway(&mut self, options: GatewayOptions) -> Result<String> {
        let mut envoy = self.envoy_options.clone();
        let name = format!("gateway-{}", self.gateways.len() + 2);
        envoy.dir = self.data_dir.join(name);
        envoy.config = envoy
            .config
            .gateway_port(ports::free()?)
            .admin_port(ports::free()?);
        if options.workers > 0 {
            envoy.workers = options.workers;
        }
        envoy.variables.append(&mut options.clock_variables()?);
        let gateway = Envoy::start(&self.envoy_tool, &envoy).await?;
        let url = gateway.url();
        self.gateways.push(gateway);
        Ok(url)
    }

    /// Starts a gateway on `port` that does nothing but answer short links, from `envoy/shortlink.yaml`, before
    /// the same origin and the same plain Redis. Waits until every worker knows the domains, which the
    /// origin must [have](Builder::links). Returns its URL.
    pub async fn start_link_gateway(&mut self, port: u16) -> Result<String> {
        ensure!(
            self.key_prefix == KEY_PREFIX,
            "envoy/shortlink.yaml has the usual key prefix"
        );
        let origin = self.origin_url.trim_start_matches("http://").parse()?;
        let config = EnvoyConfig::shortlink()?
            .gateway_port(port)
            .admin_port(ports::free()?)
            .origin(origin);
        let options = EnvoyOptions {
            config: Backing::running(&self.redis_url)?.configure(config)?,
            variables: Vec::new(),
            dir: self.data_dir.join("link-gateway"),
            ..self.envoy_options.clone()
        };
        let envoy = Envoy::start(&self.envoy_tool, &options).await?;
        wait_for_domains(&envoy, options.workers).await?;
        let url = envoy.url();
        self.link_gateway = Some(envoy);
        Ok(url)
    }

    /// The URLs of all gateways, the first one's first.
    pub fn gateway_urls(&self) -> Vec<String> {
        let further = self.gateways.iter().map(Envoy::url);
        std::iter::once(self.gateway_url.clone())
            .chain(further)
            .collect()
    }

    /// An error that says which child ended by itself and shows the end of its log.
    pub fn check_children(&mut self) -> Result<(), DiedChild> {
        self.envoy.check()?;
        self.gateways.iter_mut().try_for_each(Envoy::check)?;
        self.link_gateway.iter_mut().try_for_each(Envoy::check)?;
        self.origin.check()?;
        let mut servers = self.redis.iter_mut().chain(&mut self.redis_cluster);
        servers.try_for_each(RedisServer::check)
    }

    /// Stops gateways, origin and Redis in that order, each by SIGTERM.
    pub fn stop(&mut self) {
        self.envoy.process().stop();
        for gateway in self.gateways.iter_mut().chain(&mut self.link_gateway) {
            gateway.process().stop();
        }
        self.origin.process().stop();
        for server in self.redis.iter_mut().chain(&mut self.redis_cluster) {
            server.stop();
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            self.data.keep();
            eprintln!("logs are in {}", self.data_dir.display());
        }
    }
}

/// Each worker reads the domains by itself, and begins with its first request; a connection reaches any.
async fn wait_for_domains(envoy: &Envoy, workers: u32) -> Result<()> {
    let deadline = Instant::now() + DOMAINS_LIMIT;
    loop {
        // Of whatever host: the answer does not matter.
        http::get(&envoy.url()).await.ok();
        let loaded = envoy.stat("wasmcustom.weir_shortlink_domains_loaded_total");
        if loaded.await.is_ok_and(|count| count >= workers.into()) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "not every worker has read its domains within {DOMAINS_LIMIT:?}"
        );
        tokio::time::sleep(DOMAINS_POLL).await;
    }
}

fn or_free(port: Option<u16>) -> Result<u16> {
    port.map_or_else(ports::free, Ok)
}

/// Writes a file of the data folder, if there is something to write.
fn keep(dir: &Path, name: &str, text: Option<&str>) -> Result<Option<PathBuf>> {
    let Some(text) = text else { return Ok(None) };
    let file = dir.join(name);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Some(file))
}

/// The folder of one run, locked against a second stack in it. It goes when this is dropped, unless it was
/// named.
#[derive(Debug)]
pub struct DataDir {
    /// Where it is.
    pub path: PathBuf,
    temporary: Option<tempfile::TempDir>,
    _lock: File,
}

impl DataDir {
    /// The folder `named`, or a new one.
    ///
    /// # Errors
    /// When it cannot be made, or another one holds it.
    pub fn open(named: Option<PathBuf>) -> Result<Self> {
        let (path, temporary) = match named {
            Some(path) => (std::path::absolute(path)?, None),
            None => {
                let home = workspace::out_dir().join("run");
                std::fs::create_dir_all(&home)?;
                let temporary = tempfile::Builder::new().prefix("run-").tempdir_in(home)?;
                (temporary.path().to_path_buf(), Some(temporary))
            }
        };
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let lock = File::create(path.join("lock"))
            .with_context(|| format!("cannot write to {}", path.display()))?;
        ensure!(
            lock.try_lock().is_ok(),
            "another stack is running in {}",
            path.display()
        );
        Ok(Self {
            path,
            temporary,
            _lock: lock,
        })
    }

    /// It stays when this is dropped, so that somebody can look into it.
    pub fn keep(&mut self) {
        if let Some(temporary) = &mut self.temporary {
            temporary.disable_cleanup(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_folder_holds_one_stack() {
        let temp = tempfile::tempdir().unwrap();
        let _first = DataDir::open(Some(temp.path().to_path_buf())).unwrap();
        assert!(DataDir::open(Some(temp.path().to_path_buf())).is_err());
    }
}
