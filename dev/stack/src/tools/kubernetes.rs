//! `kubernetes-validate` from PyPI, which validates manifests against its bundled Kubernetes schemas, offline.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::pip;
use crate::command;
use crate::report::Reporter;

/// The version that validates manifests.
pub const KUBERNETES_VALIDATE_VERSION: &str = "1.37.0";

const LIMIT: Duration = Duration::from_secs(120);

/// The program `kubernetes-validate`.
#[derive(Debug, Clone)]
pub struct KubernetesValidate(PathBuf);

impl KubernetesValidate {
    /// Finds it among Weir's tools, or installs it there with pip.
    ///
    /// # Errors
    /// Python 3 with venv is missing, or pip fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("kubernetes-validate-{KUBERNETES_VALIDATE_VERSION}");
        let requirement = format!("kubernetes-validate=={KUBERNETES_VALIDATE_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("kubernetes-validate")))
    }

    /// Validates the manifests of a file against a Kubernetes version such as `1.34`; unknown fields are errors.
    ///
    /// # Errors
    /// A manifest is invalid; the error says why.
    pub fn check(&self, manifests: &Path, version: &str) -> Result<()> {
        let mut validate = Command::new(&self.0);
        validate.args(["--strict", "--quiet", "-k", version]);
        command::succeed(validate.arg(manifests), LIMIT)?;
        Ok(())
    }
}
