//! Checks the targets of links.
//!
//! A target is parsed as browsers parse it (the WHATWG URL standard), and the parsed form is stored. Browsers therefore
//! see the host that was checked.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use unicode_security::RestrictionLevelDetection;
use unicode_security::confusable_detection::skeleton;
use unicode_security::restriction_level::RestrictionLevel;
use url::{Host, Url};

use super::domain::{Domain, Domains, Homographs, SCHEMES_NEVER};
use super::record::{Link, TARGET_LEN_MAX as LEN_MAX};
use special::is_special;

mod special;

/// An accepted target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The stored URL: ASCII, without spaces.
    pub url: String,
    /// A warning.
    pub flag: Option<Flag>,
}

/// A warning about an accepted target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkFlag))]
pub enum Flag {
    /// Its host may imitate another one: a label mixes scripts, or has non-ASCII letters that look like ASCII.
    IdnHomograph,
}

/// Why a target was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// More bytes than [`TARGET_LEN_MAX`](LEN_MAX), as given or as stored.
    #[error("is longer than {LEN_MAX} bytes")]
    TooLong,
    /// A control character, a space, an invisible character, or one that changes the writing direction.
    #[error("has a space, a control or an invisible character at byte {at}")]
    Control {
        /// The position, from 0.
        at: usize,
    },
    /// Browsers read a backslash as a slash, others do not.
    #[error("has a backslash: write %5C")]
    Backslash,
    /// Not a URL, or a URL without a host.
    #[error("is not a URL such as https://example.com/path")]
    NotUrl,
    /// A scheme that this domain does not allow.
    #[error("has the scheme {scheme}, which is not allowed")]
    Scheme {
        /// In lower case, at most 64 bytes.
        scheme: String,
    },
    /// `user:password@` before the host: people mistake it for the host.
    #[error("has a user name before its host")]
    UserInfo,
    /// The target is on one of the link domains: a loop or a chain of links.
    #[error("leads to a short link domain")]
    OwnDomain,
    /// The host is on the domain's deny list.
    #[error("leads to a denied host")]
    DeniedHost,
    /// The host is an address or name of a private network or of the local machine, which the domain does not allow.
    #[error("leads into a private network")]
    Private,
    /// The host imitates another one, which the domain does not allow.
    #[error("has a host that imitates another one with similar letters")]
    Homograph,
}

impl TargetError {
    /// The label in responses and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::TooLong => "target_too_long",
            Self::Control { .. } => "target_control_character",
            Self::Backslash => "target_backslash",
            Self::NotUrl => "target_not_url",
            Self::Scheme { .. } => "target_scheme",
            Self::UserInfo => "target_userinfo",
            Self::OwnDomain => "target_own_domain",
            Self::DeniedHost => "target_denied_host",
            Self::Private => "target_private",
            Self::Homograph => "target_homograph",
        }
    }
}

/// Checks a link's target on `domain`: http, https, or one of the domain's app schemes.
///
/// # Errors
/// If the target is not allowed.
pub fn check(text: &str, domains: &Domains, domain: &Domain) -> Result<Target, TargetError> {
    check_text(text)?;
    let (scheme, rest) = text.split_once(':').ok_or(TargetError::NotUrl)?;
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => check_web(text, rest, domains, domain),
        _ => check_app(text, &scheme, domains, domain),
    }
}

/// Checks the target of a web page: like [`check`], but only http and https.
///
/// # Errors
/// If the target is not allowed.
pub fn check_page(text: &str, domains: &Domains, domain: &Domain) -> Result<Target, TargetError> {
    check_text(text)?;
    let (scheme, rest) = text.split_once(':').ok_or(TargetError::NotUrl)?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => check_web(text, rest, domains, domain),
        _ => Err(unknown_scheme(scheme)),
    }
}

/// The warning about a link's targets, including those of its rules and apps.
pub fn flag_of(link: &Link) -> Option<Flag> {
    link.addresses()
        .any(is_imitation)
        .then_some(Flag::IdnHomograph)
}

fn is_imitation(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    match url.scheme() {
        "http" | "https" => url.domain().is_some_and(is_homograph),
        "intent" => fallbacks(address).any(|fallback| is_imitation(&fallback)),
        _ => false,
    }
}

fn check_text(text: &str) -> Result<(), TargetError> {
    if text.len() > LEN_MAX {
        return Err(TargetError::TooLong);
    }
    if let Some(at) = text.find(|c: char| c.is_control() || c.is_whitespace() || is_unseen(c)) {
        return Err(TargetError::Control { at });
    }
    match text.contains('\\') {
        true => Err(TargetError::Backslash),
        false => Ok(()),
    }
}

/// Zero-width characters, marks and overrides of direction, and the byte order mark.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn unknown_scheme(scheme: &str) -> TargetError {
    let scheme = scheme.chars().take(64).collect();
    TargetError::Scheme { scheme }
}

/// Checks an app URL. Its format is mostly unknown, so it stays unchanged; it must be valid in a header. An `intent:`
/// URL opens `S.browser_fallback_url` on phones without the app, so that is checked, too.
fn check_app(
    text: &str,
    scheme: &str,
    domains: &Domains,
    domain: &Domain,
) -> Result<Target, TargetError> {
    if SCHEMES_NEVER.contains(&scheme) || !domain.is_app_scheme(scheme) {
        return Err(unknown_scheme(scheme));
    }
    if let Some(at) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
        return Err(TargetError::Control { at });
    }
    let mut flag = None;
    if scheme == "intent" {
        for fallback in fallbacks(text) {
            flag = flag.or(check_page(&fallback, domains, domain)?.flag);
        }
    }
    let url = text.to_string();
    Ok(Target { url, flag })
}

/// The fallback pages of an `intent:` URL: there should be one, and Android uses the last.
fn fallbacks(intent: &str) -> impl Iterator<Item = String> {
    const NAME: &str = "browser_fallback_url=";
    let parts = intent.split([';', '#']);
    parts.filter_map(|part| {
        let lower = part.to_ascii_lowercase();
        let name = lower.strip_prefix("s.").unwrap_or(&lower);
        let value = name.strip_prefix(NAME)?;
        let value = part.get(part.len() - value.len()..)?;
        let decoded = percent_decoded(value);
        // Invalid UTF-8 is not a URL, and is refused as one.
        Some(String::from_utf8(decoded).unwrap_or_default())
    })
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    decoded
}

fn check_web(
    text: &str,
    rest: &str,
    domains: &Domains,
    domain: &Domain,
) -> Result<Target, TargetError> {
    // Browsers accept a missing or a third slash, so the host would differ from what people read.
    let rest = rest.strip_prefix("//").ok_or(TargetError::NotUrl)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(TargetError::NotUrl);
    }
    if authority.contains('@') {
        return Err(TargetError::UserInfo);
    }
    let url = Url::parse(text).map_err(|_| TargetError::NotUrl)?;
    let host = url.host().ok_or(TargetError::NotUrl)?;
    let flag = check_host(&host, domains, domain)?;
    let url = String::from(url);
    if url.len() > LEN_MAX {
        return Err(TargetError::TooLong);
    }
    Ok(Target { url, flag })
}

fn check_host(
    host: &Host<&str>,
    domains: &Domains,
    domain: &Domain,
) -> Result<Option<Flag>, TargetError> {
    let name = match host {
        Host::Domain(name) => (*name).to_string(),
        Host::Ipv4(address) => address.to_string(),
        // ::ffff:10.1.2.3 connects to 10.1.2.3.
        Host::Ipv6(address) => address.to_canonical().to_string(),
    };
    let name = name.trim_end_matches('.');
    if domains.by_host(name).is_some() {
        return Err(TargetError::OwnDomain);
    }
    let is_denied = |denied: &String| is_at_or_under(name, denied);
    if domain.denied_hosts.iter().any(is_denied) {
        return Err(TargetError::DeniedHost);
    }
    if !domain.allow_private_targets && is_private(host, name) {
        return Err(TargetError::Private);
    }
    match (is_homograph(name), domain.homographs) {
        (false, _) => Ok(None),
        (true, Homographs::Flag) => Ok(Some(Flag::IdnHomograph)),
        (true, Homographs::Refuse) => Err(TargetError::Homograph),
    }
}

/// Names of the local machine or of hosts in a private network (RFC 6761, RFC 6762, RFC 8375, and cloud metadata
/// services).
const PRIVATE_NAMES: [&str; 7] = [
    "localhost",
    "local",
    "internal",
    "home.arpa",
    "localdomain",
    "intranet",
    "lan",
];

/// Whether the host is not on the public internet: a name without a dot, a name of a private network, or a private
/// address.
fn is_private(host: &Host<&str>, name: &str) -> bool {
    match host {
        Host::Domain(_) => {
            !name.contains('.')
                || PRIVATE_NAMES
                    .iter()
                    .any(|private| is_at_or_under(name, private))
        }
        Host::Ipv4(address) => is_special((*address).into()),
        Host::Ipv6(address) => is_special((*address).into()),
    }
}

fn is_at_or_under(name: &str, denied: &str) -> bool {
    let before = name.strip_suffix(denied);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Whether a label of this host, in its ASCII form, imitates another one.
fn is_homograph(name: &str) -> bool {
    if !name.split('.').any(|label| label.starts_with("xn--")) {
        return false;
    }
    let displayed = url::quirks::domain_to_unicode(name);
    displayed.split('.').any(is_label_homograph)
}

pub(crate) fn is_label_homograph(label: &str) -> bool {
    if label.is_ascii() {
        // For example an xn-- label that browsers do not decode: they show it unchanged.
        return false;
    }
    // UTS #39: one script, or one of East Asia's with Latin.
    let is_mixed = !label.check_restriction_level(RestrictionLevel::HighlyRestrictive);
    is_mixed || skeleton(label).all(|c| c.is_ascii())
}

#[cfg(test)]
mod tests;
