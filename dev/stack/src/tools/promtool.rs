//! promtool, which checks and tests Prometheus rules.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// For 20 MB on a slow line.
const LIMIT: Duration = Duration::from_secs(300);

/// The program `promtool`.
#[derive(Debug, Clone)]
pub struct Promtool(PathBuf);

impl Promtool {
    /// Finds it on `PATH`, or extracts it from Debian's package `prometheus`. Installing that package would start a
    /// service.
    ///
    /// # Errors
    /// It is missing, and cannot be downloaded.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = lock()?;
        if let Some(found) = command::on_path("promtool") {
            return Ok(Self(found));
        }
        let dir = workspace::out_dir().join("tools/promtool");
        let binary = dir.join("usr/bin/promtool");
        if !command::is_executable(&binary) {
            reporter.line("promtool", "unpacking Debian's package prometheus…");
            unpack(&dir)
                .context("promtool is not on PATH: install it (macOS: brew install prometheus)")?;
        }
        Ok(Self(binary))
    }

    /// Runs it in `dir` and returns its output.
    ///
    /// # Errors
    /// It exits with an error.
    pub fn run(&self, dir: &Path, arguments: &[&str]) -> Result<String> {
        let mut promtool = Command::new(&self.0);
        promtool.current_dir(dir).args(arguments);
        command::succeed(&mut promtool, LIMIT)
    }
}

fn unpack(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let fresh = tempfile::tempdir_in(dir)?;
    let mut download = Command::new("apt-get");
    download
        .current_dir(fresh.path())
        .args(["download", "prometheus"]);
    command::succeed(&mut download, LIMIT)?;
    let mut files = std::fs::read_dir(fresh.path())?;
    let package = files.next().context("apt-get downloaded nothing")??.path();
    let unpacked = fresh.path().join("unpacked");
    let mut extract = Command::new("dpkg-deb");
    extract.arg("--extract").arg(&package).arg(&unpacked);
    command::succeed(&mut extract, LIMIT)?;
    // Created atomically, so that an interrupted extraction is repeated.
    let whole = dir.join("usr/bin");
    std::fs::create_dir_all(&whole)?;
    std::fs::rename(unpacked.join("usr/bin/promtool"), whole.join("promtool"))?;
    Ok(())
}
