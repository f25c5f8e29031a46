//! Kubernetes' API server, etcd and kubectl, built from Go modules. `envtest` downloads the same programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{go, lock};
use crate::report::Reporter;
use crate::{command, workspace};

/// The version of Kubernetes whose API server validates manifests.
pub const KUBERNETES_VERSION: &str = "1.37.2";

const MODULE: &str = "k8s.io/kubernetes";

/// The programs and their packages.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
];

/// Modules with the resource definitions that manifests may use beyond Kubernetes' own.
const DEFINITIONS: [(&str, &str); 2] = [
    (
        "sigs.k8s.io/gateway-api@v1.7.0",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
    (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
];

/// For ten minutes of CPU time on busy cores, and downloads over a slow network.
const BUILD_LIMIT: Duration = Duration::from_secs(3_000);

/// The programs of an API server, and resource definitions for it.
#[derive(Debug, Clone)]
pub struct ApiServerTools {
    dir: PathBuf,
    /// Files with CustomResourceDefinitions of HTTPRoute and ServiceMonitor.
    pub definitions: Vec<PathBuf>,
}

impl ApiServerTools {
    /// Finds the programs among Weir's tools, else builds them there.
    ///
    /// # Errors
    /// Go is missing, or a build or a download fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = lock()?;
        let dir = workspace::out_dir().join(format!("tools/kubernetes-{KUBERNETES_VERSION}"));
        let is_there = |(name, _): &(&str, &str)| command::is_executable(&dir.join(name));
        if !PROGRAMS.iter().all(is_there) {
            reporter.line(
                "kubernetes",
                &format!("building kube-apiserver, etcd and kubectl {KUBERNETES_VERSION}…"),
            );
            build(&dir)?;
        }
        let definitions = DEFINITIONS
            .iter()
            .map(|(module, file)| Ok(go::download(module)?.dir.join(file)));
        Ok(Self {
            definitions: definitions.collect::<Result<_>>()?,
            dir,
        })
    }

    /// The path of `etcd`.
    pub fn etcd(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    /// The path of `kube-apiserver`.
    pub fn api_server(&self) -> PathBuf {
        self.dir.join("kube-apiserver")
    }

    /// The path of `kubectl`.
    pub fn kubectl(&self) -> PathBuf {
        self.dir.join("kubectl")
    }
}

/// Builds the programs in a module of our own: `go install` refuses Kubernetes' module, because it replaces modules by
/// folders of its repository.
fn build(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let module = tempfile::tempdir_in(dir).context("cannot create a folder for the module")?;
    let downloaded = go::download(&format!("{MODULE}@v{KUBERNETES_VERSION}"))?;
    let theirs = std::fs::read_to_string(&downloaded.go_mod)
        .with_context(|| format!("cannot read {}", downloaded.go_mod.display()))?;
    std::fs::write(module.path().join("go.mod"), go_mod(&theirs)?)?;
    // Clients such as helm look at the server's version.
    let variable = "k8s.io/component-base/version.gitVersion";
    let flags = format!("-s -w -X {variable}=v{KUBERNETES_VERSION}");
    for (name, package) in PROGRAMS {
        let mut build = Command::new(go::program()?);
        build
            .current_dir(module.path())
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=mod"])
            .args(["-ldflags", &flags, "-o"])
            .arg(dir.join(name))
            .arg(package);
        command::succeed(&mut build, BUILD_LIMIT)
            .with_context(|| format!("cannot build {name}"))?;
    }
    Ok(())
}

/// A module that requires Kubernetes, with the published versions of the modules in its repository.
fn go_mod(theirs: &str) -> Result<String> {
    let go = theirs.lines().find(|line| line.starts_with("go "));
    let go = go.context("Kubernetes' go.mod names no version of Go")?;
    let published = KUBERNETES_VERSION
        .strip_prefix('1')
        .context("unknown version of Kubernetes")?;
    let mut text =
        format!("module weir-tools\n\n{go}\n\nrequire {MODULE} v{KUBERNETES_VERSION}\n\n");
    let replaced = theirs.lines().filter_map(|line| {
        let (name, folder) = line.trim().split_once(" => ")?;
        folder.starts_with("./staging/").then_some(name)
    });
    for name in replaced {
        text += &format!("replace {name} => {name} v0{published}\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_replaced_by_their_published_versions() {
        let theirs = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tx => y v1\n)\n";
        let expected = "module weir-tools\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.2\n\nreplace k8s.io/api => k8s.io/api v0.37.2\n";
        assert_eq!(go_mod(theirs).unwrap(), expected);
    }
}
