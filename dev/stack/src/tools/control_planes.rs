//! Control planes and their command lines. They take half an hour to build on two busy cores, so they are found, and never got.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{command, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// The version of Istio's modules that [`Istioctl`] was tried with.
pub const ISTIO_VERSION: &str = "v0.0.0-20260827124520-eed52ebb66ad";

/// The version of Envoy Gateway that [`envoy_gateway`] was tried with.
pub const ENVOY_GATEWAY_VERSION: &str = "v1.8.0";

/// Envoy Gateway: on `PATH`, else in `target/weir/tools`.
///
/// # Errors
/// When it is at neither place: with how it is built.
pub fn envoy_gateway() -> Result<PathBuf> {
    found(
        "envoy-gateway",
        "github.com/envoyproxy/gateway/cmd/envoy-gateway",
        ENVOY_GATEWAY_VERSION,
    )
}

/// Istio's control plane, `pilot-discovery`: on `PATH`, else in `target/weir/tools`.
///
/// # Errors
/// When it is at neither place: with where it says how it is built.
pub fn pilot_discovery() -> Result<PathBuf> {
    find("pilot-discovery").context(
        "pilot-discovery is not on PATH: docs/kubernetes.md explains how to build it to run without Kubernetes",
    )
}

/// Istio's `istioctl`.
#[derive(Debug, Clone)]
pub struct Istioctl(PathBuf);

impl Istioctl {
    /// On `PATH`, else in `target/weir/tools`.
    ///
    /// # Errors
    /// When it is at neither place: with how it is built.
    pub fn find() -> Result<Self> {
        found(
            "istioctl",
            "istio.io/istio/istioctl/cmd/istioctl",
            ISTIO_VERSION,
        )
        .map(Self)
    }

    /// Whether a file's resources are what Istio's API takes, and fit each other.
    ///
    /// # Errors
    /// When they are or do not: with what it says.
    pub fn check(&self, file: &Path) -> Result<()> {
        for arguments in [&["validate", "-f"][..], &["analyze", "--use-kube=false"]] {
            let mut istioctl = Command::new(&self.0);
            command::succeed(istioctl.args(arguments).arg(file), LIMIT)?;
        }
        Ok(())
    }
}

fn found(name: &str, package: &str, version: &str) -> Result<PathBuf> {
    find(name).with_context(|| {
        let tools = own_dir();
        let tools = tools.display();
        format!("{name} is missing: build it with GOBIN={tools} go install {package}@{version}")
    })
}

pub(super) fn find(name: &str) -> Option<PathBuf> {
    let own = Some(own_dir().join(name)).filter(|path| command::is_executable(path));
    command::on_path(name).or(own)
}

pub(super) fn own_dir() -> PathBuf {
    workspace::out_dir().join("tools")
}
