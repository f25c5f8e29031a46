//! The shipped config for benchmarks: with another's HTTP filters, or with the filter's own settings changed.

use super::{EnvoyConfig, FILTERS_BEGIN, NEXT_FILTER};
use anyhow::{Context, Result};
use serde_json::Value;

/// What follows the HTTP filters and their routes.
const FILTERS_END: &str = "\n    # (4) ";
/// How far what stands in their place is indented, and clusters.
const HTTP_INDENT: usize = 16;
const CLUSTER_INDENT: usize = 2;
/// The HTTP connection manager's own filters, and further clusters, in a file that brings them.
const HTTP: &str = "http_filters:\n";
const CLUSTERS: &str = "\nclusters:\n";

const ORDERS: &str = "                        - name: orders\n";
const ROUTE_INDENT: usize = 26;
const ROUTE: &str = "                          route:\n";
/// What a route adds to responses, and what makes them JSON.
const ADDED: &str = "                          response_headers_to_add:\n";
const AS_JSON: &str = "- header: { key: content-type, value: application/json }\n  \
    append_action: OVERWRITE_IF_EXISTS_OR_ADD\n";

impl EnvoyConfig {
    /// With `http_filters`, `route_config` and further clusters of `fragment`, a YAML file with these three at
    /// its top, in place of the shipped filters and routes. The listener and all its limits stay.
    ///
    /// # Errors
    /// When either text is not built so.
    pub fn with_http_of(mut self, fragment: &str) -> Result<Self> {
        let (http, clusters) = match fragment.split_once(CLUSTERS) {
            Some((http, clusters)) => (http, clusters),
            None => (fragment, ""),
        };
        let start = http.find(HTTP).context("there are no http_filters")?;
        let old = self.text.find(FILTERS_BEGIN).context("no http_filters")?;
        let end = self
            .text
            .find(FILTERS_END)
            .context("nothing follows them")?;
        let http = indented(http.get(start..).unwrap_or_default(), HTTP_INDENT);
        self.text.replace_range(old..end, &http);
        self.text += &indented(clusters, CLUSTER_INDENT);
        self.forget_what_is_gone();
        Ok(self)
    }

    /// With the JSON configuration of the filter `name` changed by `edit`.
    ///
    /// # Errors
    /// When there is no such filter, or its configuration is no JSON.
    pub fn edit_filter(mut self, name: &str, edit: impl FnOnce(&mut Value)) -> Result<Self> {
        let begin = format!("                  - name: {name}\n");
        let begin = self.text.find(&begin).context("no such filter")? + begin.len();
        let rest = self.text.get(begin..).unwrap_or_default();
        let end = begin + rest.find(NEXT_FILTER).context("no filter follows")?;
        let value = "value: |\n";
        let filter = self.text.get(begin..end).unwrap_or_default();
        let start = begin + filter.find(value).context("it has no configuration")?;
        let json = self.text.get(start + value.len()..end).unwrap_or_default();
        let mut json: Value = serde_json::from_str(json).context("it is not JSON")?;
        edit(&mut json);
        // JSON is YAML, and so is a string in it.
        let quoted = serde_json::to_string(&json.to_string())?;
        self.text
            .replace_range(start..end, &format!("value: {quoted}\n"));
        self.forget_what_is_gone();
        Ok(self)
    }

    /// With Envoy itself answering orders that the gate lets pass, with 200 and this JSON, in place of the origin.
    ///
    /// # Errors
    /// When there is no route for orders.
    pub fn orders_answered(mut self, body: &str) -> Result<Self> {
        let orders = self.text.find(ORDERS).context("no route for orders")?;
        let route = self.text.get(orders..).and_then(|text| text.find(ROUTE));
        let start = orders + route.context("the route for orders goes nowhere")?;
        let rest = self.text.get(start + ROUTE.len()..).unwrap_or_default();
        let action = rest.lines().take_while(|line| indent(line) > ROUTE_INDENT);
        let length: usize = action.map(|line| line.len() + 1).sum();
        let answer =
            format!("direct_response: {{ status: 200, body: {{ inline_string: '{body}' }} }}\n");
        let answer = indented(&answer, ROUTE_INDENT);
        self.text
            .replace_range(start..start + ROUTE.len() + length, &answer);
        let after = self.text.get(start..).unwrap_or_default();
        let added = after
            .find(ADDED)
            .context("the route for orders adds no headers")?;
        self.text.insert_str(
            start + added + ADDED.len(),
            &indented(AS_JSON, ROUTE_INDENT + 2),
        );
        Ok(self)
    }

    /// What stood in a part that was cut out needs no replacing.
    fn forget_what_is_gone(&mut self) {
        let text = &self.text;
        self.replacements.retain(|known| text.contains(&known.from));
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn indented(text: &str, by: usize) -> String {
    let line = |line: &str| match line {
        "" => "\n".to_owned(),
        _ => format!("{:by$}{line}\n", ""),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAGMENT: &str = "# why\nhttp_filters:\n  - name: mine\nroute_config:\n  name: r\n";

    fn rendered(config: Result<EnvoyConfig>) -> String {
        config.and_then(|config| config.render()).unwrap()
    }

    #[test]
    fn others_filters_stand_in_the_shipped_listener() {
        let with = |fragment: &str| {
            rendered(EnvoyConfig::shipped().and_then(|config| config.with_http_of(fragment)))
        };
        let text = with(FRAGMENT);
        assert!(text.contains("                http_filters:\n                  - name: mine\n"));
        assert!(text.contains("                route_config:\n                  name: r\n"));
        assert!(
            !text.contains("weir.seckill_gate") && text.contains("request_headers_timeout: 10s")
        );
        let text = with(&format!("{FRAGMENT}clusters:\n  - name: beside\n"));
        assert!(text.ends_with("\n    - name: beside\n"), "{text}");
        let shipped = EnvoyConfig::shipped().unwrap();
        assert!(shipped.with_http_of("route_config:\n").is_err());
    }

    #[test]
    fn a_filters_settings_are_edited_as_json() {
        let config = EnvoyConfig::shipped().and_then(|config| {
            config.edit_filter("weir.seckill_gate", |json| {
                json["limits"] = serde_json::json!({});
                json["poll_interval_ms"] = 999.into();
            })
        });
        let text = rendered(config);
        assert!(text.contains(r#"\"poll_interval_ms\":999"#), "{text}");
        assert!(!text.contains("rate_per_s") && text.contains("name: envoy.filters.http.router"));
        let shipped = EnvoyConfig::shipped().unwrap();
        assert!(shipped.edit_filter("weir.nothing", |_| {}).is_err());
    }

    #[test]
    fn envoy_answers_orders_and_nothing_else_is_changed() {
        let text = rendered(EnvoyConfig::shipped().and_then(|c| c.orders_answered("{}")));
        let orders = text.find("- name: orders\n").unwrap();
        let next = text.find("- name: reservations\n").unwrap();
        let route = &text[orders..next];
        assert!(
            route.contains("direct_response") && !route.contains("cluster: origin"),
            "{route}"
        );
        assert!(text[next..].contains("cluster: origin"));
    }
}
