//! The filter's configuration.
//!
//! ```json
//! {
//!   "routes": [{ "method": "POST", "path": "/sales/{sale}/orders" }],
//!   "user_header": "x-user-id",
//!   "claim": { "ttl_ms": 30000, "keys": [{ "id": "k1", "secret": { "env": "WEIR_CLAIM_SECRET" } }] },
//!   "redis": { "cluster": "weir_redis", "key_prefix": "weir", "topology": "single" }
//! }
//! ```
//!
//! The fields above are the most important ones; the others have defaults.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::hash::stable_hash;
use weir_base::id::SaleId;
use weir_base::key::KeyRing;
use weir_engine::config::{Environment, content_type, header_name, within};
pub use weir_engine::config::{RedisConfig, Topology};
use weir_engine::edges::{Edges, EdgesConfig};
use weir_engine::keys::{KeyConfig, ring};
use weir_engine::{ItemKind, ReportedItem};

pub use self::captcha::{Captcha, CaptchaConfig, UnreachablePolicy};
pub use self::limits::{CheckedLimits, IdentifiedLimits, LimitsConfig, OverloadConfig};
pub use self::token::{TokenConfig, TokenSettings};
use crate::engine::route::{Route, RouteKind};
use crate::engine::sku::{SkuRoute, SkuSource};

mod captcha;
mod limits;
mod token;

/// The maximum lifetime of a claim: a day. A longer one, such as a typing error, would block stock.
const CLAIM_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// The default of `redis.deadline_ms`: how long a request waits for its claim.
pub const DEADLINE_MS: u64 = 250;

/// The maximum length of a static page in bytes: each answer copies it.
const PAGE_LEN_MAX: usize = 64 * 1_024;

/// Flash sale admission. At least `routes`, `user_header`, `claim` and `redis` are required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Orders; at least one route. Other requests pass unchanged.
    pub routes: Vec<RouteConfig>,
    /// Requests for an order token, answered by the filter. Default: none.
    #[serde(default)]
    pub checkout_routes: Vec<RouteConfig>,
    /// Requests for a sale's status, answered by the filter for anyone. Default: none.
    #[serde(default)]
    pub status_routes: Vec<RouteConfig>,
    /// Normal orders. From a sale's creation to its end, the filter refuses normal orders for its SKU, with the
    /// sale's address. Default: none.
    #[serde(default)]
    pub sku_routes: Vec<SkuRouteConfig>,
    /// Path prefixes whose requests get the signed user, if known. Default: none.
    #[serde(default)]
    pub identify_prefixes: Vec<String>,
    /// Header that names the user. An authentication filter before this one must set it, so that clients cannot
    /// forge it.
    pub user_header: String,
    /// Claims on units of a sale.
    pub claim: ClaimConfig,
    /// Order tokens; required with `checkout_routes`, and for sales that need tokens.
    #[serde(default)]
    pub token: Option<TokenConfig>,
    /// CAPTCHA provider; required for sales whose challenge is a CAPTCHA.
    #[serde(default)]
    pub captcha: Option<CaptchaConfig>,
    /// Connection to Redis.
    pub redis: RedisConfig,
    /// Publish verdict counts per sale to Redis. Default: false.
    #[serde(default)]
    pub report: bool,
    /// Rate limits per user and per address. Default: none, except for `identified`.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// When to refuse requests to protect those in progress.
    #[serde(default)]
    pub overload: OverloadConfig,
    /// Interval of catalogue reads, 50 to 60,000. Default: 250. Changes take effect within this time plus one Redis
    /// call.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// `Retry-After` for an unknown outcome, in seconds, 1 to 3,600. Default: 1.
    #[serde(default = "default_retry_after_s")]
    pub retry_after_s: u32,
    /// Answer for a sale that an operator has put behind a page.
    #[serde(default)]
    pub static_page: StaticPage,
    /// Edges that may report the client's address. Default: none.
    #[serde(default)]
    pub edges: Option<EdgesConfig>,
}

/// Which requests a route matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// HTTP method. Default: `GET` for a status, otherwise `POST`.
    #[serde(default)]
    pub method: Option<String>,
    /// Path, with `{sale}` as one whole segment.
    pub path: String,
    /// For orders: name of the Envoy route to the origin. Orders that Envoy routes elsewhere pass without a claim.
    /// Default: every order takes a claim.
    #[serde(default)]
    pub envoy_route: Option<String>,
}

/// Which requests are normal orders.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkuRouteConfig {
    /// HTTP method. Default: `POST`.
    #[serde(default)]
    pub method: Option<String>,
    /// Path; may have `{sku}` as one whole segment.
    pub path: String,
    /// Where the SKU is, if not in the path.
    #[serde(default)]
    pub sku: Option<SkuConfig>,
}

/// Where a normal order names its SKU.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkuConfig {
    /// In this query parameter.
    Query(String),
    /// In this header.
    Header(String),
}

/// A page that replaces every answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticPage {
    /// HTTP status, 200 to 599. Default: 503.
    #[serde(default = "default_page_status")]
    pub status: u16,
    /// Media type. Default: HTML.
    #[serde(default = "default_page_type")]
    pub content_type: String,
    /// Body, at most 65,536 bytes. Default: one sentence.
    #[serde(default = "default_page_body")]
    pub body: String,
}

impl Default for StaticPage {
    fn default() -> Self {
        Self {
            status: default_page_status(),
            content_type: default_page_type(),
            body: default_page_body(),
        }
    }
}

/// Settings of claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimConfig {
    /// Lifetime of a claim before it may be released, at most a day. Default: 30,000. Must exceed the route's
    /// timeout to the origin.
    #[serde(default = "default_claim_ttl_ms")]
    pub ttl_ms: u64,
    /// Keys shared by gateways and origin; the first one signs.
    pub keys: Vec<KeyConfig>,
}

/// The validated configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// Routes of order requests.
    pub routes: Vec<Route>,
    /// Routes of order tokens.
    pub checkout_routes: Vec<Route>,
    /// Routes of sale statuses.
    pub status_routes: Vec<Route>,
    /// See [`Config::sku_routes`].
    pub sku_routes: Vec<SkuRoute>,
    /// The header with the user's name, in lower case.
    pub user_header: String,
    /// See [`ClaimConfig::keys`].
    pub claim_keys: KeyRing,
    /// See [`Config::identify_prefixes`].
    pub identify_prefixes: Vec<String>,
    /// See [`Config::token`].
    pub token: Option<TokenSettings>,
    /// See [`Config::captcha`].
    pub captcha: Option<Captcha>,
    /// See [`ClaimConfig::ttl_ms`].
    pub claim_ttl_ms: u64,
    /// See [`RedisConfig`].
    pub redis: RedisConfig,
    /// See [`Config::report`].
    pub report: bool,
    /// See [`Config::limits`].
    pub limits: CheckedLimits,
    /// See [`Config::overload`].
    pub overload: OverloadConfig,
    /// See [`Config::poll_interval_ms`].
    pub poll_interval_ms: u64,
    /// See [`Config::retry_after_s`].
    pub retry_after_s: u32,
    /// See [`Config::static_page`].
    pub static_page: StaticPage,
    /// See [`Config::edges`].
    pub edges: Edges,
}

impl CheckedConfig {
    /// The name of the host route that an order request must use, if configured.
    pub fn must_go_via(&self, method: &[u8], path: &[u8]) -> Option<&str> {
        let mut routes = self.routes.iter();
        // Without such a setting, requests need no second comparison.
        if routes.clone().all(|route| route.must_go_via().is_none()) {
            return None;
        }
        let route = routes.find(|route| route.sale(method, path).is_some())?;
        route.must_go_via()
    }

    /// The path of this sale's orders.
    pub(crate) fn orders_of(&self, sale: &SaleId) -> String {
        let route = self.routes.first();
        route.map_or_else(String::new, |route| route.path_of(sale.as_str()))
    }

    /// Routes and limits, for operators.
    pub(crate) fn items(&self) -> Vec<ReportedItem> {
        let routes = [
            (&self.routes, "orders"),
            (&self.checkout_routes, "order tokens"),
            (&self.status_routes, "status"),
        ];
        let routes = routes.into_iter().flat_map(|(routes, kind)| {
            let item = move |route: &Route| {
                let digest = stable_hash(format!("{route:?}").as_bytes());
                ReportedItem::new(ItemKind::Route, &route.pattern(), kind, digest)
            };
            routes.iter().map(item)
        });
        let limits = [
            ("orders per user", self.limits.user),
            ("orders per address", self.limits.address),
            ("identified requests per user", self.limits.identified_user),
            (
                "identified requests per address",
                self.limits.identified_address,
            ),
        ];
        let limits = limits.into_iter().filter_map(|(name, quota)| {
            let text = format!("{}, local, from the configuration", quota?);
            let digest = stable_hash(text.as_bytes());
            Some(ReportedItem::new(ItemKind::Rule, name, &text, digest))
        });
        routes.chain(limits).collect()
    }

    /// The key prefix of reports, if enabled.
    pub fn report_to(&self) -> Option<&str> {
        self.report.then_some(self.redis.key_prefix.as_str())
    }

    /// Checks that the host provides the data that these settings need.
    ///
    /// # Errors
    /// Names the unsupported field.
    pub(crate) fn fits(&self, tells_routes: bool) -> Result<(), FieldError> {
        let mut routes = self.routes.iter();
        match routes.position(|route| route.must_go_via().is_some()) {
            Some(at) if !tells_routes => Err(FieldError::new(
                format!("routes[{at}].envoy_route"),
                "not supported by this host: remove it",
            )),
            _ => Ok(()),
        }
    }

    /// The kind of a request; `None` if the gate does not handle it.
    pub fn route_kind<'p>(&self, method: &[u8], path: &'p [u8]) -> Option<RouteKind<'p>> {
        let sale = |routes: &[Route]| routes.iter().find_map(|route| route.sale(method, path));
        sale(&self.routes)
            .map(RouteKind::Buy)
            .or_else(|| sale(&self.checkout_routes).map(RouteKind::Checkout))
            .or_else(|| sale(&self.status_routes).map(RouteKind::Status))
            .or_else(|| {
                let mut routes = self.sku_routes.iter();
                let is_one = routes.any(|route| route.matches(method, path));
                is_one.then_some(RouteKind::NormalOrder)
            })
    }
}

impl Config {
    /// Validates the configuration and reads the secrets from `environment`.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn checked(self, environment: Environment<'_>) -> Result<CheckedConfig, FieldError> {
        if self.routes.is_empty() {
            return Err(FieldError::new("routes", "needs at least one route"));
        }
        let routes = checked_routes("routes", &self.routes, "POST")?;
        let checkout_routes = checked_routes("checkout_routes", &self.checkout_routes, "POST")?;
        let status_routes = checked_routes("status_routes", &self.status_routes, "GET")?;
        let sku_routes = checked_sku_routes(self.sku_routes)?;
        check_prefixes(&self.identify_prefixes)?;
        let user_header = header_name("user_header", &self.user_header)?;
        within("poll_interval_ms", self.poll_interval_ms, 50, 60_000)?;
        within("retry_after_s", u64::from(self.retry_after_s), 1, 3_600)?;
        within("claim.ttl_ms", self.claim.ttl_ms, 1, CLAIM_TTL_MS_MAX)?;
        self.redis.check("redis")?;
        self.static_page.check()?;
        let limits = self.limits.checked()?;
        self.overload.check()?;
        let claim_keys = ring("claim.keys", &self.claim.keys, environment)?;
        let token = self.token.as_ref();
        let token = token.map(|token| token.checked(environment)).transpose()?;
        if token.is_none() && !checkout_routes.is_empty() {
            return Err(FieldError::new("token", "required for checkout_routes"));
        }
        let captcha = self.captcha.as_ref();
        let captcha = captcha.map(|captcha| captcha.checked(environment));
        Ok(CheckedConfig {
            routes,
            checkout_routes,
            token,
            captcha: captcha.transpose()?,
            status_routes,
            sku_routes,
            user_header,
            claim_keys,
            identify_prefixes: self.identify_prefixes,
            claim_ttl_ms: self.claim.ttl_ms,
            redis: self.redis,
            report: self.report,
            poll_interval_ms: self.poll_interval_ms,
            retry_after_s: self.retry_after_s,
            static_page: self.static_page,
            limits,
            overload: self.overload,
            edges: Edges::read(self.edges.as_ref(), environment)?,
        })
    }
}

impl StaticPage {
    fn check(&self) -> Result<(), FieldError> {
        within("static_page.status", u64::from(self.status), 200, 599)?;
        content_type("static_page.content_type", &self.content_type)?;
        let length = self.body.len() as u64;
        within("static_page.body's length", length, 0, PAGE_LEN_MAX as u64)
    }
}

fn checked_routes(
    field: &str,
    routes: &[RouteConfig],
    default_method: &str,
) -> Result<Vec<Route>, FieldError> {
    let checked = |(index, route): (usize, &RouteConfig)| {
        let method = route.method.as_deref().unwrap_or(default_method);
        let checked = Route::new(method, &route.path).map_err(|error| {
            FieldError::new(format!("{field}[{index}].{}", error.field()), error)
        })?;
        Ok(checked.via(route.envoy_route.as_deref()))
    };
    routes.iter().enumerate().map(checked).collect()
}

fn checked_sku_routes(routes: Vec<SkuRouteConfig>) -> Result<Vec<SkuRoute>, FieldError> {
    let checked = |(index, route): (usize, SkuRouteConfig)| {
        let field = |name: &str| format!("sku_routes[{index}].{name}");
        let source = match route.sku {
            None => None,
            Some(SkuConfig::Query(name)) => Some(SkuSource::Query(name)),
            Some(SkuConfig::Header(name)) => {
                let name = header_name(&field("sku.header"), &name)?;
                Some(SkuSource::Header(name))
            }
        };
        let method = route.method.as_deref().unwrap_or("POST");
        SkuRoute::new(method, &route.path, source)
            .map_err(|error| FieldError::new(field(error.field()), error))
    };
    routes.into_iter().enumerate().map(checked).collect()
}

fn check_prefixes(prefixes: &[String]) -> Result<(), FieldError> {
    match prefixes.iter().position(|prefix| !prefix.starts_with('/')) {
        Some(at) => Err(FieldError::new(
            format!("identify_prefixes[{at}]"),
            "must be a path prefix, such as /orders/",
        )),
        None => Ok(()),
    }
}

fn default_poll_interval_ms() -> u64 {
    250
}

fn default_retry_after_s() -> u32 {
    1
}

fn default_page_status() -> u16 {
    503
}

fn default_page_type() -> String {
    "text/html; charset=utf-8".into()
}

fn default_page_body() -> String {
    let sentence = "The sale is paused. Please come back in a moment.";
    format!("<!doctype html><title>Sale</title><p>{sentence}</p>\n")
}

fn default_claim_ttl_ms() -> u64 {
    30_000
}

#[cfg(test)]
mod tests;
