//! Go programs, built from modules, each in its own folder of Weir's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// For two minutes of CPU time, and downloads over a slow network.
const INSTALL_LIMIT: Duration = Duration::from_secs(1_500);

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
