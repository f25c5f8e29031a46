//! The record of a link in Redis and in the cold store.
//!
//! ```text
//! <life_ms> <max_clicks> <json>
//! ```
//!
//! The two numbers are decimal and come first, so that `link_read.lua` need not parse the JSON. Both are 0 for a
//! disabled link, which is neither renewed nor counted. Its JSON contains their later values.
//!
//! For a link with a password, the cold store has a different record than Redis, gateways and edges: see
//! [`Link::for_gateways`].

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

pub use super::preview::{PREVIEW_LEN_MAX, Preview};
pub use super::rule::{
    COUNTRIES_MAX, Country, PARAMETER_LEN_MAX, PARAMETERS_MAX, Parameter, Platform, Rule,
};

/// Maximum length of a target, in bytes: browsers and intermediaries support it.
pub const TARGET_LEN_MAX: usize = 2_048;

/// Maximum length of a record, in bytes. It bounds a gateway's memory per link.
pub const RECORD_LEN_MAX: usize = 65_536;

/// Maximum apps of a link.
pub const APPS_MAX: usize = 8;

/// Maximum rules of a link.
pub const RULES_MAX: usize = 16;

/// Maximum platforms or languages of one rule.
pub const LISTED_MAX: usize = 16;

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The target: see [`is_target`].
    pub target: String,
    /// The language of the target, such as `zh-TW`; empty: unspecified. Clients that prefer it over the rules'
    /// languages get the target.
    pub language: String,
    /// The redirect status.
    pub status: RedirectStatus,
    /// Whether the query string of the request is appended to the target.
    pub pass_query: bool,
    /// Whether it is disabled.
    pub is_disabled: bool,
    /// The end time, in milliseconds since the Unix epoch; 0: never.
    pub expires_at_ms: u64,
    /// The version: 1, incremented by each edit.
    pub version: u32,
    /// Apps to open instead of a browser; the first match wins.
    pub apps: Vec<App>,
    /// Alternative targets; the first match wins.
    pub rules: Vec<Rule>,
    /// Lifetime after the last click, in milliseconds; 0: permanent.
    pub life_ms: u64,
    /// The click limit; 0: unlimited.
    pub max_clicks: u64,
    /// The target after the link's end: see [`is_target`]. Empty: the domain's page.
    pub ended_target: String,
    /// The preview for programs that show link previews.
    pub preview: Option<Preview>,
    /// Whether a signed click ID is added to the target: see [`click_tag`](super::click_tag).
    pub is_tracked: bool,
    /// The password; `None`: anyone may follow the link.
    pub guard: Option<PasswordGuard>,
}

/// The password of a link. Only the origin can check it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PasswordGuard(String);

impl PasswordGuard {
    /// Stores the password's hash, as the origin computes it.
    pub fn new(hash: impl Into<String>) -> Self {
        Self(hash.into())
    }

    /// The hash; `None` in the record for gateways.
    pub fn hash(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|hash| !hash.is_empty())
    }
}

impl fmt::Debug for PasswordGuard {
    /// Omits the hash: it must not appear in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordGuard")
    }
}

/// An app that a link opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The platform.
    #[serde(rename = "p")]
    pub platform: Platform,
    /// Its URL: with one of the app's schemes, or a universal link.
    #[serde(rename = "u")]
    pub url: String,
    /// The URL for clients without the app. Default: the link's target.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

/// Redirect status of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum RedirectStatus {
    /// 301: permanent; a browser may turn POST into GET.
    MovedPermanently,
    /// 302: temporary; a browser may turn POST into GET.
    #[default]
    Found,
    /// 307: temporary, with the same method.
    TemporaryRedirect,
    /// 308: permanent, with the same method.
    PermanentRedirect,
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for RedirectStatus {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::Integer)
            .description(Some("The HTTP status of a redirect."))
            .enum_values(Some([301, 302, 307, 308]))
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for RedirectStatus {}

/// The status is not a redirect status of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 301, 302, 307 or 308")]
pub struct NoRedirect;

/// Why a record is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Longer than [`RECORD_LEN_MAX`].
    #[error("is longer than {RECORD_LEN_MAX} bytes")]
    TooLong,
    /// Does not begin with two numbers and a text.
    #[error("does not start with two numbers")]
    Head,
    /// Invalid JSON.
    #[error("invalid link JSON: {0}")]
    Json(String),
    /// An address is not allowed in a `Location` header, or is longer than [`TARGET_LEN_MAX`].
    #[error("has an invalid target")]
    Target,
    /// More apps, rules, platforms or languages than a link may have.
    #[error("has too many fields")]
    Parts,
}

/// The JSON of a record, without default values.
#[derive(Serialize, Deserialize)]
struct Body {
    /// Empty in the gateways' record of a link with a password.
    #[serde(rename = "t", default, skip_serializing_if = "String::is_empty")]
    target: String,
    #[serde(rename = "l", default, skip_serializing_if = "String::is_empty")]
    language: String,
    #[serde(rename = "s", default, skip_serializing_if = "is_default")]
    status: RedirectStatus,
    #[serde(rename = "q", default, skip_serializing_if = "is_default")]
    pass_query: bool,
    #[serde(rename = "d", default, skip_serializing_if = "is_default")]
    is_disabled: bool,
    #[serde(rename = "e", default, skip_serializing_if = "is_default")]
    expires_at_ms: u64,
    #[serde(rename = "v", default = "first", skip_serializing_if = "is_first")]
    version: u32,
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    apps: Vec<App>,
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<Rule>,
    #[serde(rename = "x", default, skip_serializing_if = "String::is_empty")]
    ended_target: String,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    preview: Option<Preview>,
    #[serde(rename = "c", default, skip_serializing_if = "is_default")]
    is_tracked: bool,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    guard: Option<PasswordGuard>,
    /// For a disabled link only: the lifetime in the record's head when it is enabled.
    #[serde(rename = "hl", default, skip_serializing_if = "is_default")]
    held_life_ms: u64,
    #[serde(rename = "hm", default, skip_serializing_if = "is_default")]
    held_max_clicks: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn first() -> u32 {
    1
}

fn is_first(version: &u32) -> bool {
    *version == first()
}

impl Link {
    /// A plain link to `target`: status 302, permanent, without a click limit.
    pub fn to(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            language: String::new(),
            status: RedirectStatus::default(),
            pass_query: false,
            is_disabled: false,
            expires_at_ms: 0,
            version: first(),
            apps: Vec::new(),
            rules: Vec::new(),
            life_ms: 0,
            max_clicks: 0,
            ended_target: String::new(),
            preview: None,
            is_tracked: false,
            guard: None,
        }
    }

    /// The record for Redis, gateways and edges. For a link with a password, it omits everything that the password
    /// protects. It only contains what gateways need to call the origin, and the end time.
    pub fn for_gateways(&self) -> Vec<u8> {
        self.face().encode()
    }

    /// The link as gateways have it: see [`Link::for_gateways`].
    pub fn face(&self) -> Self {
        if self.guard.is_none() {
            return self.clone();
        }
        Self {
            is_disabled: self.is_disabled,
            expires_at_ms: self.expires_at_ms,
            version: self.version,
            life_ms: self.life_ms,
            max_clicks: self.max_clicks,
            ended_target: self.ended_target.clone(),
            guard: Some(PasswordGuard::default()),
            ..Self::to("")
        }
    }

    /// Whether this is the gateways' version of a link with a password.
    pub fn is_face(&self) -> bool {
        self.guard
            .as_ref()
            .is_some_and(|guard| guard.hash().is_none())
    }

    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let displayed = |number| if self.is_disabled { 0 } else { number };
        let held = |number| if self.is_disabled { number } else { 0 };
        let body = Body {
            target: self.target.clone(),
            language: self.language.clone(),
            status: self.status,
            pass_query: self.pass_query,
            is_disabled: self.is_disabled,
            expires_at_ms: self.expires_at_ms,
            version: self.version,
            apps: self.apps.clone(),
            rules: self.rules.clone(),
            ended_target: self.ended_target.clone(),
            preview: self.preview.clone(),
            is_tracked: self.is_tracked,
            guard: self.guard.clone(),
            held_life_ms: held(self.life_ms),
            held_max_clicks: held(self.max_clicks),
        };
        let head = format!(
            "{} {} ",
            displayed(self.life_ms),
            displayed(self.max_clicks)
        );
        let mut record = head.into_bytes();
        // Strings, numbers and lists always serialize.
        record.extend(serde_json::to_vec(&body).unwrap_or_default());
        record
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If the record is malformed, or an address is not allowed in a `Location` header.
    pub fn decode(record: &[u8]) -> Result<Self, RecordError> {
        if record.len() > RECORD_LEN_MAX {
            return Err(RecordError::TooLong);
        }
        let (life_ms, rest) = number(record).ok_or(RecordError::Head)?;
        let (max_clicks, json) = number(rest).ok_or(RecordError::Head)?;
        let body: Body =
            serde_json::from_slice(json).map_err(|error| RecordError::Json(format!("{error}")))?;
        let held = |displayed, held| if body.is_disabled { held } else { displayed };
        let link = Self {
            life_ms: held(life_ms, body.held_life_ms),
            max_clicks: held(max_clicks, body.held_max_clicks),
            target: body.target,
            language: body.language,
            status: body.status,
            pass_query: body.pass_query,
            is_disabled: body.is_disabled,
            expires_at_ms: body.expires_at_ms,
            version: body.version,
            apps: body.apps,
            rules: body.rules,
            ended_target: body.ended_target,
            preview: body.preview,
            is_tracked: body.is_tracked,
            guard: body.guard,
        };
        link.check()?;
        Ok(link)
    }

    /// Checks the limits of a record.
    ///
    /// # Errors
    /// If it has too many parts, or an invalid address.
    pub fn check(&self) -> Result<(), RecordError> {
        let is_small = self.apps.len() <= APPS_MAX
            && self.rules.len() <= RULES_MAX
            && self.rules.iter().all(Rule::is_small)
            && self.preview.as_ref().is_none_or(Preview::is_small);
        if !is_small {
            return Err(RecordError::Parts);
        }
        match self.addresses().all(is_target) {
            true => Ok(()),
            false => Err(RecordError::Target),
        }
    }

    /// Every address in the link.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let apps = self.apps.iter();
        let apps = apps.flat_map(|app| [Some(app.url.as_str()), app.fallback.as_deref()]);
        let rules = self.rules.iter().map(|rule| rule.target.as_str());
        let ended = (!self.ended_target.is_empty()).then_some(self.ended_target.as_str());
        let target = (!self.is_face()).then_some(self.target.as_str());
        target
            .into_iter()
            .chain(apps.flatten())
            .chain(rules)
            .chain(ended)
    }
}

/// Whether `address` is allowed in a `Location` header: 1 to [`TARGET_LEN_MAX`] visible ASCII bytes.
pub fn is_target(address: &str) -> bool {
    (1..=TARGET_LEN_MAX).contains(&address.len())
        && address.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The number before the first space, and the text after it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b' ')?;
    let (digits, rest) = bytes.split_at_checked(end)?;
    // `parse` accepts a sign; Lua's pattern does not.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = core::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest.get(1..)?))
}

impl RedirectStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [
        Self::MovedPermanently,
        Self::Found,
        Self::TemporaryRedirect,
        Self::PermanentRedirect,
    ];

    /// The status code.
    pub const fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }

    /// Whether clients may cache it.
    pub const fn is_permanent(self) -> bool {
        matches!(self, Self::MovedPermanently | Self::PermanentRedirect)
    }
}

impl TryFrom<u16> for RedirectStatus {
    type Error = NoRedirect;

    fn try_from(code: u16) -> Result<Self, NoRedirect> {
        let mut all = Self::ALL.into_iter();
        all.find(|status| status.code() == code).ok_or(NoRedirect)
    }
}

impl From<RedirectStatus> for u16 {
    fn from(status: RedirectStatus) -> Self {
        status.code()
    }
}

#[cfg(test)]
mod tests;
