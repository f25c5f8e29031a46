//! CORS for pages on any local port, because development servers of shops use various ports.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use anyhow::Result;
use serde_json::{Value, json};

use super::{EVENTS, EnvoyConfig};
use crate::envoy::tree::list;

/// The page origins, as a regular expression.
const LOCAL: &str = r"http://(localhost|127\.0\.0\.1)(:[0-9]+)?";

const CORS_FILTER: &str = "envoy.filters.http.cors";

impl EnvoyConfig {
    /// Adds `envoy/snippets/cors.yaml` for pages of any local port, and browser keys that any page may use; for
    /// [`EnvoyConfig::all`]. Only for trying Weir out, because pages from anywhere can use the keys.
    pub fn for_local_pages(self) -> Result<Self> {
        let mut config = self.cors()?.edit_filter(EVENTS, |settings| {
            for key in list(settings, "/keys")? {
                if key["kind"] == "browser" {
                    key["origins"] = json!(["*"]);
                }
            }
            Ok(())
        })?;
        let host = &mut list(config.http()?, "/route_config/virtual_hosts")?[0];
        let allowed = json!([{ "safe_regex": { "regex": LOCAL } }]);
        host["typed_per_filter_config"][CORS_FILTER]["allow_origin_string_match"] = allowed;
        // The events filter answers its preflight requests itself, based on its keys.
        for route in list(host, "/routes")? {
            if is_of_events(route) {
                route["typed_per_filter_config"] = json!({ CORS_FILTER: {
                    "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true } });
            }
        }
        Ok(config)
    }
}

fn is_of_events(route: &Value) -> bool {
    let path = route["match"]["path"].as_str();
    path.is_some_and(|path| path == "/events" || path == "/events.gif")
}
