//! The chart's Envoy file: `envoy/all.yaml` with templates for what depends on values.

use anyhow::{Context, Result, ensure};

/// Texts of the file, and templates in their place.
const REPLACED: [(&str, &str); 13] = [
    ("target/weir/", "/weir/filters/"),
    (
        "socket_address: { address: 127.0.0.1, port_value: 8080 }",
        r#"socket_address: { address: "{{ include "weir.fullname" . }}-origin", port_value: 8080 }"#,
    ),
    (
        r#"domains: [link.localhost, "link.localhost:*"]"#,
        r#"domains: [{{ range $i, $host := .Values.links.hosts }}{{ if $i }}, {{ end }}{{ $host | quote }}, {{ printf "%s:*" $host | quote }}{{ end }}]"#,
    ),
    (
        r#""topology": "single""#,
        r#""topology": "{{ include "weir.redis.topology" . }}""#,
    ),
    (
        r#"value: '{ "request_bytes_max": 1048576, "replies_bytes_max": 16777216 }'"#,
        r#"value: {{ include "weir.envoy.bridge" . | squote }}"#,
    ),
    (
        "use_remote_address: true",
        "use_remote_address: true\n                xff_num_trusted_hops: {{ .Values.gateway.trustedHops }}",
    ),
    (
        r#""trusted_hops": 0"#,
        r#""trusted_hops": {{ .Values.gateway.trustedHops }}"#,
    ),
    (
        r#""origins": ["http://localhost:10000"]"#,
        r#""origins": {{ toJson .Values.gateway.eventOrigins }}"#,
    ),
    (
        r#""match": { "path": { "prefix": "/shop/" } }"#,
        r#""match": { "path": { "prefix": {{ toJson .Values.gateway.waitingRoom.prefix }} } }"#,
    ),
    (
        r#""per_minute": 600,"#,
        r#""per_minute": {{ .Values.gateway.waitingRoom.perMinute }},"#,
    ),
    (
        r#""active_max": 5000,"#,
        r#""active_max": {{ .Values.gateway.waitingRoom.activeMax }},"#,
    ),
    (
        "        - filters:\n            - name: envoy.filters.network.http_connection_manager",
        "        - {{ with include \"weir.envoy.downstreamTls\" . }}{{ . | indent 10 | trim }}\n          {{ end }}filters:\n            - name: envoy.filters.network.http_connection_manager",
    ),
    (
        "                http_filters:\n",
        "                http_filters:\n                  {{- with include \"weir.envoy.jwt\" . }}{{ . | nindent 18 }}{{ end }}\n",
    ),
];

/// Sections of the file: their first text, the text after them, and the template in their place.
const SECTIONS: [(&str, &str, &str); 4] = [
    (
        "                  # Put an authentication filter here",
        "                  # Limits:",
        "",
    ),
    (
        "                        # Behind the waiting room.",
        "                        # Nothing else of the origin is visible",
        "                        {{- include \"weir.envoy.routes\" . | nindent 24 }}\n",
    ),
    (
        "            # Goes to one Redis.",
        "\n  clusters:\n",
        "            {{- include \"weir.envoy.redisProxy\" . | nindent 12 }}\n",
    ),
    (
        "    - name: weir_redis_upstream\n",
        "    - name: origin\n",
        "    {{- include \"weir.envoy.redisCluster\" . | nindent 4 }}\n\n",
    ),
];

/// The end of the file: clusters of the values.
const APPENDED: &str = "    {{- include \"weir.envoy.clusters\" . | nindent 4 }}\n";

/// Turns `envoy/all.yaml` into the chart's template.
///
/// # Errors
/// The file lacks an expected text, or contains what Helm would parse as a template.
pub(super) fn template(text: &str) -> Result<String> {
    ensure!(
        !text.contains("{{"),
        "envoy/all.yaml contains {{{{, which Helm parses as a template"
    );
    let mut text = text.to_owned();
    for (shipped, template) in REPLACED {
        ensure!(
            text.contains(shipped),
            "envoy/all.yaml does not contain {shipped:?}: update the chart"
        );
        text = text.replace(shipped, template);
    }
    for (start, end, template) in SECTIONS {
        text = replace_section(&text, start, end, template)?;
    }
    Ok(text + APPENDED)
}

fn replace_section(text: &str, start: &str, end: &str, template: &str) -> Result<String> {
    let missing =
        |what: &str| format!("envoy/all.yaml does not contain {what:?}: update the chart");
    let (before, rest) = text.split_once(start).with_context(|| missing(start))?;
    let (_, after) = rest.split_once(end).with_context(|| missing(end))?;
    Ok([before, template, end, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_envoy_config_names_the_services_of_the_cluster() {
        let shipped = weir_stack::workspace::root().join("envoy/all.yaml");
        let text = template(&std::fs::read_to_string(shipped).unwrap()).unwrap();
        for place in [
            "target/weir/",
            "link.localhost",
            "127.0.0.1, port_value: 6379",
        ] {
            assert!(!text.contains(place), "{place}");
        }
        for name in [
            "weir.envoy.redisCluster",
            "weir.fullname",
            ".Values.links.hosts",
        ] {
            assert!(text.contains(name), "{name}");
        }
        let error = template("nothing").unwrap_err().to_string();
        assert!(error.contains("update the chart"), "{error}");
    }
}
