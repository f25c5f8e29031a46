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
use weir_base::key::KeyRing;
use weir_engine::config::{Environment, content_type, header_name, within};
pub use weir_engine::config::{RedisConfig, Topology};
use weir_engine::edges::{Edges, EdgesConfig};
use weir_engine::keys::{KeyConfig, ring};

pub use self::captcha::{Captcha, CaptchaConfig, IfUnreachable};
pub use self::limits::{CheckedLimits, IdentifiedLimits, LimitsConfig, OverloadConfig};
pub use self::token::{TokenConfig, TokenSettings};
use crate::route::{Route, RouteKind};

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
pub struct Checked {
    /// The requests that buy.
    pub routes: Vec<Route>,
    /// The requests that ask for an order token.
    pub checkout_routes: Vec<Route>,
    /// The requests that ask how a sale stands.
    pub status_routes: Vec<Route>,
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

impl Checked {
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
    }
}

impl Config {
    /// The configuration, if it makes sense and its secrets are in `environment`.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn checked(self, environment: Environment<'_>) -> Result<Checked, FieldError> {
        if self.routes.is_empty() {
            return Err(FieldError::new("routes", "needs at least one route"));
        }
        let routes = checked_routes("routes", &self.routes, "POST")?;
        let checkout_routes = checked_routes("checkout_routes", &self.checkout_routes, "POST")?;
        let status_routes = checked_routes("status_routes", &self.status_routes, "GET")?;
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
        Ok(Checked {
            routes,
            checkout_routes,
            token,
            captcha: captcha.transpose()?,
            status_routes,
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
mod tests {
    use super::*;
    use weir_engine::config::parse;

    fn environment(name: &str) -> Option<Vec<u8>> {
        match name {
            "SECRET" => Some(b"0123456789abcdef0123456789abcdef".to_vec()),
            "SHORT" => Some(b"0.1.0".to_vec()),
            _ => None,
        }
    }

    fn checked(json: &str) -> Result<Checked, FieldError> {
        parse::<Config>(json.as_bytes())?.checked(&environment)
    }

    const GOOD: &str = r#"{
        "routes": [{ "path": "/sales/{sale}/orders" }],
        "user_header": "X-User-Id",
        "claim": { "keys": [{ "secret": { "env": "SECRET" } }] },
        "redis": {}
    }"#;

    fn refused(from: &str, to: &str) -> FieldError {
        assert!(GOOD.contains(from), "{from}");
        let json = GOOD.replacen(from, to, 1);
        checked(&json).unwrap_err()
    }

    #[test]
    fn a_short_configuration_gets_the_defaults() {
        let config = checked(GOOD).unwrap();
        assert_eq!(config.user_header, "x-user-id");
        assert_eq!(config.redis.cluster, "weir_redis");
        assert_eq!(config.redis.topology, Topology::Single);
        assert_eq!(
            (config.poll_interval_ms, config.claim_ttl_ms),
            (250, 30_000)
        );
    }

    #[test]
    fn every_bad_field_is_refused_by_its_path() {
        let check = |from: &str, to: &str, path: &str| {
            let error = refused(from, to);
            assert_eq!(error.path, path, "{error}");
        };
        check(r#""redis": {}"#, r#""redis": {}, "colour": 1"#, "colour");
        check(
            r#""redis": {}"#,
            r#""redis": { "hosts": 1 }"#,
            "redis.hosts",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "deadline_ms": "1" }"#,
            "redis.deadline_ms",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "deadline_ms": 0 }"#,
            "redis.deadline_ms",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "batches_max": 65 }"#,
            "redis.batches_max",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "waiting_max": 0 }"#,
            "redis.waiting_max",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "cluster": "" }"#,
            "redis.cluster",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "key_prefix": "a{b" }"#,
            "redis.key_prefix",
        );
        check(
            r#""redis": {}"#,
            r#""redis": { "topology": "ring" }"#,
            "redis.topology",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "poll_interval_ms": 1"#,
            "poll_interval_ms",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "retry_after_s": 0"#,
            "retry_after_s",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "status_routes": [{ "path": "/sales" }]"#,
            "status_routes[0].path",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "static_page": { "status": 199 }"#,
            "static_page.status",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "static_page": { "content_type": "a\r\nb: c" }"#,
            "static_page.content_type",
        );
        let added = |field: &str, path: &str| {
            check(
                r#""redis": {}"#,
                &format!(r#""redis": {{}}, {field}"#),
                path,
            );
        };
        added(r#""limits": { "slots": 0 }"#, "limits.slots");
        added(
            r#""limits": { "user": { "rate": 0, "per": "1s", "burst": 1 } }"#,
            "limits.user.rate",
        );
        added(
            r#""limits": { "address": { "rate": 1, "per": "1s", "burst": 0 } }"#,
            "limits.address.burst",
        );
        added(r#""limits": { "user": { "burst": 1 } }"#, "limits.user");
        // There is one way to write a rate, and one to write a duration.
        added(
            r#""limits": { "user": { "rate_per_s": 1, "burst": 1 } }"#,
            "limits.user.rate_per_s",
        );
        added(
            r#""limits": { "user": { "rate": 1, "per": "1 s" } }"#,
            "limits.user.per",
        );
        added(
            r#""limits": { "user": { "rate": 1, "per": 1000 } }"#,
            "limits.user.per",
        );
        added(
            r#""limits": { "identified": { "user": { "rate": 1, "per": "1s", "burst": 0 } } }"#,
            "limits.identified.user.burst",
        );
        added(
            r#""overload": { "in_flight_max": 0 }"#,
            "overload.in_flight_max",
        );
        added(
            r#""overload": { "redis_breaker": { "failure_percent": 101 } }"#,
            "overload.redis_breaker.failure_percent",
        );
        added(
            r#""overload": { "origin_breaker": { "open": 1 } }"#,
            "overload.origin_breaker.open",
        );
        let token = |fields: &str, path: &str| {
            let keys = r#""keys": [{ "secret": { "env": "SECRET" } }]"#;
            let to = format!(r#""redis": {{}}, "token": {{ {keys}, {fields} }}"#);
            check(r#""redis": {}"#, &to, path);
        };
        token(r#""min_age_ms": 60001"#, "token.min_age_ms");
        token(r#""max_age_ms": 1000"#, "token.max_age_ms");
        token(r#""max_age_ms": 86400001"#, "token.max_age_ms");
        check(
            r#""redis": {}"#,
            r#""redis": {}, "token": { "keys": [] }"#,
            "token.keys",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "checkout_routes": [{ "path": "/{sale}" }]"#,
            "token",
        );
        check(r#""X-User-Id""#, r#""""#, "user_header");
        check(r#""X-User-Id""#, r#""x user""#, "user_header");
        check("/sales/{sale}/orders", "/sales", "routes[0].path");
        check(
            r#"{ "path""#,
            r#"{ "method": "", "path""#,
            "routes[0].method",
        );
        check(r#"{ "path": "/sales/{sale}/orders" }"#, "", "routes");
        check(
            "SECRET",
            "WEIR_NO_SUCH_VARIABLE",
            "claim.keys[0].secret.env",
        );
        check("SECRET", "SHORT", "claim.keys[0].secret");
        check(
            r#"{ "secret""#,
            r#"{ "id": "K", "secret""#,
            "claim.keys[0].id",
        );
        check(
            r#"{ "secret": { "env": "SECRET" } }"#,
            r#"{ "secret": { "env": "SECRET" } }, { "secret": { "env": "SECRET" } }"#,
            "claim.keys[1].id",
        );
        check(r#"{ "secret": { "env": "SECRET" } }"#, "", "claim.keys");
        check(r#"{ "keys""#, r#"{ "ttl_ms": 0, "keys""#, "claim.ttl_ms");
        check(
            r#"{ "keys": [{ "secret": { "env": "SECRET" } }] }"#,
            "{}",
            "claim",
        );
        check(
            r#""redis": {}"#,
            r#""redis": {}, "identify_prefixes": ["/a", "b"]"#,
            "identify_prefixes[1]",
        );
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let config = checked(GOOD).unwrap();
        let page = &config.static_page;
        let default = (page.status, page.content_type.as_str());
        assert_eq!(default, (503, "text/html; charset=utf-8"));
        assert!(
            page.body.contains("<p>The sale is paused."),
            "{}",
            page.body
        );
        assert_eq!(config.retry_after_s, 1);
        assert_eq!(
            (config.limits.slots, config.overload.in_flight_max),
            (4_096, 4_096)
        );
        let limits = [config.limits.user, config.limits.address];
        assert_eq!(limits, [None, None]);
        let identified = [
            config.limits.identified_user,
            config.limits.identified_address,
        ];
        let quotas = identified.map(|quota| quota.map(|quota| (quota.rate(), quota.burst())));
        assert_eq!(quotas, [Some((10, 20)), Some((1_000, 2_000))]);
        assert_eq!(config.claim_keys.signer().id(), "k1");
        let token = format!(r#""redis": {{}}, {TOKEN} }}"#);
        let config = checked(&GOOD.replace(r#""redis": {}"#, &token)).unwrap();
        let ages = config.token.unwrap().ages;
        assert_eq!((ages.min_ms, ages.max_ms), (1_000, 600_000));
    }

    const TOKEN: &str = r#""token": { "keys": [{ "secret": { "env": "SECRET" } }]"#;

    #[test]
    fn each_bound_is_itself_allowed() {
        let holds =
            |field: &str, least: u64, most: u64, to: &dyn Fn(u64) -> (&'static str, String)| {
                for (value, is_good) in [
                    (least, true),
                    (most, true),
                    (most + 1, false),
                    (least.wrapping_sub(1), false),
                ] {
                    let (from, to) = to(value);
                    let read = checked(&GOOD.replacen(from, &to, 1));
                    assert_eq!(read.is_ok(), is_good, "{field}: {value}");
                }
            };
        let added = |field: &'static str| {
            move |value: u64| {
                let to = format!(
                    r#""redis": {{}}, {}"#,
                    field.replace('#', &format!("{value}"))
                );
                (r#""redis": {}"#, to)
            }
        };
        holds("claim.ttl_ms", 1, 86_400_000, &|value| {
            (r#"{ "keys""#, format!(r#"{{ "ttl_ms": {value}, "keys""#))
        });
        holds(
            "poll_interval_ms",
            50,
            60_000,
            &added(r#""poll_interval_ms": #"#),
        );
        holds("retry_after_s", 1, 3_600, &added(r#""retry_after_s": #"#));
        holds(
            "status",
            200,
            599,
            &added(r#""static_page": { "status": # }"#),
        );
        holds("slots", 1, 65_536, &added(r#""limits": { "slots": # }"#));
        holds(
            "in_flight_max",
            1,
            1_000_000,
            &added(r#""overload": { "in_flight_max": # }"#),
        );
        holds(
            "max_age_ms",
            8,
            86_400_000,
            &added(
                r#""token": { "keys": [{ "secret": { "env": "SECRET" } }], "min_age_ms": 7, "max_age_ms": # }"#,
            ),
        );
        holds(
            "min_age_ms",
            0,
            60_000,
            &added(r#""token": { "keys": [{ "secret": { "env": "SECRET" } }], "min_age_ms": # }"#),
        );
        for (length, is_good) in [(0, true), (65_536, true), (65_537, false)] {
            let page = format!(
                r#""redis": {{}}, "static_page": {{ "body": "{}" }}"#,
                "x".repeat(length)
            );
            let read = checked(&GOOD.replacen(r#""redis": {}"#, &page, 1));
            assert_eq!(read.is_ok(), is_good, "{length}");
        }
    }

    #[test]
    fn each_of_eight_keys_has_a_place_in_the_ring_and_a_ninth_has_none() {
        let ring = |count: usize| {
            let key = |n| format!(r#"{{ "id": "k{n}", "secret": {{ "env": "SECRET" }} }}"#);
            let keys = (0..count).map(key).collect::<Vec<_>>().join(", ");
            checked(&GOOD.replace(r#"{ "secret": { "env": "SECRET" } }"#, &keys))
        };
        assert!(ring(8).unwrap().claim_keys.find("k7").is_some());
        assert_eq!(ring(9).unwrap_err().path, "claim.keys");
    }

    #[test]
    fn a_request_is_of_the_first_kind_whose_route_it_takes() {
        let more = format!(
            r#""redis": {{}}, {TOKEN} }}, "checkout_routes": [{{ "path": "/sales/{{sale}}/checkout" }}],
                "status_routes": [{{ "path": "/sales/{{sale}}" }}]"#
        );
        let config = checked(&GOOD.replace(r#""redis": {}"#, &more)).unwrap();
        let kind = |method: &str, path: &'static str| {
            config.route_kind(method.as_bytes(), path.as_bytes())
        };
        assert_eq!(kind("POST", "/sales/s/orders"), Some(RouteKind::Buy(b"s")));
        let checkout = kind("POST", "/sales/s/checkout");
        assert_eq!(checkout, Some(RouteKind::Checkout(b"s")));
        assert_eq!(kind("GET", "/sales/s"), Some(RouteKind::Status(b"s")));
        for (method, path) in [
            ("GET", "/sales/s/orders"),
            ("POST", "/sales/s"),
            ("GET", "/"),
        ] {
            assert_eq!(kind(method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn a_secret_in_the_configuration_itself_is_refused() {
        let error = refused(r#"{ "env": "SECRET" }"#, r#""hush""#);
        assert_eq!(error.path, "claim.keys[0].secret");
    }
}
