//! moto, an S3 server from PyPI.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version that tests use.
pub const MOTO_VERSION: &str = "5.2.5";

/// The program `moto_server`.
#[derive(Debug, Clone)]
pub struct Moto(pub(crate) PathBuf);

impl Moto {
    /// Finds it among Weir's tools, or installs it there with pip in its own environment.
    ///
    /// # Errors
    /// Python 3 with venv is missing, or pip fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("moto-{MOTO_VERSION}");
        let requirement = format!("moto[server]=={MOTO_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("moto_server")))
    }
}
