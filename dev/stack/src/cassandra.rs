//! An own Apache Cassandra: one node on its own ports.

use crate::ports;
use crate::process::Process;
use crate::tools::Cassandra;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::net::TcpStream;

/// Startup takes 10 s on an idle machine, and longer on a busy one.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// JVM internals that Cassandra needs, from its `conf/jvm17-server.options`.
const EXPORTS: [&str; 9] = [
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];

/// As above.
const OPENS: [&str; 16] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

/// Settings of a single node: no waiting for peers, no authentication.
const SETTINGS: [&str; 6] = [
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1",
    "-Dcassandra.superuser_setup_delay_ms=-1",
];

/// A running Cassandra: one node without passwords. Keyspaces need one replica.
#[derive(Debug)]
pub struct CassandraServer {
    process: Process,
    port: u16,
}

impl CassandraServer {
    /// Starts it on 127.0.0.1 with its data in `dir`, which is created if missing, and its log at `log`.
    ///
    /// # Errors
    /// It does not become ready; the error contains the end of its log.
    pub async fn start(tool: &Cassandra, dir: &Path, log: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?.join("cassandra");
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let (port, storage_port) = (ports::free()?, ports::free()?);
        let config = dir.join("cassandra.yaml");
        std::fs::write(&config, settings(port, storage_port, &dir))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let tool = tool.clone();
        let process = Process::start("cassandra", log, move || command(&tool, &config, &dir))?;
        let mut server = Self { process, port };
        server.wait_ready().await?;
        Ok(server)
    }

    /// `127.0.0.1:<port>`, where clients connect.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same port with the same data.
    ///
    /// # Errors
    /// As for [`CassandraServer::start`].
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// It listens for clients only when startup is complete.
    async fn wait_ready(&mut self) -> Result<()> {
        let port = self.port;
        let listens = || async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        self.process.wait_ready(READY_LIMIT, listens).await
    }
}

fn command(tool: &Cassandra, config: &Path, dir: &Path) -> Command {
    let all = |subject: &str, names: &[&str]| -> Vec<String> {
        let one = |name: &&str| format!("--add-{subject}={name}=ALL-UNNAMED");
        names.iter().map(one).collect()
    };
    let mut flags = all("exports", &EXPORTS);
    flags.extend(all("opens", &OPENS));
    flags.push(format!("-Dcassandra.config=file://{}", config.display()));
    flags.push(format!("-Dcassandra.storagedir={}", dir.display()));
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.extend(["-Xms128m", "-Xmx512m"]);
    flags.extend(SETTINGS);
    tool.0
        .command(&flags, "org.apache.cassandra.service.CassandraDaemon")
}

fn settings(port: u16, storage_port: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "cluster_name: weir\n\
         num_tokens: 1\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         endpoint_snitch: SimpleSnitch\n\
         seed_provider:\n\
         - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n  \
           parameters:\n  \
           - seeds: \"127.0.0.1:{storage_port}\"\n\
         listen_address: 127.0.0.1\n\
         rpc_address: 127.0.0.1\n\
         storage_port: {storage_port}\n\
         native_transport_port: {port}\n\
         # What is acknowledged is on the disk.\n\
         commitlog_sync: batch\n\
         commitlog_directory: {dir}/commitlog\n\
         data_file_directories: [{dir}/data]\n\
         saved_caches_directory: {dir}/saved_caches\n\
         hints_directory: {dir}/hints\n\
         cdc_raw_directory: {dir}/cdc\n\
         auto_snapshot: false\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cassandra_settings_are_yaml_with_its_ports_and_folders() {
        let text = settings(9042, 7000, Path::new("/d"));
        let read: serde_json::Value = yaml_serde::from_str(&text).unwrap();
        assert_eq!(read["native_transport_port"], 9042);
        assert_eq!(read["data_file_directories"][0], "/d/data");
        let seeds = &read["seed_provider"][0]["parameters"][0]["seeds"];
        assert_eq!(seeds, "127.0.0.1:7000");
    }
}
