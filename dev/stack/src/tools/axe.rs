//! axe-core, which finds what keeps people out of a page.

use std::path::PathBuf;

use anyhow::Result;

use super::npm;
use crate::report::Reporter;

/// The script that a page is examined with.
#[derive(Debug, Clone)]
pub struct Axe(pub PathBuf);

impl Axe {
    /// That of the lock file in `tests/axe`, by npm.
    ///
    /// # Errors
    /// When there is no npm, or it does not bring it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let folder = npm::installed("axe", "tests/axe")?;
        let script = folder.join("node_modules/axe-core/axe.min.js");
        reporter.line("axe-core", &script.display().to_string());
        Ok(Self(script))
    }
}
