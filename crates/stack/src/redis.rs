//! A Redis of our own, on a port of its own, that keeps its data when it is stopped.

use crate::process::{DiedChild, Process};
use crate::tools;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Loading a kept data folder takes longest.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// A running Redis or Valkey.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
}

impl RedisServer {
    /// Starts it on 127.0.0.1:`port` with its append-only file in `dir`, and its log at
    /// `log`.
    pub async fn start(tool: &tools::Redis, port: u16, dir: &Path, log: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let dir = std::path::absolute(dir)?;
        let binary = tool.path.clone();
        let make = move || {
            let mut command = Command::new(&binary);
            command
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                // The append-only file alone: it holds every write, a snapshot only some.
                .args(["--appendonly", "yes", "--save", ""])
                .args(["--daemonize", "no", "--dir"])
                .arg(&dir);
            command
        };
        let process = Process::start("redis", log, make)?;
        let mut server = Self { process, port };
        server.wait_ready().await?;
        Ok(server)
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process, for its log and its state.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it by SIGTERM: everything written is kept.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Ends it by SIGKILL: what was not yet handed to the system is lost.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port with the same data.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// A new connection.
    pub async fn connection(&self) -> Result<redis::aio::MultiplexedConnection> {
        connect(&self.url()).await
    }

    /// How often each command was called, by its lower-case name.
    pub async fn command_calls(&self) -> Result<BTreeMap<String, u64>> {
        command_calls(&self.url()).await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let url = self.url();
        let ready = || async {
            let answered = async {
                let mut connection = connect(&url).await?;
                let pong: String = redis::cmd("PING").query_async(&mut connection).await?;
                anyhow::Ok(pong)
            };
            answered.await.is_ok()
        };
        self.process.wait_ready(READY_LIMIT, ready).await
    }

    /// An error if it ended by itself.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        self.process.check()
    }
}

/// A new connection to the Redis at `url`.
pub async fn connect(url: &str) -> Result<redis::aio::MultiplexedConnection> {
    let client = redis::Client::open(url).with_context(|| format!("not a Redis URL: {url}"))?;
    client
        .get_multiplexed_async_connection()
        .await
        .with_context(|| format!("cannot connect to {url}"))
}

/// How often each command was called since the server started or its counters were reset, by
/// lower-case name; commands inside scripts count under their own names. From
/// `INFO commandstats`.
pub async fn command_calls(url: &str) -> Result<BTreeMap<String, u64>> {
    let mut connection = connect(url).await?;
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await
        .context("INFO commandstats")?;
    Ok(parse_commandstats(&info))
}

/// Lines like `cmdstat_evalsha:calls=3,usec=41,…`.
fn parse_commandstats(info: &str) -> BTreeMap<String, u64> {
    let parse = |line: &str| {
        let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = fields
            .split(',')
            .find_map(|field| field.strip_prefix("calls="))?;
        Some((name.to_owned(), calls.parse().ok()?))
    };
    info.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ports, report::Silent};

    #[test]
    fn commandstats_are_read_by_name() {
        let info = "# Commandstats\r\ncmdstat_evalsha:calls=3,usec=41\r\n\
                    cmdstat_config|get:calls=1,usec=2\r\n";
        let calls = parse_commandstats(info);
        assert_eq!(calls.get("evalsha"), Some(&3));
        assert_eq!(calls.get("config|get"), Some(&1));
    }

    #[tokio::test]
    async fn data_survives_stop_and_start() {
        let temp = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut Silent).unwrap();
        let port = ports::free().unwrap();
        let log = temp.path().join("redis.log");
        let mut server = RedisServer::start(&tool, port, temp.path(), &log)
            .await
            .unwrap();
        let mut connection = server.connection().await.unwrap();
        let set = redis::cmd("SET").arg("k").arg("v").to_owned();
        set.exec_async(&mut connection).await.unwrap();
        server.stop();
        assert!(server.connection().await.is_err());
        server.start_again().await.unwrap();
        let mut connection = server.connection().await.unwrap();
        let kept: String = redis::cmd("GET")
            .arg("k")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(kept, "v");
        assert_eq!(server.command_calls().await.unwrap().get("get"), Some(&1));
    }
}
