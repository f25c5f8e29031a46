//! The Helm chart: the files in `dev/dist/files/helm`, and the release's Envoy file adapted to a cluster. Checks both
//! with helm and the Kubernetes schemas.

mod envoy;
pub mod values;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use weir_stack::report::Reporter;
use weir_stack::tools::{HELM_VERSION, Helm, KubernetesValidate};

use crate::folder::Folder;
use values::{ACCEPTED, REFUSED};

/// The path of the chart in a release.
pub const CHART: &str = "helm/weir";

/// Writes the chart's Envoy file. The other files are copied with all of `dev/dist/files`.
///
/// # Errors
/// The Envoy file lacks an expected text.
pub fn write(folder: &Folder) -> Result<()> {
    let path = folder.at("envoy/all.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    folder.write(
        &format!("{CHART}/files/envoy.yaml"),
        envoy::template(&text)?.as_bytes(),
    )
}

/// Writes a folder with the chart, without the compiled parts of a release.
///
/// # Errors
/// A file cannot be read or written.
pub fn only(path: &Path) -> Result<Folder> {
    let folder = Folder::empty(path)?;
    folder.copy_documents()?;
    write(&folder)?;
    Ok(folder)
}

/// The oldest Kubernetes version of the chart, as in its `Chart.yaml`, and the newest that the schemas cover.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];

/// Kinds that the schemas do not cover. A test applies them to an API server.
const EXTENSIONS: [&str; 2] = ["kind: HTTPRoute", "kind: ServiceMonitor"];

/// Tools that check charts.
#[derive(Debug)]
pub struct Tools {
    helm: Helm,
    validate: KubernetesValidate,
}

impl Tools {
    /// Finds or gets helm and the Kubernetes schemas.
    ///
    /// # Errors
    /// A tool is missing and cannot be installed.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        Ok(Self {
            helm: Helm::find_or_get(reporter)?,
            validate: KubernetesValidate::find_or_get(reporter)?,
        })
    }

    /// Lints the chart, renders it twice with different values, and validates the output against the Kubernetes
    /// schemas. Returns a summary.
    ///
    /// # Errors
    /// A check failed, with its message.
    pub fn check(&self, folder: &Folder) -> Result<String> {
        let chart = folder.at(CHART).display().to_string();
        self.helm
            .run(&["lint", "--strict", &chart])
            .context("helm lint")?;
        let temp = tempfile::tempdir().context("cannot create a folder for the rendered chart")?;
        let file = temp.path().join("rendered.yaml");
        for version in KUBERNETES {
            for (name, values) in ACCEPTED {
                self.check_values(folder, version, values, &file)
                    .with_context(|| format!("Kubernetes {version}, values \"{name}\""))?;
            }
        }
        for (values, why) in REFUSED {
            self.check_refusal(folder, values, why)?;
        }
        Ok(format!(
            "helm {HELM_VERSION} lints and renders it with {} value sets, and refuses {}; the output is valid in Kubernetes {}",
            ACCEPTED.len(),
            REFUSED.len(),
            KUBERNETES.join(" and ")
        ))
    }

    fn check_values(
        &self,
        folder: &Folder,
        version: &str,
        values: &str,
        file: &Path,
    ) -> Result<()> {
        let rendered = self.render(folder, version, values)?;
        let again = self.render(folder, version, values)?;
        ensure!(rendered == again, "two renderings differ");
        let documents = rendered.split("\n---\n");
        let is_known = |document: &&str| !EXTENSIONS.iter().any(|kind| document.contains(kind));
        let known: Vec<_> = documents.filter(is_known).collect();
        std::fs::write(file, known.join("\n---\n"))?;
        self.validate.check(file, version)
    }

    fn check_refusal(&self, folder: &Folder, values: &str, why: &str) -> Result<()> {
        let refused = self.render(folder, KUBERNETES[1], values);
        let refused = refused.err().map(|error| format!("{error:#}"));
        ensure!(
            refused.as_ref().is_some_and(|error| error.contains(why)),
            "values {values:?} must be refused with {why:?}, but the output is {refused:?}"
        );
        Ok(())
    }

    /// Renders the manifests of a release called `shop` with these values, in YAML.
    ///
    /// # Errors
    /// helm fails, with its message.
    pub fn render(&self, folder: &Folder, kubernetes: &str, values: &str) -> Result<String> {
        let template = ["template", "--kube-version", kubernetes];
        self.run(folder, &template, values)
    }

    /// Renders an installation on the cluster of this kubectl configuration: manifests, hooks and notes. Changes
    /// nothing there.
    ///
    /// # Errors
    /// helm fails, with its message.
    pub fn render_on(&self, folder: &Folder, config: &Path, values: &str) -> Result<String> {
        let config = config.display().to_string();
        let install = ["install", "--dry-run=server", "--kubeconfig", &config];
        self.run(folder, &install, values)
    }

    fn run(&self, folder: &Folder, command: &[&str], values: &str) -> Result<String> {
        let chart = folder.at(CHART).display().to_string();
        let file = tempfile::NamedTempFile::new().context("cannot create a file for the values")?;
        std::fs::write(file.path(), values)?;
        let values = file.path().display().to_string();
        let release = ["shop", &chart, "--values", &values];
        let rendered = self.helm.run(&[command, &release].concat());
        rendered.with_context(|| format!("helm {}", command.first().unwrap_or(&"")))
    }
}
