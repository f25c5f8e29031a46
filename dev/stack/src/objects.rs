//! Stock in Durable Objects: the edge for Cloudflare in workerd, and the origin's proxy to its shards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::edge;
use crate::ports;
use crate::process::Process;

const READY_LIMIT: Duration = Duration::from_secs(30);

/// The options of the proxy.
#[derive(Debug, Clone)]
pub(crate) struct ProxyOptions {
    /// The origin's binary, which includes the proxy.
    pub(crate) binary: PathBuf,
    /// The Redis behind it.
    pub(crate) redis_url: String,
    /// The URL of the Worker.
    pub(crate) shards_url: String,
    pub(crate) key_prefix: String,
    /// The secret that signs commands.
    pub(crate) edge_secret: String,
}

/// A running proxy.
#[derive(Debug)]
pub struct ShardProxy {
    process: Process,
    port: u16,
}

impl ShardProxy {
    /// Starts it, and waits until Redis answers through it.
    pub(crate) async fn start(options: ProxyOptions, log: &Path) -> Result<Self> {
        let port = ports::free()?;
        let process = Process::start("shard-proxy", log, move || command(port, &options))?;
        let mut proxy = Self { process, port };
        let url = proxy.url();
        let ready = || async {
            let connection = crate::redis::connect(&url).await;
            connection.is_ok()
        };
        let waited = proxy.process.wait_ready(READY_LIMIT, ready).await;
        waited.context("the shard proxy")?;
        Ok(proxy)
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its Redis URL for origin and gateways.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Secrets are passed in the environment.
fn command(port: u16, options: &ProxyOptions) -> Command {
    let mut command = Command::new(&options.binary);
    command
        .args(["--key-prefix", &options.key_prefix])
        .arg("shard-proxy")
        .arg("--proxy-listen")
        .arg(format!("127.0.0.1:{port}"))
        .args(["--shards-url", &options.shards_url])
        .env("WEIR_REDIS_URL", &options.redis_url)
        .env(edge::SECRET, &options.edge_secret);
    command
}
