//! The Helm chart: what is in `dev/dist/files/helm`, and the release's own Envoy file as it must be in a cluster; and what helm and
//! the schemas of Kubernetes say of it.

use anyhow::{Context, Result, ensure};
use weir_stack::report::Reporter;
use weir_stack::tools::{HELM_VERSION, Helm, KubernetesValidate};

use crate::folder::Folder;

const CHART: &str = "helm/weir";

/// In the Envoy file stands this machine; in a cluster, templates of the chart.
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

/// Writes the chart's Envoy file. Its other files are copied with all of `dev/dist/files`.
///
/// # Errors
/// When it is not as the chart expects.
pub fn write(folder: &Folder) -> Result<()> {
    let path = folder.at("envoy/all.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    folder.write(
        &format!("{CHART}/files/envoy.yaml"),
        in_a_cluster(&text)?.as_bytes(),
    )
}

fn in_a_cluster(text: &str) -> Result<String> {
    // What Envoy replaces stands in no braces of two; a template's would be read as one.
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

/// The oldest Kubernetes that the chart is for, as its `Chart.yaml` says, and the newest that the schemas know.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];

/// What people set: nothing; what is their own; several origins.
const VALUES: [&str; 3] = [
    "",
    "existingSecret=own,redis.host=redis.example,origin.storageClass=fast",
    "origin.replicas=2,origin.databaseUrlSecret=database",
];

/// What no chart is rendered of: SQLite is one file.
const WRONG: (&str, &str) = ("origin.replicas=2", "needs origin.databaseUrlSecret");

/// What looks at charts.
#[derive(Debug)]
pub struct Tools {
    helm: Helm,
    validate: KubernetesValidate,
}

impl Tools {
    /// helm, and what has the schemas of Kubernetes in it.
    ///
    /// # Errors
    /// When one is not there, and cannot be had.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        Ok(Self {
            helm: Helm::find_or_get(reporter)?,
            validate: KubernetesValidate::find_or_get(reporter)?,
        })
    }

    /// Lints the chart, renders it with different values, and checks what comes out against the schemas of Kubernetes. Says what
    /// was done.
    ///
    /// # Errors
    /// With what is wrong.
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

    /// The manifests of a release called `shop`, with these values, as `--set` takes them.
    ///
    /// # Errors
    /// What helm says against it.
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
    fn the_charts_envoy_file_names_the_clusters_services() {
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
