//! Control planes and their command lines. They take half an hour to build on two busy cores, so they are only searched
//! for.
//!
//! Stock `pilot-discovery` needs Kubernetes. To build one that runs without it, copy the module
//! `istio.io/istio@v0.0.0-20260827124520-eed52ebb66ad` out of Go's cache and patch it:
//!
//! 1. In `pilot/pkg/serviceregistry/serviceentry/controller.go`, make `inputs.Namespaces` an empty static collection if
//!    there is no multi-cluster controller.
//! 2. In `pilot/pkg/bootstrap/configcontroller.go`, append
//!    `extensions.NewController(configController, s.XDSServer, args.KrtDebugger)` to the stores of a file source.
//! 3. Run `go build -o …/target/weir/tools/pilot-discovery ./pilot/cmd/pilot-discovery`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{command, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// The version of Istio's modules that was tested with [`Istioctl`].
pub const ISTIO_VERSION: &str = "v0.0.0-20260827124520-eed52ebb66ad";

/// The tested version of Envoy Gateway: see [`envoy_gateway`].
pub const ENVOY_GATEWAY_VERSION: &str = "v1.8.0";

/// Finds Envoy Gateway on `PATH`, else in `target/weir/tools`.
///
/// # Errors
/// It is missing; the error says how to build it.
pub fn envoy_gateway() -> Result<PathBuf> {
    found(
        "envoy-gateway",
        "github.com/envoyproxy/gateway/cmd/envoy-gateway",
        ENVOY_GATEWAY_VERSION,
    )
}

/// Finds Istio's control plane, `pilot-discovery`, on `PATH`, else in `target/weir/tools`.
///
/// # Errors
/// It is missing; the error refers to the build instructions.
pub fn pilot_discovery() -> Result<PathBuf> {
    find("pilot-discovery").context(
        "pilot-discovery is not on PATH: build it as dev/stack/src/tools/control_planes.rs explains",
    )
}

/// Istio's `istioctl`.
#[derive(Debug, Clone)]
pub struct Istioctl(PathBuf);

impl Istioctl {
    /// Finds it on `PATH`, else in `target/weir/tools`.
    ///
    /// # Errors
    /// It is missing; the error says how to build it.
    pub fn find() -> Result<Self> {
        found(
            "istioctl",
            "istio.io/istio/istioctl/cmd/istioctl",
            ISTIO_VERSION,
        )
        .map(Self)
    }

    /// Validates a file's resources against Istio's API and each other.
    ///
    /// # Errors
    /// They are invalid; the error contains the output.
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
