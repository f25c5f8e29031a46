//! moto: a server that speaks S3, from PyPI.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version that tests run on.
pub const MOTO_VERSION: &str = "5.2.5";

/// The program `moto_server`.
#[derive(Debug, Clone)]
pub struct Moto(pub(crate) PathBuf);

impl Moto {
    /// Finds it among Weir's own tools, or has pip put it there, in an environment of its own.
    ///
    /// # Errors
    /// When there is no Python 3 with venv, or pip cannot get it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("moto-{MOTO_VERSION}");
        let requirement = format!("moto[server]=={MOTO_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("moto_server")))
    }
}
