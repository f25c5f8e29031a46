//! Programs from PyPI, each kind in its own environment among Weir's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// For pip on a slow network, where it takes half a minute.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The folder of the programs of `requirements`, such as `moto[server]==5.2.5`. Installs them if missing, under `name`,
/// which includes the versions.
///
/// # Errors
/// Python 3 with venv is missing, or pip fails.
pub(super) fn environment(
    name: &str,
    requirements: &[String],
    reporter: &mut dyn Reporter,
) -> Result<PathBuf> {
    let _lock = lock()?;
    let dir = workspace::out_dir().join("tools").join(name);
    let (binaries, done) = (dir.join("bin"), dir.join("installed"));
    if !done.is_file() || !command::is_executable(&binaries.join("python")) {
        reporter.line("pip", &format!("installing {name} from PyPI…"));
        let python = command::on_path("python3").context("python3 is not on PATH")?;
        let mut venv = Command::new(python);
        venv.args(["-m", "venv", "--clear"]).arg(&dir);
        command::succeed(&mut venv, INSTALL_LIMIT)?;
        let mut pip = Command::new(binaries.join("python"));
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.arg("--disable-pip-version-check").args(requirements);
        command::succeed(&mut pip, INSTALL_LIMIT)?;
        // Marks a complete installation; an interrupted one is repeated.
        workspace::write_atomic(&done, b"")?;
    }
    Ok(binaries)
}
