//! Which requests are views, and how they get to the origin.

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

/// The type of views.
const VIEW: &str = "view";

/// The most routes that are observed.
const ROUTES_MAX: u64 = 32;

/// Which requests are views.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserveConfig {
    /// The routes, at most 32: the first that matches counts.
    pub routes: Vec<RouteConfig>,
    /// The name of the write key that the views count under.
    pub key: KeyName,
    /// The cookie that holds the visitor: `weir_visitor` unless set.
    #[serde(default = "default_visitor_cookie")]
    pub visitor_cookie: String,
    /// The cookie that holds what the person agrees to: `weir_consent` unless set.
    #[serde(default = "default_consent_cookie")]
    pub consent_cookie: String,
    /// How views get to the origin.
    #[serde(default)]
    pub outbox: OutboxConfig,
}

/// One route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Its path, with one segment in braces, which becomes an attribute of that name: `/products/{sku}`.
    pub path: String,
    /// The type of the events: `view` unless set.
    #[serde(default, rename = "type")]
    pub event_type: Option<EventType>,
}

/// How views get to the origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutboxConfig {
    /// The Envoy cluster of the origin's public port: `weir_origin` unless set.
    pub cluster: String,
    /// The path there: `/events` unless set.
    pub path: String,
    /// How long the origin may take for a batch, in milliseconds, 1 to 60,000: 5,000 unless set.
    pub timeout_ms: u64,
    /// How far apart batches are, in milliseconds, 100 to 60,000: 1,000 unless set. A crash loses the views of that time.
    pub flush_ms: u64,
    /// The most views of a batch, 1 to 1,000: 200 unless set.
    pub events_max: usize,
    /// The most bytes of a batch, 32,768 to 1,048,576: 131,072 unless set.
    pub bytes_max: usize,
    /// The most batches that a worker keeps while the origin does not take them, 1 to 1,000: 64 unless set.
    pub batches_max: usize,
}

/// Which requests are views, checked.
#[derive(Clone, Debug)]
pub struct CheckedObserve {
    /// The routes, each with the type of its events.
    pub(crate) routes: Vec<(Pattern, EventType)>,
    /// The write key's name.
    pub key: KeyName,
    /// What a person has agreed to who does not say.
    pub consent: Consent,
    /// The cookie that holds the visitor.
    pub visitor_cookie: String,
    /// The cookie that holds the consent.
    pub consent_cookie: String,
    /// How views get to the origin.
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
        let key =
            key.ok_or_else(|| FieldError::new("observe.key", "is the name of no key in `keys`"))?;
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
