//! An own S3: moto on its own port. It stores everything in memory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpStream;

use crate::ports;
use crate::process::Process;
use crate::tools::Moto;

/// Its imports take some seconds.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A running S3 without buckets: `PUT /<bucket>` creates one.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    port: u16,
}

impl S3Server {
    /// Starts it on 127.0.0.1 with its log at `log`.
    ///
    /// # Errors
    /// It does not become ready; the error contains the end of its log.
    pub async fn start(tool: &Moto, log: &Path) -> Result<Self> {
        let port = ports::free()?;
        let program = tool.0.clone();
        let make = move || {
            let mut command = Command::new(&program);
            command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
            command
        };
        let mut process = Process::start("moto", log, make)?;
        let listens = || async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        process.wait_ready(READY_LIMIT, listens).await?;
        Ok(Self { process, port })
    }

    /// `http://127.0.0.1:<port>`, the clients' endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The process: freeze it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
