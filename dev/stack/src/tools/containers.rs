//! Tools that build container images and parse compose files. They take minutes to build, so they are only searched
//! for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::control_planes::{find, own_dir};
use crate::command;
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);
const START_LIMIT: Duration = Duration::from_secs(30);

/// BuildKit, which `docker build` uses to build a Dockerfile.
#[derive(Debug)]
pub struct BuildKit {
    daemon: PathBuf,
    client: PathBuf,
    runc: PathBuf,
}

/// A running BuildKit.
#[derive(Debug)]
pub struct Builder {
    client: PathBuf,
    address: String,
    _daemon: Process,
}

impl BuildKit {
    /// Finds `buildkitd`, `buildctl` and `runc` on `PATH`, else in `target/weir/tools`.
    ///
    /// # Errors
    /// One of them is missing, or they require root.
    pub fn find() -> Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let found = |name: &str| {
            let tools = own_dir();
            let tools = tools.display();
            find(name).with_context(|| {
                format!("{name} is neither on PATH nor in {tools}: install it from the releases of BuildKit and runc")
            })
        };
        let kit = Self {
            daemon: found("buildkitd")?,
            client: found("buildctl")?,
            runc: found("runc")?,
        };
        let own = std::fs::metadata("/proc/self")?;
        ensure!(own.uid() == 0, "buildkitd needs root");
        Ok(kit)
    }

    /// Starts BuildKit with its data in `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(&self, dir: &Path) -> Result<Builder> {
        std::fs::create_dir_all(dir)?;
        let address = format!("unix://{}", dir.join("socket").display());
        let daemon = self.daemon.clone();
        let runc = self.runc.parent().map(Path::to_owned);
        let others = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(runc.into_iter().chain(std::env::split_paths(&others)))?;
        let (root, at) = (dir.join("root"), address.clone());
        let mut daemon = Process::start("buildkitd", &dir.join("buildkitd.log"), move || {
            let mut daemon = Command::new(&daemon);
            daemon.arg("--root").arg(&root).args(["--addr", &at]);
            daemon.args([
                "--containerd-worker=false",
                "--oci-worker-snapshotter=native",
            ]);
            // It finds runc only through PATH.
            daemon.env("PATH", &path);
            daemon
        })?;
        let client = self.client.clone();
        let answers = async || {
            let mut ask = Command::new(&client);
            ask.args(["--addr", &address, "debug", "workers"]);
            command::succeed(&mut ask, LIMIT).is_ok()
        };
        daemon.wait_ready(START_LIMIT, answers).await?;
        Ok(Builder {
            client: self.client.clone(),
            address,
            _daemon: daemon,
        })
    }
}

impl Builder {
    /// Builds a target of the `Dockerfile` in `folder`, with additional arguments for `buildctl build`.
    ///
    /// # Errors
    /// The build fails; the error contains BuildKit's output.
    pub fn build(&self, folder: &Path, target: &str, more: &[String]) -> Result<()> {
        let mut build = Command::new(&self.client);
        build.args(["--addr", &self.address, "build", "--progress=plain"]);
        build.args(["--frontend", "dockerfile.v0"]);
        build
            .arg("--local")
            .arg(format!("context={}", folder.display()));
        build
            .arg("--local")
            .arg(format!("dockerfile={}", folder.display()));
        build
            .arg("--opt")
            .arg(format!("target={target}"))
            .args(more);
        command::succeed(&mut build, LIMIT).map(drop)
    }
}

/// Finds the parser of compose files, `docker-compose`, on `PATH`, else in `target/weir/tools`.
///
/// # Errors
/// It is missing.
pub fn docker_compose() -> Result<PathBuf> {
    find("docker-compose")
        .context("docker-compose is not on PATH: install it from the releases of Compose")
}
