//! The development dependencies of `sdk`: its compiler and its tests' libraries.

use std::path::PathBuf;

use anyhow::Result;

use super::npm;
use crate::report::Reporter;

/// The folder with `node_modules`.
#[derive(Debug, Clone)]
pub struct SdkModules(pub PathBuf);

impl SdkModules {
    /// Installs the versions in the lock file of `sdk` with npm.
    ///
    /// # Errors
    /// npm is missing, or the installation fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let folder = npm::installed("sdk", "sdk")?;
        reporter.line("sdk", &folder.display().to_string());
        Ok(Self(folder))
    }
}
