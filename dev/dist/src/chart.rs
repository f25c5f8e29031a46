//! The Helm chart: the files in `dev/dist/files/helm`, and the release's Envoy file adapted to a cluster. Checks both
//! with helm and the Kubernetes schemas.

use anyhow::{Context, Result, ensure};
use weir_stack::report::Reporter;
use weir_stack::tools::{HELM_VERSION, Helm, KubernetesValidate};

use crate::folder::Folder;

/// The path of the chart in a release.
pub const CHART: &str = "helm/weir";

/// Replacements in the Envoy file: addresses of this machine become chart templates.
const IN_A_CLUSTER: [(&str, &str); 4] = [
    ("target/weir/", "/weir/filters/"),
    (
        "socket_address: { address: 127.0.0.1, port_value: 6379 }",
        "socket_address: { address: \"{{ include \"weir.redisHost\" . }}\", port_value: {{ .Values.redis.port }} }",
    ),
    (
        "socket_address: { address: 127.0.0.1, port_value: 8080 }",
        "socket_address: { address: \"{{ include \"weir.fullname\" . }}-origin\", port_value: 8080 }",
    ),
    (
        "domains: [link.localhost, \"link.localhost:*\"]",
        "domains: [{{ range $i, $host := .Values.links.hosts }}{{ if $i }}, {{ end }}{{ $host | quote }}, {{ printf \"%s:*\" $host | quote }}{{ end }}]",
    ),
];

/// Writes the chart's Envoy file. The other files are copied with all of `dev/dist/files`.
///
/// # Errors
/// The Envoy file lacks an expected text.
pub fn write(folder: &Folder) -> Result<()> {
    let path = folder.at("envoy/all.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    folder.write(
        &format!("{CHART}/files/envoy.yaml"),
        in_a_cluster(&text)?.as_bytes(),
    )
}

fn in_a_cluster(text: &str) -> Result<String> {
    // Envoy's own placeholders must not use double braces, which helm would read as templates.
    ensure!(
        !text.contains("{{"),
        "envoy/all.yaml contains {{{{, which Helm parses as a template"
    );
    let mut text = text.to_owned();
    for (here, there) in IN_A_CLUSTER {
        ensure!(
            text.contains(here),
            "envoy/all.yaml does not contain {here:?}: update the chart"
        );
        text = text.replace(here, there);
    }
    Ok(text)
}

/// The oldest Kubernetes version of the chart, as in its `Chart.yaml`, and the newest that the schemas cover.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];

/// Typical values: defaults, custom ones, several origins.
const VALUES: [&str; 3] = [
    "",
    "existingSecret=own,redis.host=redis.example,origin.storageClass=fast",
    "origin.replicas=2,origin.databaseUrlSecret=database",
];

/// Values that must fail to render: SQLite is a single file.
const WRONG: (&str, &str) = ("origin.replicas=2", "needs origin.databaseUrlSecret");

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

    /// Lints the chart, renders it with different values, and validates the output against the Kubernetes schemas.
    /// Returns a summary.
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
            for values in VALUES {
                let rendered = self.render(folder, version, values)?;
                std::fs::write(&file, rendered)?;
                let checked = self.validate.check(&file, version);
                checked.with_context(|| format!("Kubernetes {version}, --set {values:?}"))?;
            }
        }
        let (values, why) = WRONG;
        let refused = self.render(folder, KUBERNETES[1], values);
        let refused = refused.err().map(|error| format!("{error:#}"));
        ensure!(
            refused.as_ref().is_some_and(|error| error.contains(why)),
            "--set {values} must be refused with {why:?}, but the output is {refused:?}"
        );
        Ok(format!(
            "helm {HELM_VERSION} lints and renders it with {} value sets; the output is valid in Kubernetes {}",
            VALUES.len(),
            KUBERNETES.join(" and ")
        ))
    }

    /// Renders the manifests of a release called `shop` with these `--set` values.
    ///
    /// # Errors
    /// helm fails, with its message.
    pub fn render(&self, folder: &Folder, kubernetes: &str, values: &str) -> Result<String> {
        let chart = folder.at(CHART).display().to_string();
        let rendered = self.helm.run(&[
            "template",
            "shop",
            &chart,
            "--kube-version",
            kubernetes,
            "--set",
            values,
        ]);
        rendered.context("helm template")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_envoy_config_names_the_services_of_the_cluster() {
        let shipped = weir_stack::workspace::root().join("envoy/all.yaml");
        let text = in_a_cluster(&std::fs::read_to_string(shipped).unwrap()).unwrap();
        assert!(!text.contains("target/weir/") && !text.contains("link.localhost"));
        for name in ["weir.redisHost", "weir.fullname", ".Values.links.hosts"] {
            assert!(text.contains(name), "{name}");
        }
        let error = in_a_cluster("nothing").unwrap_err().to_string();
        assert!(error.contains("update the chart"), "{error}");
    }
}
