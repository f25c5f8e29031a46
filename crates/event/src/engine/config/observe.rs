//! Which requests are views, and how they reach the origin.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::consent::Consent;
use crate::limits::{BODY_LEN_MAX, EVENT_LEN_MAX, EVENTS_MAX};
use crate::name::{EventType, KeyName};
use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::{header_name, within};

use super::WriteKey;
use crate::engine::observe::Pattern;

/// The default type of views.
const VIEW: &str = "view";

/// Maximum observed routes.
const ROUTES_MAX: u64 = 32;

/// Requests that count as views.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveConfig {
    /// At most 32 routes; the first match counts.
    pub routes: Vec<RouteConfig>,
    /// Name of the write key for the views.
    pub key: KeyName,
    /// Cookie with the visitor id. Default: `weir_visitor`.
    #[serde(default = "default_visitor_cookie")]
    pub visitor_cookie: String,
    /// Cookie with the consent. Default: `weir_consent`.
    #[serde(default = "default_consent_cookie")]
    pub consent_cookie: String,
    /// Delivery of views to the origin.
    #[serde(default)]
    pub outbox: OutboxConfig,
}

/// A route whose requests are views.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Path with one segment in braces, which becomes an event attribute of that name: `/products/{sku}`.
    pub path: String,
    /// Event type. Default: `view`.
    #[serde(default, rename = "type")]
    pub event_type: Option<EventType>,
}

/// Delivery of views to the origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutboxConfig {
    /// Envoy cluster of the origin's public port. Default: `weir_origin`.
    pub cluster: String,
    /// Path at the origin. Default: `/events`.
    pub path: String,
    /// Timeout of a batch, 1 to 60,000. Default: 5,000.
    pub timeout_ms: u64,
    /// Interval between batches, 100 to 60,000. Default: 1,000. A crash loses the views of one interval.
    pub flush_ms: u64,
    /// Maximum views per batch, 1 to 1,000. Default: 200.
    pub events_max: usize,
    /// Maximum bytes per batch, 32,768 to 1,048,576. Default: 131,072.
    pub bytes_max: usize,
    /// Maximum batches that a worker keeps during an origin outage, 1 to 1,000. Default: 64.
    pub batches_max: usize,
}

/// The checked configuration of views.
#[derive(Clone, Debug)]
pub struct CheckedObserve {
    /// The routes, each with its event type.
    pub(crate) routes: Vec<(Pattern, EventType)>,
    /// The write key's name.
    pub key: KeyName,
    /// Consent of a person whose request states none.
    pub consent: Consent,
    /// The cookie with the visitor id.
    pub visitor_cookie: String,
    /// The cookie with the consent.
    pub consent_cookie: String,
    /// Delivery of views to the origin.
    pub outbox: OutboxConfig,
}

impl ObserveConfig {
    pub(super) fn checked(self, keys: &[WriteKey]) -> Result<CheckedObserve, FieldError> {
        within(
            "observe.routes' length",
            self.routes.len() as u64,
            1,
            ROUTES_MAX,
        )?;
        let key = keys.iter().find(|key| key.name == self.key);
        let key = key
            .ok_or_else(|| FieldError::new("observe.key", "must be the name of a key in `keys`"))?;
        let mut routes = Vec::new();
        for (index, route) in self.routes.into_iter().enumerate() {
            let at = format!("observe.routes[{index}]");
            let view = EventType::new(VIEW).map_err(|error| FieldError::new(&*at, error))?;
            let pattern = Pattern::new(&route.path, &format!("{at}.path"))?;
            routes.push((pattern, route.event_type.unwrap_or(view)));
        }
        header_name("observe.visitor_cookie", &self.visitor_cookie)?;
        header_name("observe.consent_cookie", &self.consent_cookie)?;
        self.outbox.check()?;
        Ok(CheckedObserve {
            routes,
            key: self.key,
            consent: key.consent,
            visitor_cookie: self.visitor_cookie,
            consent_cookie: self.consent_cookie,
            outbox: self.outbox,
        })
    }
}

impl OutboxConfig {
    fn check(&self) -> Result<(), FieldError> {
        if self.cluster.is_empty() {
            let problem = "must name an Envoy cluster";
            return Err(FieldError::new("observe.outbox.cluster", problem));
        }
        super::check_path("observe.outbox.path", &self.path)?;
        let field = |name: &str, value: u64, min: u64, max: u64| {
            within(&format!("observe.outbox.{name}"), value, min, max)
        };
        field("timeout_ms", self.timeout_ms, 1, 60_000)?;
        field("flush_ms", self.flush_ms, 100, 60_000)?;
        field("events_max", self.events_max as u64, 1, EVENTS_MAX as u64)?;
        let (min, max) = (EVENT_LEN_MAX as u64, BODY_LEN_MAX as u64);
        field("bytes_max", self.bytes_max as u64, min, max)?;
        field("batches_max", self.batches_max as u64, 1, 1_000)
    }
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self {
            cluster: "weir_origin".into(),
            path: "/events".into(),
            timeout_ms: 5_000,
            flush_ms: 1_000,
            events_max: 200,
            bytes_max: 128 << 10,
            batches_max: 64,
        }
    }
}

fn default_visitor_cookie() -> String {
    "weir_visitor".into()
}

fn default_consent_cookie() -> String {
    "weir_consent".into()
}
