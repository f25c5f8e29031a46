//! Gateways with only rate limits, from `envoy/ratelimit.yaml` or `envoy/ratelimit-redis.yaml`.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::net::Ipv4Addr;

use anyhow::{Context, Result, anyhow, ensure};
use tokio::task::JoinSet;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::fault::FaultProxy;
use weir_stack::http::{Connection, Method, Response};
use weir_stack::native::Host;
use weir_stack::redis::{RedisOptions, RedisServer, start_cluster};
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, ports, tools};

use crate::{script_calls_of, until};

/// The secret that operators send for debug output, if the configuration contains `"debug": { "secret": { "env":
/// "WEIR_DEBUG_SECRET" } }`.
pub const DEBUG_SECRET: &str = "only for operators";

/// The path between gateways and Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisPath {
    /// There is no Redis.
    None,
    /// A direct connection.
    Straight,
    /// A [`FaultProxy`].
    Faults,
    /// A direct connection to a Redis Cluster of three.
    Cluster,
}

/// The parameters of [`Limiters`].
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The number of gateways.
    pub gateways: usize,
    /// Workers per gateway.
    pub workers: u32,
    /// The path to Redis.
    pub redis: RedisPath,
    /// The filter's configuration, as JSON.
    pub config: &'a str,
}

/// Gateways with their own Redis, which has no persistence.
#[derive(Debug)]
pub struct Limiters {
    // Fields are dropped in this order: clients before their servers.
    /// The gateways.
    pub envoys: Vec<Envoy>,
    /// The proxy before Redis, if requested.
    pub faults: Option<FaultProxy>,
    redis: Option<RedisServer>,
    /// The nodes of a Redis Cluster.
    pub nodes: Vec<RedisServer>,
    data: DataDir,
}

impl Setup<'_> {
    /// Builds outdated programs, and starts everything.
    ///
    /// # Errors
    /// A process does not start. The error contains Envoy's message about an invalid configuration.
    pub async fn start(self) -> Result<Limiters> {
        Host::of_run().ensure_built()?;
        let data = DataDir::open(None)?;
        let (mut redis, mut faults, mut nodes) = (None, None, vec![]);
        let mut config = EnvoyConfig::ratelimit(self.redis != RedisPath::None)?;
        if self.redis == RedisPath::Cluster {
            let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
            nodes = start_cluster(&tool, &data.path).await?;
            let ports: Vec<_> = nodes.iter().map(RedisServer::port).collect();
            let ports = ports.try_into();
            let ports = ports.map_err(|_| anyhow!("a cluster is not of three"))?;
            config = config.redis_nodes(ports)?;
        } else if self.redis != RedisPath::None {
            let server = redis_in(&data).await?;
            let mut port = server.port();
            if self.redis == RedisPath::Faults {
                let server = (Ipv4Addr::LOCALHOST, port).into();
                let proxy = FaultProxy::start(ports::free()?, server).await?;
                port = faults.insert(proxy).port();
            }
            config = config.redis("127.0.0.1", port)?;
            redis = Some(server);
        }
        let mut limiters = Limiters {
            envoys: vec![],
            faults,
            redis,
            nodes,
            data,
        };
        let mut config = config
            .limiter_config(self.config)?
            .holding()?
            .filter_variables("weir.ratelimit", &["WEIR_DEBUG_SECRET"])?;
        if needs_responses(self.config) {
            config = config.ratelimit_headers()?;
        }
        for number in 0..self.gateways {
            let envoy = limiters.envoy(number, self.workers, &config).await?;
            limiters.envoys.push(envoy);
        }
        Ok(limiters)
    }
}

/// Whether the configuration needs the module that reads responses.
fn needs_responses(config: &str) -> bool {
    ["\"on_allowed\"", "\"debug\""]
        .iter()
        .any(|field| config.contains(field))
}

pub(crate) async fn redis_in(data: &DataDir) -> Result<RedisServer> {
    let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
    let log = data.path.join("redis.log");
    let options = RedisOptions {
        durable: false,
        ..RedisOptions::durable(ports::free()?, &data.path, &log)
    };
    RedisServer::start_with(&tool, &options).await
}

impl Limiters {
    async fn envoy(&self, number: usize, workers: u32, config: &EnvoyConfig) -> Result<Envoy> {
        let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut SilentReporter)?;
        let config = config.clone().gateway_port(ports::free()?)?;
        let options = EnvoyOptions {
            clock_ahead_ms: None,
            drain_s: None,
            config: config.admin_port(ports::free()?)?,
            workers,
            log_level: "info".to_owned(),
            variables: vec![("WEIR_DEBUG_SECRET".to_owned(), DEBUG_SECRET.to_owned())],
            dir: self.data.path.join(format!("gateway-{number}")),
        };
        Envoy::start(&tool, &options).await
    }

    /// Their Redis.
    ///
    /// # Errors
    /// There is none.
    pub fn redis(&mut self) -> Result<&mut RedisServer> {
        self.redis.as_mut().context("there is no Redis")
    }

    /// Script calls, as Redis counts them.
    ///
    /// # Errors
    /// Redis does not respond.
    pub async fn script_calls(&mut self) -> Result<u64> {
        Ok(script_calls_of(&self.redis()?.command_calls().await?))
    }

    /// A gateway's authority, `127.0.0.1:port`.
    pub fn authority(&self, gateway: usize) -> String {
        let url = self.envoys[gateway].url();
        url.trim_start_matches("http://").to_owned()
    }

    /// Sends one GET to the first gateway over a new connection, which reaches any worker.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response> {
        let mut connection = Connection::open(&self.authority(0)).await?;
        connection.send(Method::GET, path, headers, "").await
    }

    /// Like [`Limiters::ask`] as a user, `count` times concurrently. Returns the answers that passed, and the others.
    ///
    /// # Errors
    /// An answer is neither 200 nor 429.
    pub async fn burst(&self, path: &str, user: &str, count: usize) -> Result<Burst> {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (authority, path, user) = (self.authority(0), path.to_owned(), user.to_owned());
            tasks.spawn(async move {
                let mut connection = Connection::open(&authority).await?;
                let headers = [("x-user-id", user.as_str())];
                connection.send(Method::GET, &path, &headers, "").await
            });
        }
        let mut burst = Burst::default();
        while let Some(answer) = tasks.join_next().await {
            let answer = answer??;
            let list = match answer.status {
                200 => &mut burst.passed,
                429 => &mut burst.limited,
                status => anyhow::bail!("{status}: {}", answer.text()),
            };
            list.push(answer);
        }
        Ok(burst)
    }

    /// A counter of the filter, by the end of its name, summed over all gateways.
    ///
    /// # Errors
    /// A gateway does not report it.
    pub async fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for envoy in &self.envoys {
            let name = format!("wasmcustom.weir_ratelimit_{name}");
            sum += envoy.stat(&name).await?;
        }
        Ok(sum)
    }

    /// As [`Limiters::count`], once it is at least `least`: filters report their counts once a second.
    ///
    /// # Errors
    /// It does not reach `least` in time.
    pub async fn count_reaching(&self, name: &str, least: u64) -> Result<u64> {
        until(&format!("{name} is {least}"), async || {
            let count = self.count(name).await;
            count.is_ok_and(|count| count >= least)
        })
        .await?;
        self.count(name).await
    }

    /// Checks that all gateways are running and that no filter has trapped.
    ///
    /// # Errors
    /// A gateway ended, or a filter trapped.
    pub fn check(&mut self) -> Result<()> {
        check_envoys(&mut self.envoys)
    }
}

/// Checks that all are running and that no filter has trapped.
pub(crate) fn check_envoys(envoys: &mut [Envoy]) -> Result<()> {
    for envoy in envoys {
        envoy.check()?;
        let log = std::fs::read_to_string(envoy.process().log())?;
        for sign in ["VM failed", "panicked", "Function: proxy_"] {
            ensure!(!log.contains(sign), "a filter has trapped: {log}");
        }
    }
    Ok(())
}

/// Answers to concurrent requests.
#[derive(Debug, Default)]
pub struct Burst {
    /// Answers with 200.
    pub passed: Vec<Response>,
    /// Answers with 429.
    pub limited: Vec<Response>,
}

impl Drop for Limiters {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.data.keep();
            eprintln!("logs are in {}", self.data.path.display());
        }
    }
}
