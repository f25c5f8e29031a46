//! CORS for pages on any local port, because development servers of shops use various ports.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use anyhow::Result;
use serde_json::{Value, json};

use super::{EVENTS, EnvoyConfig, ROOM};
use crate::envoy::tree::list;

/// The page origins, as a regular expression.
const LOCAL: &str = r"http://(localhost|127\.0\.0\.1)(:[0-9]+)?";

/// The header that names the user in the shipped files.
const USER_HEADER: &str = "x-user-id";

const CORS_FILTER: &str = "envoy.filters.http.cors";

impl EnvoyConfig {
    /// Adds `envoy/snippets/cors.yaml` for pages of any local port and of `origins`. Pages may also name the user, since the
    /// shipped files have no authentication. Only for trying Weir out.
    pub fn cors_for_local_pages(self, origins: &[String]) -> Result<Self> {
        let mut config = self.cors()?;
        let host = &mut list(config.http()?, "/route_config/virtual_hosts")?[0];
        let policy = &mut host["typed_per_filter_config"][CORS_FILTER];
        let mut allowed = vec![json!({ "safe_regex": { "regex": LOCAL } })];
        allowed.extend(origins.iter().map(|origin| json!({ "exact": origin })));
        policy["allow_origin_string_match"] = allowed.into();
        let headers = policy["allow_headers"].as_str().unwrap_or_default();
        policy["allow_headers"] = format!("{headers}, {USER_HEADER}").into();
        // The events filter answers its preflight requests itself, based on its keys.
        for route in list(host, "/routes")? {
            if is_of_events(route) {
                route["typed_per_filter_config"] = json!({ CORS_FILTER: {
                    "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true } });
            }
        }
        Ok(config)
    }

    /// Adds the waiting room `drop` before all sales; for [`EnvoyConfig::all`]. It lets everybody pass until an operator
    /// opens or pauses it.
    pub fn room_before_sales(self) -> Result<Self> {
        self.edit_filter(ROOM, |settings| {
            list(settings, "/rooms")?.push(json!({
                "name": "drop",
                "mode": "bypass",
                "match": { "methods": ["POST"], "path": { "prefix": "/sales/" } },
                "per_minute": 600,
                "poll": { "min_ms": 1000, "max_ms": 5000 },
            }));
            Ok(())
        })
    }

    /// Lets pages of any origin use the browser keys; for [`EnvoyConfig::all`]. Only for trying Weir out.
    pub fn event_keys_for_any_page(self) -> Result<Self> {
        self.edit_filter(EVENTS, |settings| {
            for key in list(settings, "/keys")? {
                if key["kind"] == "browser" {
                    key["origins"] = json!(["*"]);
                }
            }
            Ok(())
        })
    }
}

fn is_of_events(route: &Value) -> bool {
    let path = route["match"]["path"].as_str();
    path.is_some_and(|path| path == "/events" || path == "/events.gif")
}
