//! Redis, origin and Envoy together, as `cargo xtask up` and the end-to-end tests run them.

use crate::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use crate::origin::{self, Origin, OriginOptions};
use crate::process::DiedChild;
use crate::redis::RedisServer;
use crate::report::{Reporter, Silent};
use crate::secrets::Secrets;
use crate::tools::{self, WasmToolchain};
use crate::wasm::{self, Messages};
use crate::{ports, workspace};
use anyhow::{Context, Result, bail, ensure};
use redis::IntoConnectionInfo;
use std::fs::File;
use std::path::{Path, PathBuf};

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
    key_prefix: Option<String>,
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
    /// `redis://host:port`.
    pub redis_url: String,
    /// What every key in Redis starts with.
    pub key_prefix: String,
    /// The origin's SQLite file.
    pub database_path: PathBuf,
    /// Data, logs and the rendered config.
    pub data_dir: PathBuf,
    // Fields are dropped in this order: what sends goes before what it sends to.
    /// Envoy.
    pub envoy: Envoy,
    /// The origin.
    pub origin: Origin,
    /// Redis, unless a running one was named.
    pub redis: Option<RedisServer>,
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

    /// What every key in Redis starts with; `weir` if not set.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
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
        let redis_at = self.redis_url.as_deref().map(plain_redis).transpose()?;
        let tool = tools::Envoy::find_or_get(&self.tools, reporter)?;
        let toolchain = WasmToolchain::find_or_get(reporter)?;
        let filters = wasm::build_filters(&toolchain, Messages::Keep)?;
        wasm::report(&filters, reporter);
        let origin_binary = origin::ensure_built()?;
        reporter.line("origin", &origin_binary.display().to_string());

        let data = DataDir::open(self.data_dir.clone())?;
        let dir = data.path.clone();
        let secrets = Secrets::kept_in(&dir.join("secrets.env"))?;
        let key_prefix = self.key_prefix.clone().unwrap_or_else(|| "weir".to_owned());

        let (redis, redis_at) = match redis_at {
            Some(at) => (None, at),
            None => {
                let server = self.own_redis(&dir, reporter).await?;
                let at = ("127.0.0.1".to_owned(), server.port());
                (Some(server), at)
            }
        };
        let redis_url = format!("redis://{}:{}", redis_at.0, redis_at.1);
        let options = OriginOptions {
            port: or_free(self.origin_port)?,
            admin_port: or_free(self.origin_admin_port)?,
            database: dir.join("weir.db"),
            redis_url: redis_url.clone(),
            key_prefix: key_prefix.clone(),
            secrets: secrets.clone(),
        };
        let origin_port = options.port;
        let origin = Origin::start(&origin_binary, options, &dir.join("origin.log")).await?;
        let config = EnvoyConfig::shipped()?
            .gateway_port(or_free(self.gateway_port)?)
            .admin_port(or_free(self.envoy_admin_port)?)
            .origin(([127, 0, 0, 1], origin_port).into())
            .redis(&redis_at.0, redis_at.1)?
            .key_prefix(&key_prefix);
        let envoy_options = EnvoyOptions {
            config: self
                .edits
                .into_iter()
                .fold(config, |config, edit| edit(config)),
            workers: self.workers.unwrap_or(2),
            log_level: self.envoy_log_level.unwrap_or_else(|| "info".to_owned()),
            variables: vec![("WEIR_CLAIM_SECRET".to_owned(), secrets.claim)],
            dir: dir.clone(),
        };
        let envoy = Envoy::start(&tool, &envoy_options).await?;
        Ok(Stack {
            gateway_url: envoy.url(),
            origin_url: origin.url(),
            origin_admin_url: origin.admin_url(),
            admin_token: secrets.admin_token,
            envoy_admin_url: envoy.admin_url(),
            redis_url,
            key_prefix,
            database_path: origin.database().to_path_buf(),
            data_dir: dir,
            envoy,
            origin,
            redis,
            data,
        })
    }

    async fn own_redis(
        &self,
        dir: &Path,
        reporter: &mut (dyn Reporter + Send),
    ) -> Result<RedisServer> {
        let tool = tools::Redis::find_or_get(reporter)?;
        let port = or_free(self.redis_port)?;
        RedisServer::start(&tool, port, &dir.join("redis"), &dir.join("redis.log")).await
    }
}

impl Stack {
    /// How to start one: `Stack::builder().workers(2).start().await?`.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// An error that says which child ended by itself and shows the end of its log.
    pub fn check_children(&mut self) -> Result<(), DiedChild> {
        self.envoy.check()?;
        self.origin.check()?;
        match &mut self.redis {
            Some(redis) => redis.check(),
            None => Ok(()),
        }
    }

    /// Stops Envoy, origin and Redis in that order, each by SIGTERM.
    pub fn stop(&mut self) {
        self.envoy.process().stop();
        self.origin.process().stop();
        if let Some(redis) = &mut self.redis {
            redis.stop();
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

fn or_free(port: Option<u16>) -> Result<u16> {
    port.map_or_else(ports::free, Ok)
}

/// The host and port of a Redis URL that the shipped config can reach.
fn plain_redis(url: &str) -> Result<(String, u16)> {
    let info = url
        .into_connection_info()
        .with_context(|| format!("not a Redis URL: {url}"))?;
    let settings = info.redis_settings();
    ensure!(
        settings.password().is_none() && settings.username().is_none() && settings.db() == 0,
        "envoy/weir.yaml reaches a Redis with no password and in database 0 only; for another, \
         copy the file and set redis_proxy's auth"
    );
    match info.addr() {
        redis::ConnectionAddr::Tcp(host, port) => Ok((host.clone(), *port)),
        _ => bail!("envoy/weir.yaml reaches Redis over plain TCP only: redis://host:port"),
    }
}

/// The folder of one run, locked against a second stack in it.
#[derive(Debug)]
struct DataDir {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
    _lock: File,
}

impl DataDir {
    fn open(named: Option<PathBuf>) -> Result<Self> {
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

    fn keep(&mut self) {
        if let Some(temporary) = &mut self.temporary {
            temporary.disable_cleanup(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_that_the_shipped_config_cannot_reach_is_refused() {
        assert_eq!(plain_redis("redis://h:7").unwrap(), ("h".to_owned(), 7));
        for url in [
            "redis://:secret@h:7",
            "redis://h:7/3",
            "rediss://h:7",
            "h:7",
        ] {
            assert!(plain_redis(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_data_folder_holds_one_stack() {
        let temp = tempfile::tempdir().unwrap();
        let _first = DataDir::open(Some(temp.path().to_path_buf())).unwrap();
        assert!(DataDir::open(Some(temp.path().to_path_buf())).is_err());
    }
}
