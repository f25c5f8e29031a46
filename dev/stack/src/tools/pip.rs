//! Programs from PyPI, each kind in an environment of its own among Weir's tools.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// pip takes half a minute on a slow network.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The folder of the programs of `requirements`, such as `moto[server]==5.2.5`. It is installed where it is not there yet, under
/// `name`, which has the versions in it.
///
/// # Errors
/// When there is no Python 3 with venv, or pip cannot get them.
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
        // What was cut short is installed anew.
        workspace::write_atomic(&done, b"")?;
    }
    Ok(binaries)
}
