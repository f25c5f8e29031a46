//! An own Redis on its own ports: one server or a cluster.

use crate::certificates::Certificates;
use crate::fault::FaultProxy;
use crate::process::{DiedChild, Process};
use crate::{ports, tools};
use anyhow::{Context, Result, anyhow, ensure};
use redis::aio::MultiplexedConnection;
use redis::{Client, TlsCertificates};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Mostly for loading a kept data folder.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The number of slots, from the Redis Cluster specification.
const SLOTS: u32 = 16_384;

/// A cluster's nodes discover each other within about 2 s.
const CLUSTER_LIMIT: Duration = Duration::from_secs(30);
const CLUSTER_POLL: Duration = Duration::from_millis(50);

/// The kind of Redis that a stack starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedisKind {
    /// One server with an append-only file: acknowledged writes survive a kill.
    #[default]
    Durable,
    /// One server without persistence: after a kill it is empty.
    Forgetful,
    /// Like `Durable`, only over TLS and with a password.
    Secured,
    /// A Redis Cluster of three nodes, each like `Durable`.
    Cluster,
    /// A primary and two replicas, each like `Durable`, with Sentinel.
    Replicated,
}

/// TLS with a password.
#[derive(Clone)]
pub struct Lock {
    /// The clients' password.
    pub password: String,
    /// The server's certificates.
    pub certificates: Certificates,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock(…)")
    }
}

/// The options of one server.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The data folder.
    pub dir: PathBuf,
    /// The log file.
    pub log: PathBuf,
    /// Whether it writes an append-only file.
    pub durable: bool,
    /// TLS and a password.
    pub lock: Option<Lock>,
    /// The cluster bus port, for a cluster node.
    pub bus_port: Option<u16>,
    /// Its own clock, if it has one.
    pub clock: Option<tools::Clock>,
    /// The primary's port, for a replica.
    pub replica_of: Option<u16>,
}

impl RedisOptions {
    /// A single plain server with an append-only file.
    pub fn durable(port: u16, dir: &Path, log: &Path) -> Self {
        Self {
            port,
            dir: dir.to_path_buf(),
            log: log.to_path_buf(),
            durable: true,
            lock: None,
            bus_port: None,
            clock: None,
            replica_of: None,
        }
    }

    /// The connection data for clients.
    fn access(&self) -> Access {
        let port = self.port;
        match &self.lock {
            None => Access::plain(format!("redis://127.0.0.1:{port}")),
            Some(lock) => Access {
                url: format!("rediss://:{}@127.0.0.1:{port}", lock.password),
                ca: Some(lock.certificates.ca.clone()),
            },
        }
    }

    /// Writes the password into a file that only the owner can read, because all users can read arguments.
    fn write_config(&self) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot create {}", self.dir.display()))?;
        let file = std::path::absolute(self.dir.join("redis.conf"))?;
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&file)?.write_all(self.config().as_bytes())
        };
        write().with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    fn config(&self) -> String {
        let port = self.port;
        let durable = if self.durable { "yes" } else { "no" };
        // Only the append-only file: it contains every write, a snapshot does not.
        let mut text = format!("bind 127.0.0.1\ndaemonize no\nsave \"\"\nappendonly {durable}\n");
        // The first synchronization of a replica would otherwise start after 5 s.
        text += "repl-diskless-sync-delay 0\n";
        match &self.lock {
            None => text += &format!("port {port}\n"),
            Some(Lock {
                password,
                certificates:
                    Certificates {
                        ca,
                        certificate,
                        key,
                    },
            }) => {
                text += &format!("port 0\ntls-port {port}\nrequirepass {password}\n");
                text += &format!("tls-cert-file \"{}\"\n", certificate.display());
                text += &format!("tls-key-file \"{}\"\n", key.display());
                text += &format!("tls-ca-cert-file \"{}\"\n", ca.display());
                text += "tls-auth-clients no\n";
            }
        }
        if let Some(bus_port) = self.bus_port {
            text += &format!("cluster-enabled yes\ncluster-port {bus_port}\n");
        }
        if let Some(primary) = self.replica_of {
            text += &format!("replicaof 127.0.0.1 {primary}\n");
        }
        text
    }
}

/// How a client connects to a Redis. Not for logs: the URL may contain a password.
#[derive(Clone)]
pub struct Access {
    /// `redis://…` or `rediss://…`.
    pub url: String,
    /// The trusted authority, in PEM; the system's if `None`.
    pub ca: Option<PathBuf>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access(…)")
    }
}

impl Access {
    /// Only a URL.
    pub fn plain(url: String) -> Self {
        Self { url, ca: None }
    }

    /// A new connection.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = self.client().context("not a Redis URL")?;
        let connected = client.get_multiplexed_async_connection().await;
        // The error's own text includes its causes.
        connected.map_err(|error| anyhow!("cannot connect to Redis: {error}"))
    }

    fn client(&self) -> Result<Client> {
        let Some(ca) = &self.ca else {
            return Ok(Client::open(self.url.as_str())?);
        };
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(std::fs::read(ca)?),
        };
        Ok(Client::build_with_tls(self.url.as_str(), certificates)?)
    }
}

/// A running Redis or Valkey.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
    access: Access,
}

impl RedisServer {
    /// Starts it on 127.0.0.1:`port` with its append-only file in `dir`, and its log at `log`.
    pub async fn start(tool: &tools::Redis, port: u16, dir: &Path, log: &Path) -> Result<Self> {
        Self::start_with(tool, &RedisOptions::durable(port, dir, log)).await
    }

    /// Starts it with `options`.
    pub async fn start_with(tool: &tools::Redis, options: &RedisOptions) -> Result<Self> {
        let config = options.write_config()?;
        let dir = std::path::absolute(&options.dir)?;
        let (binary, clock) = (tool.path.clone(), options.clock.clone());
        let make = move || {
            let mut command = Command::new(&binary);
            command.arg(&config).arg("--dir").arg(&dir);
            command.envs(clock.iter().flat_map(tools::Clock::variables));
            command
        };
        let mut server = Self {
            process: Process::start("redis", &options.log, make)?,
            port: options.port,
            access: options.access(),
        };
        server.wait_ready().await?;
        Ok(server)
    }

    /// `redis://127.0.0.1:<port>`, with its password if it has one.
    pub fn url(&self) -> String {
        self.access.url.clone()
    }

    /// The connection data for clients.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process, for its log and its state.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Stops it with SIGTERM: all writes are kept.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Kills it with SIGKILL: writes that had not reached the operating system are lost.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port with the same data.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// A new connection.
    pub async fn connection(&self) -> Result<MultiplexedConnection> {
        self.access.connect().await
    }

    /// The number of calls of each command, by lower-case name.
    pub async fn command_calls(&self) -> Result<BTreeMap<String, u64>> {
        calls_of(&self.access).await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let access = self.access.clone();
        let ready = || async {
            let answered = async {
                let mut connection = access.connect().await?;
                let pong: String = redis::cmd("PING").query_async(&mut connection).await?;
                anyhow::Ok(pong)
            };
            answered.await.is_ok()
        };
        self.process.wait_ready(READY_LIMIT, ready).await
    }

    /// Returns an error if it ended unexpectedly.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        self.process.check()
    }
}

/// A primary with two replicas, and the Sentinel that replaces the primary.
#[derive(Debug)]
pub struct ReplicatedSet {
    /// The nodes; the first one is the primary at the start.
    pub nodes: Vec<RedisServer>,
    /// Sentinel.
    pub sentinel: Process,
}

/// How long Sentinel waits for an answer of the primary before it starts a failover.
const DOWN_AFTER_MS: u32 = 1_000;

/// Starts the nodes and Sentinel, each with its own folder and log in `dir`, and waits until the replicas are connected and
/// Sentinel has found them.
pub async fn start_replicated(tool: &tools::Redis, dir: &Path) -> Result<ReplicatedSet> {
    let mut nodes: Vec<RedisServer> = Vec::new();
    for n in 0..3 {
        let (node_dir, log) = (
            dir.join(format!("redis-{n}")),
            dir.join(format!("redis-{n}.log")),
        );
        let options = RedisOptions {
            replica_of: nodes.first().map(RedisServer::port),
            ..RedisOptions::durable(ports::free()?, &node_dir, &log)
        };
        nodes.push(RedisServer::start_with(tool, &options).await?);
    }
    let primary = nodes.first().context("no nodes")?.port();
    let port = ports::free()?;
    let sentinel_dir = std::path::absolute(dir.join("sentinel"))?;
    std::fs::create_dir_all(&sentinel_dir)?;
    let config = sentinel_dir.join("sentinel.conf");
    let text = format!(
        "bind 127.0.0.1\nport {port}\ndir \"{}\"\nsentinel monitor weir 127.0.0.1 {primary} 1\n\
         sentinel down-after-milliseconds weir {DOWN_AFTER_MS}\nsentinel failover-timeout weir 10000\n",
        sentinel_dir.display()
    );
    std::fs::write(&config, text)?;
    let binary = tool.path.clone();
    let make = move || {
        let mut command = Command::new(&binary);
        command.arg(&config).arg("--sentinel");
        command
    };
    let mut sentinel = Process::start("redis-sentinel", &dir.join("sentinel.log"), make)?;
    let access = Access::plain(format!("redis://127.0.0.1:{port}"));
    let has_replicas = || async {
        let count = async {
            let mut connection = access.connect().await?;
            let mut replicas = redis::cmd("SENTINEL");
            replicas.arg("REPLICAS").arg("weir");
            let replicas: Vec<redis::Value> = replicas.query_async(&mut connection).await?;
            anyhow::Ok(replicas.len())
        };
        count.await.is_ok_and(|count| count == 2)
    };
    sentinel.wait_ready(READY_LIMIT, has_replicas).await?;
    Ok(ReplicatedSet { nodes, sentinel })
}

/// Starts the nodes of a Redis Cluster, each with its own folder and log in `dir`. Assigns a third of the slots to
/// each, and waits until all agree.
pub async fn start_cluster(tool: &tools::Redis, dir: &Path) -> Result<Vec<RedisServer>> {
    const NODES: u32 = 3;
    let (mut nodes, mut bus_ports) = (Vec::new(), Vec::new());
    for n in 0..NODES {
        let (node_dir, log) = (
            dir.join(format!("redis-{n}")),
            dir.join(format!("redis-{n}.log")),
        );
        let bus_port = ports::free()?;
        let options = RedisOptions {
            bus_port: Some(bus_port),
            ..RedisOptions::durable(ports::free()?, &node_dir, &log)
        };
        nodes.push(RedisServer::start_with(tool, &options).await?);
        bus_ports.push(bus_port);
    }
    for (n, node) in (0..NODES).zip(&nodes) {
        let first = SLOTS * n / NODES;
        let last = SLOTS * (n + 1) / NODES - 1;
        let mut connection = node.connection().await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("ADDSLOTSRANGE").arg(first).arg(last);
        slots.exec_async(&mut connection).await?;
        for (other, bus_port) in nodes.iter().zip(&bus_ports) {
            let mut meet = redis::cmd("CLUSTER");
            meet.arg("MEET")
                .arg("127.0.0.1")
                .arg(other.port)
                .arg(bus_port);
            meet.exec_async(&mut connection).await?;
        }
    }
    wait_for_cluster(&nodes).await?;
    Ok(nodes)
}

/// Waits until each node reports that three nodes serve all slots.
async fn wait_for_cluster(nodes: &[RedisServer]) -> Result<()> {
    let deadline = Instant::now() + CLUSTER_LIMIT;
    for node in nodes {
        let mut connection = node.connection().await?;
        loop {
            let info: String = redis::cmd("CLUSTER")
                .arg("INFO")
                .query_async(&mut connection)
                .await?;
            let size = format!("cluster_size:{}", nodes.len());
            let is_so = |line: &str| info.lines().any(|existing| existing == line);
            if is_so("cluster_state:ok") && is_so(&size) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the cluster nodes do not agree:\n{info}"
            );
            tokio::time::sleep(CLUSTER_POLL).await;
        }
    }
    Ok(())
}

/// Starts a proxy before each node of a cluster. The node announces the proxy as its own address, so all client traffic
/// uses it. Traffic between nodes bypasses it.
pub async fn proxied(nodes: &[RedisServer]) -> Result<Vec<FaultProxy>> {
    let mut proxies = Vec::new();
    for node in nodes {
        let address = ([127, 0, 0, 1], node.port).into();
        let proxy = FaultProxy::start(ports::free()?, address).await?;
        let mut announce = redis::cmd("CONFIG");
        announce
            .arg("SET")
            .arg("cluster-announce-port")
            .arg(proxy.port());
        announce.exec_async(&mut node.connection().await?).await?;
        proxies.push(proxy);
    }
    wait_for_announced(nodes, &proxies).await?;
    Ok(proxies)
}

/// Waits until each node has received the announced address of every node.
async fn wait_for_announced(nodes: &[RedisServer], proxies: &[FaultProxy]) -> Result<()> {
    let deadline = Instant::now() + CLUSTER_LIMIT;
    for node in nodes {
        let mut connection = node.connection().await?;
        loop {
            let existing: String = redis::cmd("CLUSTER")
                .arg("NODES")
                .query_async(&mut connection)
                .await?;
            let is_known = |proxy: &FaultProxy| existing.contains(&format!(":{}@", proxy.port()));
            if proxies.iter().all(is_known) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the cluster does not list the proxies:\n{existing}"
            );
            tokio::time::sleep(CLUSTER_POLL).await;
        }
    }
    Ok(())
}

/// A new connection to the Redis at `url`.
pub async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let access = Access::plain(url.to_owned());
    access.connect().await
}

/// The number of calls of each command since the server started or its counters were reset, by lower-case name, from
/// `INFO commandstats`. Commands inside scripts count under their own names.
pub async fn command_calls(url: &str) -> Result<BTreeMap<String, u64>> {
    calls_of(&Access::plain(url.to_owned())).await
}

async fn calls_of(access: &Access) -> Result<BTreeMap<String, u64>> {
    let mut connection = access.connect().await?;
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await
        .context("INFO commandstats")?;
    Ok(parse_commandstats(&info))
}

/// Parses lines like `cmdstat_evalsha:calls=3,usec=41,…`.
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
    use crate::report::SilentReporter;

    fn tool() -> tools::Redis {
        tools::Redis::find_or_get(&mut SilentReporter).unwrap()
    }

    async fn set(server: &RedisServer) {
        let mut connection = server.connection().await.unwrap();
        let set = redis::cmd("SET").arg("k").arg("v").to_owned();
        set.exec_async(&mut connection).await.unwrap();
    }

    async fn get(server: &RedisServer) -> Option<String> {
        let mut connection = server.connection().await.unwrap();
        let get = redis::cmd("GET").arg("k").to_owned();
        get.query_async(&mut connection).await.unwrap()
    }

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
        let port = ports::free().unwrap();
        let log = temp.path().join("redis.log");
        let mut server = RedisServer::start(&tool(), port, temp.path(), &log)
            .await
            .unwrap();
        set(&server).await;
        server.stop();
        assert!(server.connection().await.is_err());
        server.start_again().await.unwrap();
        assert_eq!(get(&server).await.as_deref(), Some("v"));
        assert_eq!(server.command_calls().await.unwrap().get("get"), Some(&1));
    }

    #[tokio::test]
    async fn killed_redis_without_append_only_file_loses_its_data() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("redis.log");
        let options = RedisOptions {
            durable: false,
            ..RedisOptions::durable(ports::free().unwrap(), temp.path(), &log)
        };
        let mut server = RedisServer::start_with(&tool(), &options).await.unwrap();
        set(&server).await;
        server.kill();
        server.start_again().await.unwrap();
        assert_eq!(get(&server).await, None);
    }

    #[tokio::test]
    async fn secured_redis_requires_tls_and_its_password() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("redis.log");
        let certificates = Certificates::kept_in(&temp.path().join("tls")).unwrap();
        let options = RedisOptions {
            lock: Some(Lock {
                password: "hush".to_owned(),
                certificates,
            }),
            ..RedisOptions::durable(ports::free().unwrap(), temp.path(), &log)
        };
        let server = RedisServer::start_with(&tool(), &options).await.unwrap();
        set(&server).await;
        assert_eq!(get(&server).await.as_deref(), Some("v"));
        let port = server.port();
        assert!(
            connect(&format!("redis://:hush@127.0.0.1:{port}"))
                .await
                .is_err()
        );
        let wrong = Access {
            url: format!("rediss://:loud@127.0.0.1:{port}"),
            ca: server.access().ca.clone(),
        };
        assert!(wrong.connect().await.is_err());
        let trusted_by_none = Access::plain(server.url());
        assert!(trusted_by_none.connect().await.is_err());
    }

    #[tokio::test]
    async fn cluster_of_three_shares_the_slots() {
        let temp = tempfile::tempdir().unwrap();
        let nodes = start_cluster(&tool(), temp.path()).await.unwrap();
        let urls: Vec<String> = nodes.iter().map(RedisServer::url).collect();
        let client = redis::cluster::ClusterClient::new(urls).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        for n in 0..30 {
            let set = redis::cmd("SET").arg(format!("k{n}")).arg(n).to_owned();
            set.exec_async(&mut connection).await.unwrap();
        }
        for node in &nodes {
            let mut connection = node.connection().await.unwrap();
            let size: u64 = redis::cmd("DBSIZE")
                .query_async(&mut connection)
                .await
                .unwrap();
            assert!((1..30).contains(&size), "{size}");
        }
    }
}
