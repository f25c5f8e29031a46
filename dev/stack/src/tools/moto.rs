//! moto: a server that speaks S3, from PyPI.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lock;
use crate::report::Reporter;
use crate::{command, workspace};

/// The version that tests run on.
pub const MOTO_VERSION: &str = "5.2.5";

/// pip takes half a minute on a slow network.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The program `moto_server`.
#[derive(Debug, Clone)]
pub struct Moto(pub(crate) PathBuf);

impl Moto {
    /// Finds it among Weir's own tools, or has pip put it there, in an environment of its own.
    ///
    /// # Errors
    /// When there is no Python 3 with venv, or pip cannot get it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = lock()?;
        let dir = workspace::out_dir().join(format!("tools/moto-{MOTO_VERSION}"));
        let (binary, done) = (dir.join("bin/moto_server"), dir.join("installed"));
        if !done.is_file() || !command::is_executable(&binary) {
            reporter.line(
                "moto",
                &format!("installing moto {MOTO_VERSION} from PyPI…"),
            );
            let python = command::on_path("python3").context("no python3 was found")?;
            let mut venv = Command::new(python);
            venv.args(["-m", "venv", "--clear"]).arg(&dir);
            command::succeed(&mut venv, INSTALL_LIMIT)?;
            let mut pip = Command::new(dir.join("bin/python"));
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]);
            pip.arg(format!("moto[server]=={MOTO_VERSION}"));
            command::succeed(&mut pip, INSTALL_LIMIT)?;
            // What was cut short is installed anew.
            workspace::write_atomic(&done, b"")?;
        }
        Ok(Self(binary))
    }
}
