//! Go programs, built from modules, each in its own folder of Weir's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// For two minutes of CPU time, and downloads over a slow network.
const INSTALL_LIMIT: Duration = Duration::from_secs(1_500);

/// For 100 MB over a slow network.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

/// The compiler.
pub(super) fn program() -> Result<PathBuf> {
    command::on_path("go").context("there is no go to build programs: install Go")
}

/// A module in Go's cache.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Module {
    /// The folder with its files.
    pub(super) dir: PathBuf,
    /// Its `go.mod`.
    pub(super) go_mod: PathBuf,
}

/// Downloads a module, such as `k8s.io/api@v0.37.2`, unless the cache has it.
pub(super) fn download(module: &str) -> Result<Module> {
    let mut download = Command::new(program()?);
    // Outside of any module.
    download.current_dir(std::env::temp_dir());
    download.args(["mod", "download", "-json", module]);
    let said = command::succeed(&mut download, DOWNLOAD_LIMIT)
        .with_context(|| format!("cannot download the Go module {module}"))?;
    serde_json::from_str(&said).with_context(|| format!("go printed no module: {said}"))
}

/// A Go program.
pub(super) struct Program {
    /// The program's name.
    pub(super) name: &'static str,
    /// The package path.
    pub(super) package: &'static str,
    /// The module version.
    pub(super) version: &'static str,
}

impl Program {
    /// Finds it on `PATH`, else among Weir's tools, else builds it there.
    pub(super) fn find_or_get(&self, reporter: &mut dyn Reporter) -> Result<PathBuf> {
        let _lock = lock()?;
        if let Some(found) = command::on_path(self.name) {
            return Ok(found);
        }
        let Self {
            name,
            package,
            version,
        } = self;
        let dir = workspace::out_dir().join(format!("tools/{name}-{version}"));
        let binary = dir.join(name);
        if !command::is_executable(&binary) {
            reporter.line(name, &format!("building {package}@{version}…"));
            let go = program().with_context(|| format!("{name} is not on PATH"))?;
            let mut install = Command::new(go);
            install
                .args(["install", &format!("{package}@{version}")])
                .env("GOBIN", &dir)
                .env("GOFLAGS", "-buildvcs=false -trimpath");
            command::succeed(&mut install, INSTALL_LIMIT)
                .with_context(|| format!("cannot build {name}: install it on PATH"))?;
        }
        Ok(binary)
    }
}
