//! What checks manifests against the schemas of Kubernetes, offline: `kubernetes-validate`, from PyPI, has them in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::pip;
use crate::command;
use crate::report::Reporter;

/// The version that manifests are checked with.
pub const KUBERNETES_VALIDATE_VERSION: &str = "1.37.0";

const LIMIT: Duration = Duration::from_secs(120);

/// The program `kubernetes-validate`.
#[derive(Debug, Clone)]
pub struct KubernetesValidate(PathBuf);

impl KubernetesValidate {
    /// Finds it among Weir's own tools, or has pip put it there.
    ///
    /// # Errors
    /// When there is no Python 3 with venv, or pip cannot get it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("kubernetes-validate-{KUBERNETES_VALIDATE_VERSION}");
        let requirement = format!("kubernetes-validate=={KUBERNETES_VALIDATE_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("kubernetes-validate")))
    }

    /// Checks the manifests of a file against a version of Kubernetes, such as `1.34`; a field that it does not know is wrong.
    ///
    /// # Errors
    /// When one is wrong: with what is.
    pub fn check(&self, manifests: &Path, version: &str) -> Result<()> {
        let mut validate = Command::new(&self.0);
        validate.args(["--strict", "--quiet", "-k", version]);
        command::succeed(validate.arg(manifests), LIMIT)?;
        Ok(())
    }
}
