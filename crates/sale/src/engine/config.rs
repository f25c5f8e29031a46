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
//! The fields above are the ones to know; the others have defaults.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::id::SaleId;
use weir_base::key::KeyRing;
use weir_engine::config::{Environment, content_type, header_name, within};
pub use weir_engine::config::{RedisConfig, Topology};
use weir_engine::edges::{Edges, EdgesConfig};
use weir_engine::keys::{KeyConfig, ring};

pub use self::captcha::{Captcha, CaptchaConfig, UnreachablePolicy};
pub use self::limits::{CheckedLimits, IdentifiedLimits, LimitsConfig, OverloadConfig};
pub use self::token::{TokenConfig, TokenSettings};
use crate::engine::route::{Route, RouteKind};
use crate::engine::sku::{SkuRoute, SkuSource};

mod captcha;
mod limits;
mod token;

/// The longest a claim may be held: a day. Beyond it a slip of the pen would hide stock.
const CLAIM_TTL_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// How long a request waits for its claim, in milliseconds, unless `redis.deadline_ms` is set.
pub const DEADLINE_MS: u64 = 250;

/// The longest static page, in bytes: it is copied for each answer.
const PAGE_LEN_MAX: usize = 64 * 1_024;

/// The configuration as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The requests that buy; all others pass untouched. At least one.
    pub routes: Vec<RouteConfig>,
    /// The requests that ask for an order token, answered here: none unless set.
    #[serde(default)]
    pub checkout_routes: Vec<RouteConfig>,
    /// The requests that ask how a sale stands, answered here for anybody: none unless set.
    #[serde(default)]
    pub status_routes: Vec<RouteConfig>,
    /// Normal orders. One for a SKU that a sale sells is refused with the sale's address, from the sale's creation to its end:
    /// none unless set.
    #[serde(default)]
    pub sku_routes: Vec<SkuRouteConfig>,
    /// Requests for paths that begin so go on with the signed user, if there is one: none unless set.
    #[serde(default)]
    pub identify_prefixes: Vec<String>,
    /// The header that names the user. It must be one that a client cannot forge: one that an
    /// authentication filter in front of this one sets.
    pub user_header: String,
    /// Claims.
    pub claim: ClaimConfig,
    /// Order tokens: needed if there are checkouts, or sales that want tokens.
    #[serde(default)]
    pub token: Option<TokenConfig>,
    /// Whom to ask whether somebody is a person: needed for sales whose challenge is a captcha.
    #[serde(default)]
    pub captcha: Option<CaptchaConfig>,
    /// Redis.
    pub redis: RedisConfig,
    /// Whether operators are told, by Redis, which verdicts each sale gets: not unless set.
    #[serde(default)]
    pub report: bool,
    /// How often one user and one address may ask: without limits unless set.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// When to answer at once so that what was accepted is finished.
    #[serde(default)]
    pub overload: OverloadConfig,
    /// How often the catalogue is read, in milliseconds: 250 unless set, 50 to 60,000. A switch
    /// is seen after so long at most, and the time of one call to Redis.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// What `Retry-After` says when the outcome is unknown, in seconds: 1 unless set, 1 to 3,600.
    #[serde(default = "default_retry_after_s")]
    pub retry_after_s: u32,
    /// What is answered for a sale that an operator has put behind a page.
    #[serde(default)]
    pub static_page: StaticPage,
    /// The edges whose word on a client's address counts: none unless set.
    #[serde(default)]
    pub edges: Option<EdgesConfig>,
}

/// A kind of request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The HTTP method: unless set, `GET` for a status and `POST` for all else.
    #[serde(default)]
    pub method: Option<String>,
    /// The path, with `{sale}` as one whole segment.
    pub path: String,
    /// Of requests that buy: the name of Envoy's route that leads to the origin. A request that Envoy sends by another one
    /// passes without a claim, which nobody would redeem. Unless set, a claim is taken whatever the route.
    #[serde(default)]
    pub envoy_route: Option<String>,
}

/// A kind of normal order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkuRouteConfig {
    /// The HTTP method: `POST` unless set.
    #[serde(default)]
    pub method: Option<String>,
    /// The path. It may hold `{sku}` as one whole segment.
    pub path: String,
    /// Where the SKU is, if not in the path.
    #[serde(default)]
    pub sku: Option<SkuConfig>,
}

/// Where a normal order names its SKU.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkuConfig {
    /// In this parameter of the query.
    Query(String),
    /// In this header.
    Header(String),
}

/// A page that takes the place of every answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticPage {
    /// The HTTP status, 200 to 599: 503 unless set.
    #[serde(default = "default_page_status")]
    pub status: u16,
    /// The `content-type`: HTML unless set.
    #[serde(default = "default_page_type")]
    pub content_type: String,
    /// The body, at most 65,536 bytes: one sentence unless set.
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

/// How claims are made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimConfig {
    /// How long a claim is held before it may be taken back, in milliseconds: 30,000 unless set.
    /// It must be longer than the route's timeout to the origin.
    #[serde(default = "default_claim_ttl_ms")]
    pub ttl_ms: u64,
    /// The keys that gateways and origin share: the first signs. See [`weir_base::key`] for how to
    /// change a secret.
    pub keys: Vec<KeyConfig>,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The requests that buy.
    pub routes: Vec<Route>,
    /// The requests that ask for an order token.
    pub checkout_routes: Vec<Route>,
    /// The requests that ask how a sale stands.
    pub status_routes: Vec<Route>,
    /// See [`Config::sku_routes`].
    pub sku_routes: Vec<SkuRoute>,
    /// The header that names the user, in lower case.
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
    /// The name of the host's route that such a request to buy must go by, if that matters.
    pub fn must_go_via(&self, method: &[u8], path: &[u8]) -> Option<&str> {
        let mut routes = self.routes.iter();
        // Where no route asks for it, requests are not compared once more.
        if routes.clone().all(|route| route.must_go_via().is_none()) {
            return None;
        }
        let route = routes.find(|route| route.sale(method, path).is_some())?;
        route.must_go_via()
    }

    /// The path of orders of this sale.
    pub(crate) fn orders_of(&self, sale: &SaleId) -> String {
        let route = self.routes.first();
        route.map_or_else(String::new, |route| route.path_of(sale.as_str()))
    }

    /// Before which keys operators are told, if they are.
    pub fn report_to(&self) -> Option<&str> {
        self.report.then_some(self.redis.key_prefix.as_str())
    }

    /// That the host tells what these settings need.
    ///
    /// # Errors
    /// Names the field for which it tells too little.
    pub(crate) fn fits(&self, tells_routes: bool) -> Result<(), FieldError> {
        let mut routes = self.routes.iter();
        match routes.position(|route| route.must_go_via().is_some()) {
            Some(at) if !tells_routes => Err(FieldError::new(
                format!("routes[{at}].envoy_route"),
                "this host does not tell which route it has chosen: leave it out",
            )),
            _ => Ok(()),
        }
    }

    /// What a request is for, if it concerns the gate at all.
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
    /// The configuration, if it makes sense and its secrets are in `environment`.
    ///
    /// # Errors
    /// Names the field that is wrong.
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
            return Err(FieldError::new("token", "checkout_routes need its keys"));
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
            "must be the beginning of a path, such as /orders/",
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
