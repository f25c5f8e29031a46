//! axe-core, which finds accessibility problems in a page.

use std::path::PathBuf;

use anyhow::Result;

use super::npm;
use crate::report::Reporter;

/// The script to run in a page.
#[derive(Debug, Clone)]
pub struct Axe(pub PathBuf);

impl Axe {
    /// Installs the version in the lock file of `tests/axe` with npm.
    ///
    /// # Errors
    /// npm is missing, or the installation fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let folder = npm::installed("axe", "tests/axe")?;
        let script = folder.join("node_modules/axe-core/axe.min.js");
        reporter.line("axe-core", &script.display().to_string());
        Ok(Self(script))
    }
}
