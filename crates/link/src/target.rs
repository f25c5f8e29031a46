//! Where links may lead.
//!
//! A target is read as browsers read it (the WHATWG URL standard), and what is stored is what was read: no
//! browser sees another host in it than was checked here.

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

/// A target that links may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it is stored: ASCII, without spaces.
    pub url: String,
    /// What people should know of it.
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
    /// A control character, a space, or a character that shows nothing or turns the direction of writing.
    #[error("has a space, a control or an invisible character at byte {at}")]
    Control {
        /// Where, counted from 0.
        at: usize,
    },
    /// Browsers read a backslash as a slash, others do not.
    #[error("has a backslash: write %5C")]
    Backslash,
    /// No URL at all, or none with a host.
    #[error("is not a URL such as https://example.com/path")]
    NotUrl,
    /// A scheme that this domain does not allow.
    #[error("has the scheme {scheme}, which is not allowed")]
    Scheme {
        /// In lower case, at most 64 bytes of it.
        scheme: String,
    },
    /// `user:password@` before the host: people take it for the host.
    #[error("has a user name before its host")]
    UserInfo,
    /// It leads to one of these domains itself: a loop, or a chain of links.
    #[error("leads to a short link domain")]
    OwnDomain,
    /// Its host is on the domain's list.
    #[error("leads to a denied host")]
    DeniedHost,
    /// Its host is an address, or a name, of a private network or of the machine itself, and the domain does not allow
    /// that.
    #[error("leads into a private network")]
    Private,
    /// Its host looks like another one's, and the domain refuses that.
    #[error("has a host that imitates another one with similar letters")]
    Homograph,
}

impl TargetError {
    /// The word in answers and metrics.
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

/// Checks where a link of `domain` is to lead: by http or https, or by an app scheme of the domain's.
///
/// # Errors
/// Says what is wrong with it.
pub fn check(text: &str, domains: &Domains, domain: &Domain) -> Result<Target, TargetError> {
    check_text(text)?;
    let (scheme, rest) = text.split_once(':').ok_or(TargetError::NotUrl)?;
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => check_web(text, rest, domains, domain),
        _ => check_app(text, &scheme, domains, domain),
    }
}

/// Checks where a web page is to lead: as [`check`], by http or https only.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_page(text: &str, domains: &Domains, domain: &Domain) -> Result<Target, TargetError> {
    check_text(text)?;
    let (scheme, rest) = text.split_once(':').ok_or(TargetError::NotUrl)?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => check_web(text, rest, domains, domain),
        _ => Err(unknown_scheme(scheme)),
    }
}

/// What people should know of where a link leads, by any of its rules and apps, too.
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

/// Little is known of the rest, so it stays as it is: it must fit into a header. Of an `intent:` it is known that a phone
/// without the app goes to `S.browser_fallback_url`.
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

/// The fallback pages that an `intent:` names: there should be one, and Android takes the last.
fn fallbacks(intent: &str) -> impl Iterator<Item = String> {
    const NAME: &str = "browser_fallback_url=";
    let parts = intent.split([';', '#']);
    parts.filter_map(|part| {
        let lower = part.to_ascii_lowercase();
        let name = lower.strip_prefix("s.").unwrap_or(&lower);
        let value = name.strip_prefix(NAME)?;
        let value = part.get(part.len() - value.len()..)?;
        let decoded = percent_decoded(value);
        // What is no text is no URL, and refused as such.
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
    // Browsers forgive a missing or a third slash; whoever reads the text sees something else then.
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
        // ::ffff:10.1.2.3 leads to 10.1.2.3.
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

/// Names that stand for the machine itself, or for hosts of a private network (RFC 6761, RFC 6762, RFC 8375, and what
/// clouds call their metadata).
const PRIVATE_NAMES: [&str; 7] = [
    "localhost",
    "local",
    "internal",
    "home.arpa",
    "localdomain",
    "intranet",
    "lan",
];

/// Whether nobody outside can mean this host: a name without a dot, a name of a private network, or an address that
/// is not of the public internet.
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

/// Whether a label of this host, in its ASCII form, is one that people may take for another.
fn is_homograph(name: &str) -> bool {
    if !name.split('.').any(|label| label.starts_with("xn--")) {
        return false;
    }
    let shown = url::quirks::domain_to_unicode(name);
    shown.split('.').any(is_label_homograph)
}

pub(crate) fn is_label_homograph(label: &str) -> bool {
    if label.is_ascii() {
        // Such as an xn-- label that no browser shows in letters: it looks like what it is.
        return false;
    }
    // UTS #39: one script, or one of East Asia's with Latin.
    let is_mixed = !label.check_restriction_level(RestrictionLevel::HighlyRestrictive);
    is_mixed || skeleton(label).all(|c| c.is_ascii())
}

#[cfg(test)]
mod tests;
