//! An own PostgreSQL, with its own port and data folder.

use crate::command;
use crate::process::Process;
use crate::tools;
use anyhow::{Context, Result};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Creating a data folder takes some seconds, and longer on a slow machine.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// After a kill, the server's other processes take a moment to end, and a new server refuses to start until then.
const STARTS_MAX: usize = 20;
const START_PAUSE: Duration = Duration::from_millis(100);

/// The only user, without a password: for tests only.
const USER: &str = "weir";

/// The user and group `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;

/// A running PostgreSQL.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    port: u16,
    data: PathBuf,
}

impl PostgresServer {
    /// Starts it on 127.0.0.1:`port` with its data in `dir`, which is created if missing, and its log at `log`. Its
    /// only user, `weir`, has no password and all privileges. If this process runs as root, the server runs as `nobody`,
    /// and `dir` becomes accessible to all users. `settings` are added, such as `fsync=off`.
    pub async fn start(
        tool: &tools::Postgres,
        port: u16,
        dir: &Path,
        log: &Path,
        settings: &'static [&'static str],
    ) -> Result<Self> {
        let data = std::path::absolute(dir)?.join("postgres");
        if !data.is_dir() {
            make_data_folder(tool, dir, &data)?;
        }
        let (binary, folder) = (tool.server.clone(), data.clone());
        let make = move || {
            let mut command = as_other_user(&binary);
            command
                .arg("-D")
                .arg(&folder)
                .args(["-p", &port.to_string()])
                .args(["-c", "listen_addresses=127.0.0.1"])
                .args(["-c", "unix_socket_directories="])
                .args(["-c", "max_connections=1000"])
                .args(settings.iter().flat_map(|setting| ["-c", setting]));
            command
        };
        let process = Process::start("postgres", log, make)?;
        let mut server = Self {
            process,
            port,
            data,
        };
        server.wait_ready().await?;
        Ok(server)
    }

    /// `postgres://weir@127.0.0.1:<port>/<database>`. The database must exist; `postgres` does.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same port with the same data.
    pub async fn start_again(&mut self) -> Result<()> {
        for _ in 0..STARTS_MAX {
            self.process.start_again()?;
            if self.wait_ready().await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// Starts it again as a standby, which refuses writes.
    pub async fn start_as_standby(&mut self) -> Result<()> {
        std::fs::write(self.data.join("standby.signal"), "").context("cannot write the signal")?;
        self.start_again().await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let port = self.port;
        let ready = || async move { answers(port).await.is_ok_and(|answers| answers) };
        self.process.wait_ready(READY_LIMIT, ready).await
    }
}

/// Whether it accepts a session: while it starts, it answers with an error.
async fn answers(port: u16) -> std::io::Result<bool> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let parameters = format!("user\0{USER}\0database\0postgres\0\0");
    let length = 8 + u32::try_from(parameters.len()).unwrap_or(0);
    // Length, protocol version 3.0, parameters.
    let head = [length.to_be_bytes(), 0x0003_0000_u32.to_be_bytes()].concat();
    stream.write_all(&head).await?;
    stream.write_all(parameters.as_bytes()).await?;
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read_u8());
    // Authentication; an error starts with E.
    Ok(matches!(read.await, Ok(Ok(b'R'))))
}

fn make_data_folder(tool: &tools::Postgres, dir: &Path, data: &Path) -> Result<()> {
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    if rustix::process::getuid().is_root() {
        let prepare = || {
            chown(data, Some(NOBODY), Some(NOBODY))?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711))
        };
        prepare().context("cannot prepare PostgreSQL's folder")?;
    }
    let mut initdb = as_other_user(&tool.initdb);
    initdb
        .arg("-D")
        .arg(data)
        .args(["-U", USER, "--auth=trust", "-E", "UTF8", "--no-sync"])
        // Tests must not depend on the server's order of texts.
        .args(["--locale-provider=icu", "--icu-locale=en-US", "--locale=C"]);
    command::succeed(&mut initdb, READY_LIMIT)
        .map(drop)
        .context("no data folder for PostgreSQL")
}

/// The program as `nobody` if this process runs as root. Changing the user clears the signal that ends the program with
/// its parent, so this sets it once more.
fn as_other_user(program: &Path) -> Command {
    let is_root = rustix::process::getuid().is_root();
    let mut command = Command::new(if is_root {
        Path::new("setpriv")
    } else {
        program
    });
    if is_root {
        command
            .args(["--pdeathsig", "KILL", "--clear-groups"])
            .arg(format!("--reuid={NOBODY}"))
            .arg(format!("--regid={NOBODY}"))
            .arg("--")
            .arg(program);
    }
    // The user may be unable to read the current folder.
    command.current_dir("/");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ports, report::SilentReporter};

    #[tokio::test]
    async fn postgres_starts_stops_and_restarts() {
        let temp = tempfile::tempdir().unwrap();
        let tool = tools::Postgres::find_or_get(&mut SilentReporter).unwrap();
        let port = ports::free().unwrap();
        let log = temp.path().join("postgres.log");
        let mut server = PostgresServer::start(&tool, port, temp.path(), &log, &[])
            .await
            .unwrap();
        let url = format!("postgres://weir@127.0.0.1:{port}/a");
        assert_eq!(server.url("a"), url);
        server.process().stop();
        assert!(answers(port).await.is_err());
        server.start_again().await.unwrap();
        assert!(answers(port).await.unwrap());
    }
}
