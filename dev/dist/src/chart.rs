//! The Helm chart: what is in `dev/dist/files/helm`, and the release's own Envoy file as it must be in a cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_stack::command;

use crate::folder::Folder;

const CHART: &str = "helm/weir";
const HELM_LIMIT: Duration = Duration::from_secs(60);

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
pub(crate) fn write(folder: &Folder) -> Result<()> {
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
        "envoy/all.yaml has {{{{, which Helm reads as a template"
    );
    let mut text = text.to_owned();
    for (here, there) in IN_A_CLUSTER {
        ensure!(
            text.contains(here),
            "envoy/all.yaml has no {here:?}: the chart must follow it"
        );
        text = text.replace(here, there);
    }
    Ok(text)
}

/// What helm says of the chart, and kubeconform of what it renders, where they are.
pub(crate) fn lint(folder: &Folder) -> Result<String> {
    let Some(helm) = command::on_path("helm") else {
        return Ok("helm is not on PATH: the chart was not linted".to_owned());
    };
    let chart = folder.at(CHART);
    let mut lint = std::process::Command::new(&helm);
    lint.args(["lint", "--strict"]).arg(&chart);
    command::succeed(&mut lint, HELM_LIMIT).context("helm lint")?;
    let mut template = std::process::Command::new(&helm);
    template.args(["template", "shop"]).arg(&chart);
    let rendered = command::succeed(&mut template, HELM_LIMIT).context("helm template")?;
    let kinds = rendered
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();
    Ok(format!(
        "helm lint and helm template pass: {kinds} objects; kubeconform was not run"
    ))
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
        assert!(error.contains("the chart must follow"), "{error}");
    }
}
