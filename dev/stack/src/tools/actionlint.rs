//! actionlint, which checks GitHub workflows.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::go;
use crate::report::Reporter;
use crate::{command, workspace};

const PROGRAM: go::Program = go::Program {
    name: "actionlint",
    package: "github.com/rhysd/actionlint/cmd/actionlint",
    version: "v1.7.12",
};

const LIMIT: Duration = Duration::from_secs(60);

/// The program `actionlint`.
#[derive(Debug, Clone)]
pub struct Actionlint(PathBuf);

impl Actionlint {
    /// Finds it on `PATH`, else builds it from Go modules.
    ///
    /// # Errors
    /// It is missing, and the build fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        PROGRAM.find_or_get(reporter).map(Self)
    }

    /// Checks all workflows of the workspace, and returns their number.
    ///
    /// # Errors
    /// Its alerts.
    pub fn check(&self) -> Result<usize> {
        let folder = workspace::root().join(".github/workflows");
        let entries = std::fs::read_dir(&folder);
        let entries = entries.with_context(|| format!("cannot list {}", folder.display()))?;
        let files = entries.map(|entry| Ok(entry?.path()));
        let files = files.collect::<Result<Vec<_>>>()?;
        ensure!(!files.is_empty(), "{} has no workflows", folder.display());
        let mut actionlint = Command::new(&self.0);
        // Not all machines have these two, and all machines must agree.
        actionlint.args(["-no-color", "-shellcheck=", "-pyflakes="]);
        let checked = command::run(actionlint.args(&files), LIMIT)?;
        ensure!(checked.status.success(), "actionlint: {}", checked.stdout);
        Ok(files.len())
    }
}
