//! `weir-origin shard-proxy`: a Redis-compatible proxy for origin and gateways. Sale shards and links with a click
//! limit are edge objects.
//!
//! It speaks RESP2. It translates commands on the keys of a shard into
//! [`ObjectCommands`](weir_edge::shard::ObjectCommands) and sends them, signed, to the edge. `links.rs` describes the
//! commands on links. It forwards all other commands unchanged to a Redis behind it, including `AUTH`. It is stateless:
//! several proxies may run side by side, and any of them may restart.
//!
//! When a reply is missing, the proxy closes the client's connection, as a crashed Redis would. The client cannot tell
//! whether the command ran, and repeats it. All scripts and commands here are idempotent; see
//! [`weir_origin_core::redis`].

#![forbid(unsafe_code)]

mod links;
mod session;
mod shards;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use redis::{ConnectionAddr, IntoConnectionInfo};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};
use weir_base::id::SaleId;
use weir_base::key::KeyRing;

use self::session::Session;
use self::shards::Shards;
use weir_origin_core::http::client::HttpClient;

/// Maximum number of connections; further ones wait. An origin uses a few, and each worker of a gateway a few more.
const CONNECTIONS_MAX: usize = 1_024;

/// Run a Redis-compatible proxy for stock and click limits in edge objects. It reads the edge secret from the
/// environment, like the origin.
#[derive(Clone, Debug, Args)]
pub struct ShardProxyCommand {
    /// Listen address. Any client can change the stock: allow only the origin and gateways
    #[arg(
        long,
        env = "WEIR_SHARD_PROXY_LISTEN",
        default_value = "127.0.0.1:6380"
    )]
    pub proxy_listen: SocketAddr,

    /// Edge with the shards: https://HOST or https://HOST:PORT, or the same with http
    #[arg(long, env = "WEIR_SHARDS_URL")]
    pub shards_url: String,

    /// PEM file with the CA of the edge; unset: the system's CAs
    #[arg(long, env = "WEIR_SHARDS_CA")]
    pub shards_ca: Option<PathBuf>,

    /// Name of this proxy in signed requests: 1 to 64 of a-z, 0-9 and -
    #[arg(long, env = "WEIR_SHARD_PROXY_NAME", default_value = "shard-proxy")]
    pub proxy_name: String,
}

/// Runs the proxy until the process ends. `redis_url` and `key_prefix` are the origin's.
///
/// # Errors
/// When it cannot start.
pub async fn run(
    redis_url: &str,
    key_prefix: &str,
    command: &ShardProxyCommand,
    keys: KeyRing,
) -> Result<()> {
    let redis = address(redis_url).context("--redis-url")?;
    let name = SaleId::new(&command.proxy_name).context("--proxy-name")?;
    let client = HttpClient::new(&command.shards_url, command.shards_ca.as_deref());
    let client = client.context("--shards-url")?;
    let shards = Arc::new(Shards::new(client, keys, name.as_str(), key_prefix));
    let listener = TcpListener::bind(command.proxy_listen);
    let listener = listener.await.context("--proxy-listen")?;
    info!(version = weir_version::long(), listen = %listener.local_addr()?, %redis, "shard proxy listening");
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await?;
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                continue;
            }
        };
        let session = Session::new(client, redis.clone(), Arc::clone(&shards));
        tokio::spawn(async move {
            if let Err(error) = session.serve().await {
                debug!("connection closed: {error:#}");
            }
            drop(permit);
        });
    }
}

/// Returns the host and port of the Redis behind the proxy.
fn address(url: &str) -> Result<String> {
    let info = url.into_connection_info()?;
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(format!("{host}:{port}")),
        _ => bail!("must be redis://<host>:<port>: the proxy connects to its Redis without TLS"),
    }
}
