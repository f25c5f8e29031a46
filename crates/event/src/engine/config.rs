//! The configuration.
//!
//! ```json
//! {
//!   "keys": [
//!     { "name": "shop-web", "kind": "browser", "key": "wk_shop_web_1", "origins": ["https://shop.example"] },
//!     { "name": "erp", "kind": "server", "secret": { "env": "WEIR_EVENTS_KEY_ERP" } }
//!   ],
//!   "collect": {},
//!   "limits": { "per_key": { "rate": 1000, "per": "1s" }, "per_visitor": { "rate": 10, "per": "1s" } },
//!   "observe": { "routes": [{ "path": "/products/{sku}" }], "key": "shop-web" }
//! }
//! ```
//!
//! `collect`, `observe` or both are required. The other fields have defaults.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::consent::{Consent, Signal};
use crate::name::KeyName;
use crate::sample::Rate;
use crate::stamps::Kind;
use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::{Environment, SecretSource, header_name, within};
use weir_limit::engine::config::CheckedConfig as CheckedLimits;

pub use self::limits::LimitsConfig;
pub use self::observe::{CheckedObserve, ObserveConfig, OutboxConfig, RouteConfig};
use crate::engine::cors::Origins;

mod limits;
mod observe;

/// Maximum write keys.
const KEYS_MAX: u64 = 256;

/// Length of a write key, in bytes. A server's key is secret.
const KEY_LEN: core::ops::RangeInclusive<usize> = 8..=128;
const SECRET_LEN: core::ops::RangeInclusive<usize> = 16..=128;

/// More proxies than this are a typing error.
const HOPS_MAX: u64 = 16;

/// Event collection. `keys`, and `collect` or `observe`, are required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Write keys of senders, at most 256. The log shows their names.
    pub keys: Vec<KeyConfig>,
    /// Endpoints that receive events. Default: none.
    #[serde(default)]
    pub collect: Option<CollectConfig>,
    /// Requests that count as views. Default: none.
    #[serde(default)]
    pub observe: Option<ObserveConfig>,
    /// Rate limits. Default: none.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Header that names the signed-in user. Default: `x-user-id`. An authentication filter before this one must
    /// set it, so that clients cannot forge it. Removed from anonymous events.
    #[serde(default = "default_user_header")]
    pub user_header: String,
    /// Meaning of browser privacy signals.
    #[serde(default)]
    pub signals: SignalsConfig,
    /// As `trusted_hops` of the short link filter's `clicks`.
    #[serde(default)]
    pub trusted_hops: Option<usize>,
}

/// A write key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Name in the log and in limits: 1 to 64 of `a-z 0-9 _ . -`.
    pub name: KeyName,
    /// `browser` or `server`.
    pub kind: Kind,
    /// For `browser`: 8 to 128 visible characters; every visitor can read it.
    #[serde(default)]
    pub key: Option<String>,
    /// For `server`: 16 to 128 visible characters.
    #[serde(default)]
    pub secret: Option<SecretSource>,
    /// For `browser`: origins of pages that may send, such as `https://shop.example`, or `*` for all.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Ratio of visitors whose events are kept, 0 to 1. Default: 1.
    #[serde(default = "default_sample")]
    pub sample: f64,
    /// Consent of a person whose request states none. Default: `full`.
    #[serde(default = "default_consent")]
    pub consent: Consent,
}

/// Endpoints that receive events.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectConfig {
    /// Path for `POST` requests; must match the origin. Default: `/events`.
    pub path: String,
    /// Path of the tracking pixel. Default: `/events.gif`.
    pub pixel_path: String,
}

/// Browser privacy signals.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SignalsConfig {
    /// `Sec-GPC: 1`, Global Privacy Control. Default: `anonymise`.
    pub gpc: Signal,
    /// `DNT: 1`, deprecated in browsers. Default: `ignore`.
    pub dnt: Signal,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The write keys.
    pub keys: Vec<WriteKey>,
    /// The endpoints that receive events, if any.
    pub collect: Option<CollectConfig>,
    /// The requests that count as views, if any.
    pub observe: Option<CheckedObserve>,
    /// The rate limits.
    pub limits: CheckedLimits,
    /// The header with the signed-in user, in lower case.
    pub user_header: String,
    /// The effect of browser privacy signals.
    pub signals: SignalsConfig,
    /// The number of trusted proxies.
    pub trusted_hops: Option<usize>,
}

/// A checked write key.
#[derive(Clone, Debug)]
pub struct WriteKey {
    /// Its name.
    pub name: KeyName,
    /// The kind of sender.
    pub kind: Kind,
    /// The key itself.
    pub(crate) key: Vec<u8>,
    /// The origins of pages that may send.
    pub(crate) origins: Origins,
    /// The sample rate.
    pub sample: Rate,
    /// Consent of a person whose request states none.
    pub consent: Consent,
}

impl Config {
    /// Checks the bounds that the types do not express, and reads the secrets.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn checked(self, environment: Environment<'_>) -> Result<CheckedConfig, FieldError> {
        if self.collect.is_none() && self.observe.is_none() {
            let problem = "needs `collect` or `observe`: without both the filter does nothing";
            return Err(FieldError::new("", problem));
        }
        within("keys' length", self.keys.len() as u64, 1, KEYS_MAX)?;
        let hops = self.trusted_hops.unwrap_or(0) as u64;
        within("trusted_hops", hops, 0, HOPS_MAX)?;
        let keys = checked_keys(self.keys, environment)?;
        let user_header = header_name("user_header", &self.user_header)?;
        if let Some(collect) = &self.collect {
            collect.check()?;
        }
        let observe = self.observe.map(|observe| observe.checked(&keys));
        Ok(CheckedConfig {
            limits: self.limits.checked(&user_header, self.trusted_hops)?,
            observe: observe.transpose()?,
            collect: self.collect,
            keys,
            user_header,
            signals: self.signals,
            trusted_hops: self.trusted_hops,
        })
    }
}

fn checked_keys(
    configs: Vec<KeyConfig>,
    environment: Environment<'_>,
) -> Result<Vec<WriteKey>, FieldError> {
    let mut keys: Vec<WriteKey> = Vec::new();
    for (index, config) in configs.into_iter().enumerate() {
        let at = format!("keys[{index}]");
        let key = config.checked(&at, environment)?;
        if keys.iter().any(|existing| existing.name == key.name) {
            return Err(FieldError::new(format!("{at}.name"), "is there twice"));
        }
        if keys.iter().any(|existing| existing.key == key.key) {
            let problem = "has the same key as another entry";
            return Err(FieldError::new(at, problem));
        }
        keys.push(key);
    }
    Ok(keys)
}

impl KeyConfig {
    fn checked(self, at: &str, environment: Environment<'_>) -> Result<WriteKey, FieldError> {
        let field = |name: &str| format!("{at}.{name}");
        let origins = Origins::new(&self.origins, &field("origins"))?;
        let sample = Rate::new(self.sample)
            .ok_or_else(|| FieldError::new(field("sample"), "must be 0 to 1"))?;
        let key = match self.kind {
            Kind::Browser => self.browsers_key(&origins, &field)?,
            Kind::Server => self.servers_key(&field, environment)?,
        };
        Ok(WriteKey {
            name: self.name,
            kind: self.kind,
            key,
            origins,
            sample,
            consent: self.consent,
        })
    }

    fn browsers_key(
        &self,
        origins: &Origins,
        field: &dyn Fn(&str) -> String,
    ) -> Result<Vec<u8>, FieldError> {
        if self.secret.is_some() {
            let problem = "a browser's key is public: use `key`";
            return Err(FieldError::new(field("secret"), problem));
        }
        if origins.is_empty() {
            let problem = "must list the origins of pages that may send, such as https://shop.example, or be [\"*\"]";
            return Err(FieldError::new(field("origins"), problem));
        }
        let key = self.key.as_deref().unwrap_or_default();
        check_key(&field("key"), key.as_bytes(), KEY_LEN)
    }

    fn servers_key(
        &self,
        field: &dyn Fn(&str) -> String,
        environment: Environment<'_>,
    ) -> Result<Vec<u8>, FieldError> {
        if self.key.is_some() {
            let problem = "a server's key must stay secret: use `secret`";
            return Err(FieldError::new(field("key"), problem));
        }
        if !self.origins.is_empty() {
            let problem = "pages cannot use a server's key: remove `origins`";
            return Err(FieldError::new(field("origins"), problem));
        }
        let path = field("secret");
        let source = self.secret.as_ref().ok_or_else(|| {
            let problem = "is missing: a server's key comes from the environment";
            FieldError::new(&*path, problem)
        })?;
        check_key(&path, &source.read(&path, environment)?, SECRET_LEN)
    }
}

fn check_key(
    path: &str,
    key: &[u8],
    length: core::ops::RangeInclusive<usize>,
) -> Result<Vec<u8>, FieldError> {
    let is_visible = key.iter().all(u8::is_ascii_graphic);
    if is_visible && length.contains(&key.len()) {
        return Ok(key.to_vec());
    }
    let (min, max) = (length.start(), length.end());
    let problem = format!(
        "must be {min} to {max} visible ASCII characters, has {}",
        key.len()
    );
    Err(FieldError::new(path, problem))
}

impl CollectConfig {
    fn check(&self) -> Result<(), FieldError> {
        check_path("collect.path", &self.path)?;
        check_path("collect.pixel_path", &self.pixel_path)?;
        match self.path == self.pixel_path {
            false => Ok(()),
            true => Err(FieldError::new(
                "collect.pixel_path",
                "must differ from collect.path",
            )),
        }
    }
}

/// Checks a path.
fn check_path(at: &str, path: &str) -> Result<(), FieldError> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
    if path.starts_with('/') && path.bytes().all(is_plain) {
        return Ok(());
    }
    Err(FieldError::new(at, "must begin with / and have no query"))
}

impl Default for CollectConfig {
    fn default() -> Self {
        Self {
            path: "/events".into(),
            pixel_path: "/events.gif".into(),
        }
    }
}

impl Default for SignalsConfig {
    fn default() -> Self {
        Self {
            gpc: Signal::Anonymise,
            dnt: Signal::Ignore,
        }
    }
}

impl SignalsConfig {
    /// The maximum consent of a request with these signals.
    pub(crate) fn consent(self, has_gpc: bool, has_dnt: bool) -> Consent {
        let of = |is_there: bool, signal: Signal| match is_there {
            true => signal.consent(),
            false => Consent::Full,
        };
        of(has_gpc, self.gpc).and(of(has_dnt, self.dnt))
    }
}

fn default_user_header() -> String {
    "x-user-id".into()
}

fn default_sample() -> f64 {
    1.0
}

fn default_consent() -> Consent {
    Consent::Full
}

#[cfg(test)]
pub(crate) mod tests;
