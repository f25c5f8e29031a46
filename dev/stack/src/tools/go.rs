//! Programs that are built from Go's modules, each in a folder of its own among Weir's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// Two minutes of a processor, and as many modules as there may be on a slow network.
const INSTALL_LIMIT: Duration = Duration::from_secs(1_500);

/// A program of Go's.
pub(super) struct Program {
    /// What it is called.
    pub(super) name: &'static str,
    /// Its package.
    pub(super) package: &'static str,
    /// The module's version.
    pub(super) version: &'static str,
}

impl Program {
    /// On `PATH`, else among Weir's own tools, else built there.
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
            let go = command::on_path("go").with_context(|| {
                format!("{name} is not on PATH, and there is no go to build it: install {name}")
            })?;
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
