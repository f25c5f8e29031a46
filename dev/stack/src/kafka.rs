//! An own Apache Kafka: a cluster of three on its own ports.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use crate::process::{DiedChild, Process};
use crate::tools::Kafka;
use crate::{command, ports};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Three JVMs that start concurrently on a busy two-core machine take half a minute.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// The timeout for formatting a broker's data folder.
const FORMAT_LIMIT: Duration = Duration::from_secs(60);

/// The number of brokers: with one down, the other two have all data.
pub const BROKERS: usize = 3;

/// The cluster ID in the data files. Each cluster has its own folder, so all share one ID.
const CLUSTER_ID: &str = "d2Vpci10ZXN0cy1rYWZrYQ";

/// A cluster of three brokers, each also a controller (KRaft). Topics have three replicas, and two must have an
/// acknowledged record.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<Broker>,
}

#[derive(Debug)]
struct Broker {
    process: Process,
    port: u16,
}

/// The ports of one broker.
#[derive(Debug, Clone, Copy)]
struct Ports {
    broker: u16,
    controller: u16,
}

impl KafkaCluster {
    /// Starts the cluster with its data and logs in `dir`, and waits until all brokers have joined.
    ///
    /// # Errors
    /// A broker does not become ready; the error contains the end of its log.
    pub async fn start(tool: &Kafka, dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?;
        let ports: Vec<Ports> = (0..BROKERS).map(|_| free_ports()).collect::<Result<_>>()?;
        let configs = write_configs(&dir, &ports)?;
        format_folders(tool, &configs)?;
        let start = |(config, ports): (&PathBuf, &Ports)| {
            let (tool, config) = (tool.clone(), config.clone());
            let name = name_of(&config);
            let log = dir.join(format!("{name}.log"));
            let make = move || java(&tool, "kafka.Kafka", &[&config]);
            Ok(Broker {
                process: Process::start(&name, &log, make)?,
                port: ports.broker,
            })
        };
        let brokers: Result<_> = configs.iter().zip(&ports).map(start).collect();
        let mut cluster = Self { brokers: brokers? };
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// `127.0.0.1:<port>` of each broker, comma-separated: the `bootstrap.servers` of clients.
    pub fn servers(&self) -> String {
        let address = |broker: &Broker| format!("127.0.0.1:{}", broker.port);
        let all: Vec<String> = self.brokers.iter().map(address).collect();
        all.join(",")
    }

    /// The process of a broker, by its number from 0: stop it, kill it, freeze it, read its log.
    ///
    /// # Panics
    /// If there is no such broker.
    pub fn broker(&mut self, number: usize) -> &mut Process {
        &mut self.brokers[number].process
    }

    /// Restarts stopped brokers on the same ports with the same data, and waits until all have joined.
    ///
    /// # Errors
    /// As for [`KafkaCluster::start`].
    pub async fn start_again(&mut self) -> Result<()> {
        for broker in &mut self.brokers {
            if !broker.process.is_running() {
                broker.process.start_again()?;
            }
        }
        self.wait_ready().await
    }

    /// Returns an error if a broker ended unexpectedly.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        let check = |broker: &mut Broker| broker.process.check();
        self.brokers.iter_mut().try_for_each(check)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        for broker in &mut self.brokers {
            let port = broker.port;
            let knows_all = || async move { brokers_known_to(port).await.ok() == Some(BROKERS) };
            broker.process.wait_ready(READY_LIMIT, knows_all).await?;
        }
        Ok(())
    }
}

impl Drop for KafkaCluster {
    /// Stops all at once: in sequence, each would move its partitions to the next one first.
    fn drop(&mut self) {
        for broker in &mut self.brokers {
            broker.process.kill();
        }
    }
}

fn free_ports() -> Result<Ports> {
    Ok(Ports {
        broker: ports::free()?,
        controller: ports::free()?,
    })
}

fn write_configs(dir: &Path, ports: &[Ports]) -> Result<Vec<PathBuf>> {
    let write = |n: usize| {
        let name = format!("kafka-{n}");
        let config = dir.join(&name).with_extension("properties");
        std::fs::create_dir_all(dir)?;
        std::fs::write(&config, properties(n, ports, &dir.join(name)))
            .with_context(|| format!("cannot write {}", config.display()))?;
        Ok(config)
    };
    (0..ports.len()).map(write).collect()
}

fn properties(n: usize, ports: &[Ports], data: &Path) -> String {
    let own = ports[n];
    let voter = |(n, ports): (usize, &Ports)| format!("{n}@127.0.0.1:{}", ports.controller);
    let voters: Vec<String> = ports.iter().enumerate().map(voter).collect();
    format!(
        "process.roles=broker,controller\n\
         node.id={n}\n\
         controller.quorum.voters={}\n\
         listeners=CLIENTS://127.0.0.1:{},CONTROLLERS://127.0.0.1:{}\n\
         listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT\n\
         inter.broker.listener.name=CLIENTS\n\
         controller.listener.names=CONTROLLERS\n\
         log.dirs={}\n\
         # A topic that nobody has made shall be missed.\n\
         auto.create.topics.enable=false\n\
         default.replication.factor=3\n\
         min.insync.replicas=2\n\
         offsets.topic.num.partitions=3\n\
         offsets.topic.replication.factor=3\n\
         transaction.state.log.num.partitions=1\n\
         transaction.state.log.replication.factor=3\n\
         transaction.state.log.min.isr=2\n\
         # Tests kill brokers and members of groups: that is noticed sooner than by default.\n\
         broker.session.timeout.ms=4000\n\
         broker.heartbeat.interval.ms=500\n\
         group.min.session.timeout.ms=1000\n\
         group.initial.rebalance.delay.ms=0\n",
        voters.join(","),
        own.broker,
        own.controller,
        data.display()
    )
}

/// Formats the data folders concurrently, because each needs a JVM.
fn format_folders(tool: &Kafka, configs: &[PathBuf]) -> Result<()> {
    std::thread::scope(|scope| {
        let mut formats = Vec::new();
        for config in configs {
            formats.push(scope.spawn(move || format_folder(tool, config)));
        }
        formats.into_iter().try_for_each(|format| {
            let done = format.join();
            done.map_err(|_| anyhow::anyhow!("a thread that formats a folder panicked"))?
        })
    })
}

fn format_folder(tool: &Kafka, config: &Path) -> Result<()> {
    if config.with_extension("").is_dir() {
        return Ok(());
    }
    let mut format = java(tool, "kafka.tools.StorageTool", &[]);
    format.args(["format", "--cluster-id", CLUSTER_ID, "--config"]);
    command::succeed(format.arg(config), FORMAT_LIMIT)
        .map(drop)
        .with_context(|| format!("no data folder for {}", name_of(config)))
}

fn java(tool: &Kafka, main: &str, arguments: &[&Path]) -> Command {
    // log4j logs only errors by default.
    let level = "-Dorg.apache.logging.log4j.level=INFO";
    let mut command = tool.0.command(&["-Xms64m", "-Xmx256m", level], main);
    command.args(arguments);
    command
}

fn name_of(config: &Path) -> String {
    let stem = config.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A metadata request for no topics (key 3, version 1), as bytes on the wire: length, key, version, correlation ID,
/// null client ID, no topics.
const METADATA: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0];

/// The number of brokers that the broker on this port reports.
async fn brokers_known_to(port: u16) -> Result<usize> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(&METADATA).await?;
        // Length, correlation ID, and the length of the first array, which lists the brokers.
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        anyhow::Ok(head)
    };
    let head = tokio::time::timeout(Duration::from_secs(1), ask).await??;
    ensure!(
        head[4..8] == METADATA[8..12],
        "the answer is for another request"
    );
    Ok(u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broker_is_configured_with_its_peers_and_its_ports() {
        let at = |broker, controller| Ports { broker, controller };
        let text = properties(1, &[at(1, 2), at(3, 4)], Path::new("/d/kafka-1"));
        let has = |line: &str| {
            assert!(
                text.lines().any(|existing| existing == line),
                "{line}: {text}"
            )
        };
        has("node.id=1");
        has("controller.quorum.voters=0@127.0.0.1:2,1@127.0.0.1:4");
        has("listeners=CLIENTS://127.0.0.1:3,CONTROLLERS://127.0.0.1:4");
        has("log.dirs=/d/kafka-1");
    }
}
