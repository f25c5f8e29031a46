//! The Redis of a stack: its own, of any kind, or one that already runs.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use crate::certificates::Certificates;
use crate::envoy::EnvoyConfig;
use crate::fault::FaultProxy;
use crate::redis::{self, Access, Lock, RedisKind, RedisOptions, RedisServer, ReplicatedSet};
use crate::report::Reporter;
use crate::{ports, secrets, tools};
use ::redis::IntoConnectionInfo;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// The Redis connection settings for origin and gateways.
#[derive(Debug)]
pub struct Backing {
    /// The own server, if there is exactly one.
    pub server: Option<RedisServer>,
    /// The nodes of the own cluster.
    pub cluster: Vec<RedisServer>,
    /// The own primary with its replicas.
    pub replicated: Option<ReplicatedSet>,
    /// For the origin and tests: the URL, or the nodes' URLs, comma-separated.
    pub access: Access,
    /// Variables for Envoy.
    pub(crate) variables: Vec<(String, String)>,
    host: String,
    port: u16,
}

/// The maximum wait for an existing Redis.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

async fn ping(url: &str) -> Result<()> {
    let mut connection = redis::connect(url).await?;
    ::redis::cmd("PING").exec_async(&mut connection).await?;
    Ok(())
}

impl Backing {
    /// An existing Redis that answers.
    pub(crate) async fn running(url: &str) -> Result<Self> {
        let there = Self::at(url)?;
        let requested = tokio::time::timeout(ANSWER_LIMIT, ping(url)).await;
        let requested =
            requested.unwrap_or_else(|_| Err(anyhow!("no answer within {ANSWER_LIMIT:?}")));
        requested.with_context(|| {
            format!(
                "no answer from Redis at {url}: start Redis there, or omit --redis-url to start one"
            )
        })?;
        Ok(there)
    }

    /// An existing Redis whose life cycle belongs to others.
    pub(crate) fn at(url: &str) -> Result<Self> {
        let (host, port) = plain_redis(url)?;
        Ok(Self {
            server: None,
            cluster: Vec::new(),
            replicated: None,
            access: Access::plain(format!("redis://{host}:{port}")),
            variables: Vec::new(),
            host,
            port,
        })
    }

    /// Starts a Redis of `kind` with its data in `dir`. A single server uses `port` if it is set.
    pub(crate) async fn start(
        kind: RedisKind,
        port: Option<u16>,
        dir: &Path,
        reporter: &mut (dyn Reporter + Send),
    ) -> Result<Self> {
        let tool = tools::Redis::find_or_get(reporter)?;
        if kind == RedisKind::Cluster {
            return Self::start_cluster(&tool, dir).await;
        }
        if kind == RedisKind::Replicated {
            return Self::start_replicated(&tool, dir).await;
        }
        let port = port.map_or_else(ports::free, Ok)?;
        let mut options = RedisOptions::durable(port, &dir.join("redis"), &dir.join("redis.log"));
        options.durable = kind != RedisKind::Forgetful;
        let mut variables = Vec::new();
        if kind == RedisKind::Secured {
            let password = secrets::random_hex()?;
            variables.push(("WEIR_REDIS_PASSWORD".to_owned(), password.clone()));
            options.lock = Some(Lock {
                password,
                certificates: Certificates::kept_in(&dir.join("tls"))?,
            });
        }
        let server = RedisServer::start_with(&tool, &options).await?;
        Ok(Self {
            access: server.access().clone(),
            server: Some(server),
            cluster: Vec::new(),
            replicated: None,
            variables,
            host: "127.0.0.1".to_owned(),
            port,
        })
    }

    async fn start_cluster(tool: &tools::Redis, dir: &Path) -> Result<Self> {
        let cluster = redis::start_cluster(tool, dir).await?;
        let urls: Vec<String> = cluster.iter().map(RedisServer::url).collect();
        Ok(Self {
            server: None,
            port: cluster[0].port(),
            cluster,
            replicated: None,
            access: Access::plain(urls.join(",")),
            variables: Vec::new(),
            host: "127.0.0.1".to_owned(),
        })
    }

    async fn start_replicated(tool: &tools::Redis, dir: &Path) -> Result<Self> {
        let set = redis::start_replicated(tool, dir).await?;
        let urls: Vec<String> = set.nodes.iter().map(RedisServer::url).collect();
        Ok(Self {
            server: None,
            cluster: Vec::new(),
            port: set.nodes[0].port(),
            replicated: Some(set),
            access: Access::plain(format!("replicated:{}", urls.join(","))),
            variables: Vec::new(),
            host: "127.0.0.1".to_owned(),
        })
    }

    /// All own servers.
    pub(crate) fn servers(&mut self) -> impl Iterator<Item = &mut RedisServer> {
        let replicated = self.replicated.iter_mut().flat_map(|set| &mut set.nodes);
        let single = self.server.iter_mut().chain(&mut self.cluster);
        single.chain(replicated)
    }

    /// Makes all clients use a proxy on this port of 127.0.0.1 in place of the Redis.
    pub(crate) fn stand_behind(&mut self, port: u16) {
        self.access = Access::plain(format!("redis://127.0.0.1:{port}"));
        self.port = port;
    }

    /// A proxy between gateways and Redis.
    pub(crate) async fn faults_before_gateways(&mut self) -> Result<FaultProxy> {
        let proxy = self.start_proxy().await?;
        self.port = proxy.port();
        Ok(proxy)
    }

    /// A proxy between the origin and Redis. Its client does not support a password or TLS of this Redis.
    pub(crate) async fn faults_behind_origin(&self) -> Result<FaultProxy> {
        ensure!(
            plain_redis(&self.access.url).is_ok(),
            "the fault proxy does not support a Redis with TLS or a password"
        );
        self.start_proxy().await
    }

    async fn start_proxy(&self) -> Result<FaultProxy> {
        // Cluster nodes announce their own addresses, which bypass any proxy.
        ensure!(
            self.cluster.is_empty() && self.replicated.is_none(),
            "the fault proxy supports only one server"
        );
        FaultProxy::start(ports::free()?, ([127, 0, 0, 1], self.port).into()).await
    }

    /// Writes the address and the kind of Redis into a gateway's configuration.
    pub(crate) fn configure(&self, config: EnvoyConfig) -> Result<EnvoyConfig> {
        let ports: Vec<u16> = self.cluster.iter().map(RedisServer::port).collect();
        if let Ok(ports) = ports.try_into() {
            return config.redis_cluster(ports);
        }
        if let Some(set) = &self.replicated {
            return config.redis_replicated(set.nodes.iter().map(RedisServer::port));
        }
        let config = match &self.access.ca {
            Some(ca) => config.redis_tls(ca)?,
            None => config,
        };
        config.redis(&self.host, self.port)
    }
}

/// The host and port of a Redis URL that the shipped configuration supports.
fn plain_redis(url: &str) -> Result<(String, u16)> {
    let info = url
        .into_connection_info()
        .with_context(|| format!("not a Redis URL: {url}"))?;
    let settings = info.redis_settings();
    ensure!(
        settings.password().is_none() && settings.username().is_none() && settings.db() == 0,
        "envoy/weir.yaml supports only a Redis without a password, in database 0; otherwise copy the file and edit it as in envoy/snippets/redis-tls.yaml"
    );
    match info.addr() {
        ::redis::ConnectionAddr::Tcp(host, port) => Ok((host.clone(), *port)),
        _ => bail!("envoy/weir.yaml supports only plain TCP: redis://host:port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unresponsive_redis_is_reported_at_once() {
        let port = ports::free().unwrap();
        let url = format!("redis://127.0.0.1:{port}");
        let error = Backing::running(&url).await.err().unwrap();
        let message = format!("{error:#}");
        assert!(
            message.contains(&url) && message.contains("refused"),
            "{message}"
        );
    }

    #[test]
    fn redis_out_of_reach_of_the_shipped_config_is_refused() {
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
}
