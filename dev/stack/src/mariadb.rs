//! An own MariaDB, with its own port and data folder.

use crate::command;
use crate::process::Process;
use crate::tools;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Creating a data folder takes some seconds, and longer on a slow machine.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The only user, without a password: for tests only.
const USER: &str = "weir";

/// A running MariaDB.
#[derive(Debug)]
pub struct MariaDbServer {
    process: Process,
    port: u16,
}

impl MariaDbServer {
    /// Starts it on 127.0.0.1:`port` with its data in `dir`, which is created if missing, and its log at `log`. Its
    /// only user, `weir`, has no password and all privileges.
    pub async fn start(tool: &tools::MariaDb, port: u16, dir: &Path, log: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?;
        let data = dir.join("mariadb");
        if !data.join("mysql").is_dir() {
            make_data_folder(tool, &data)?;
        }
        let init = dir.join("mariadb-init.sql");
        let sql = format!(
            "CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1';\n\
             GRANT ALL ON *.* TO '{USER}'@'127.0.0.1';\n"
        );
        std::fs::write(&init, sql).with_context(|| format!("cannot write {}", init.display()))?;
        let binary = tool.server.clone();
        let make = move || {
            let mut command = Command::new(&binary);
            command
                // Must be the first argument: ignores machine-wide settings.
                .arg("--no-defaults")
                .args(as_this_user())
                .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
                .arg(format!("--port={port}"))
                .arg(format!("--datadir={}", data.display()))
                .arg(format!("--socket={}", data.join("socket").display()))
                .arg(format!("--pid-file={}", data.join("pid").display()))
                .arg(format!("--init-file={}", init.display()))
                .args(["--max-connections=1000", "--innodb-buffer-pool-size=64M"]);
            command
        };
        let process = Process::start("mariadb", log, make)?;
        let mut server = Self { process, port };
        server.wait_ready().await?;
        Ok(server)
    }

    /// `mysql://weir@127.0.0.1:<port>/<database>`. The database must exist.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same port with the same data.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// The server sends its greeting once it is ready: the init file has run by then.
    async fn wait_ready(&mut self) -> Result<()> {
        let port = self.port;
        let ready = || async move { greets(port).await.is_ok_and(|greets| greets) };
        self.process.wait_ready(READY_LIMIT, ready).await
    }
}

async fn greets(port: u16) -> std::io::Result<bool> {
    use tokio::io::AsyncReadExt;
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    // Length (3 bytes), sequence number (1), and the protocol version, which is 10.
    let mut head = [0; 5];
    let read = stream.read_exact(&mut head);
    let answered = tokio::time::timeout(Duration::from_secs(1), read).await;
    Ok(matches!(answered, Ok(Ok(_))) && head[4] == 10)
}

fn make_data_folder(tool: &tools::MariaDb, data: &Path) -> Result<()> {
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let mut install = Command::new(&tool.install_db);
    install
        .arg("--no-defaults")
        .args(as_this_user())
        .args(["--skip-test-db", "--auth-root-authentication-method=normal"])
        .arg(format!("--datadir={}", data.display()));
    command::succeed(&mut install, READY_LIMIT)
        .map(drop)
        .context("no data folder for MariaDB")
}

/// It refuses to run as root without this option.
fn as_this_user() -> Option<&'static str> {
    rustix::process::getuid().is_root().then_some("--user=root")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ports, report::SilentReporter};

    #[tokio::test]
    async fn mariadb_starts_stops_and_restarts() {
        let temp = tempfile::tempdir().unwrap();
        let tool = tools::MariaDb::find_or_get(&mut SilentReporter).unwrap();
        let port = ports::free().unwrap();
        let log = temp.path().join("mariadb.log");
        let mut server = MariaDbServer::start(&tool, port, temp.path(), &log)
            .await
            .unwrap();
        assert_eq!(server.url("a"), format!("mysql://weir@127.0.0.1:{port}/a"));
        server.process().stop();
        assert!(greets(port).await.is_err());
        server.start_again().await.unwrap();
        assert!(greets(port).await.unwrap());
    }
}
