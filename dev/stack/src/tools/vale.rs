//! Vale, which checks prose against rules.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::go;
use crate::command::{self, CommandOutput};
use crate::report::Reporter;
use crate::workspace;

const PROGRAM: go::Program = go::Program {
    name: "vale",
    package: "github.com/errata-ai/vale/v3/cmd/vale",
    version: "v3.7.1",
};

const LIMIT: Duration = Duration::from_secs(120);

/// The program `vale`.
#[derive(Debug, Clone)]
pub struct Vale(PathBuf);

impl Vale {
    /// Finds it on `PATH`, or builds it from Go modules.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        PROGRAM.find_or_get(reporter).map(Self)
    }

    /// Runs it on `files` with the workspace's rules. Prints one line per alert; the exit code is 1 if there is one.
    ///
    /// # Errors
    /// It does not start, or does not finish in time.
    pub fn run(&self, files: &[PathBuf]) -> Result<CommandOutput> {
        let mut vale = Command::new(&self.0);
        vale.current_dir(workspace::root())
            .args(["--no-global", "--output", "line"])
            .args(files);
        command::run(&mut vale, LIMIT)
    }
}
