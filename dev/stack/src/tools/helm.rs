//! helm, which checks and renders charts.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::go;
use crate::command;
use crate::report::Reporter;

/// The version that is built if none is on `PATH`.
pub const HELM_VERSION: &str = "3.18.6";

const PROGRAM: go::Program = go::Program {
    name: "helm",
    package: "helm.sh/helm/v3/cmd/helm",
    version: "v3.18.6",
};

const LIMIT: Duration = Duration::from_secs(60);

/// The program `helm`.
#[derive(Debug, Clone)]
pub struct Helm(PathBuf);

impl Helm {
    /// Finds it on `PATH`, else builds it from Go modules.
    ///
    /// # Errors
    /// It is missing, and the build fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        PROGRAM.find_or_get(reporter).map(Self)
    }

    /// Runs it and returns its output.
    ///
    /// # Errors
    /// It exits with an error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut helm = Command::new(&self.0);
        command::succeed(helm.args(arguments), LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_helm_version_constants_agree() {
        assert_eq!(PROGRAM.version.strip_prefix('v'), Some(HELM_VERSION));
    }
}
