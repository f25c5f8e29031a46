//! Where links may lead.
//!
//! A target is read as browsers read it (the WHATWG URL standard), and what is stored is what was read: no
//! browser sees another host in it than was checked here.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use unicode_security::RestrictionLevelDetection;
use unicode_security::confusable_detection::skeleton;
use unicode_security::restriction_level::RestrictionLevel;
use url::{Host, Url};

use super::domain::{Domain, Domains, Homographs, SCHEMES_NEVER};
use super::record::{Link, TARGET_LEN_MAX as LEN_MAX};

/// A target that links may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it is stored: ASCII, without spaces.
    pub url: String,
    /// What people should know of it.
    pub flag: Option<Flag>,
}

/// What is odd about a target that is taken all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Its host may be meant to look like another one's: a label mixes scripts that no language mixes, or
    /// has letters that look like ASCII's and are none.
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
    #[error("leads to a domain of short links itself")]
    OwnDomain,
    /// Its host is on the domain's list.
    #[error("leads to a denied host")]
    DeniedHost,
    /// Its host is an address, or a name, of a private network or of the machine itself, and the domain does not allow
    /// that.
    #[error("leads into a private network")]
    Private,
    /// Its host looks like another one's, and the domain refuses that.
    #[error("has a host whose letters look like those of another one")]
    Homograph,
}

impl TargetError {
    /// The word in answers and metrics.
    pub const fn word(&self) -> &'static str {
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
/// is not of the public internet (RFC 6890).
fn is_private(host: &Host<&str>, name: &str) -> bool {
    match host {
        Host::Domain(_) => {
            !name.contains('.')
                || PRIVATE_NAMES
                    .iter()
                    .any(|private| is_at_or_under(name, private))
        }
        Host::Ipv4(address) => is_private_v4(*address),
        Host::Ipv6(address) => match address.to_canonical() {
            IpAddr::V4(address) => is_private_v4(address),
            IpAddr::V6(address) => is_private_v6(address),
        },
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    // This network; shared address space of carriers; benchmarks; reserved.
    let is_special = a == 0 || (a, b & 0xc0) == (100, 64) || (a, b & 0xfe) == (198, 18) || a >= 240;
    is_special
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let embedded = match address.segments() {
        // NAT64 and 6to4 lead to the IPv4 address in them.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    };
    embedded.is_some_and(is_private_v4)
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || (first & 0xfe00) == 0xfc00
        || (first & 0xffc0) == 0xfe80
        || (first & 0xffc0) == 0xfec0
        || (first, second) == (0x100, 0)
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

fn is_label_homograph(label: &str) -> bool {
    if label.is_ascii() {
        // Such as an xn-- label that no browser shows in letters: it looks like what it is.
        return false;
    }
    // UTS #39: one script, or one of East Asia's with Latin.
    let is_mixed = !label.check_restriction_level(RestrictionLevel::HighlyRestrictive);
    is_mixed || skeleton(label).all(|c| c.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainsConfig;
    use alloc::format;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn domains(more: Value) -> Domains {
        let mut domain = json!({
            "id": "s", "hosts": ["s.example.com", "xn--mnchen-3ya.example"],
            "app_schemes": ["weixin", "openapp.jdmobile"], "denied_hosts": ["evil.example", "10.1.2.3", "fd00::1"],
        });
        for (name, value) in more.as_object().unwrap() {
            domain[name] = value.clone();
        }
        let other = json!({"id": "t", "hosts": ["t.example.com"]});
        let config: DomainsConfig =
            serde_json::from_value(json!({"domains": [domain, other]})).unwrap();
        config.checked().unwrap()
    }

    #[test]
    fn private_targets_are_refused_unless_they_are_allowed() {
        let private = [
            "http://localhost:8080/",
            "http://intranet/",
            "https://printer.local/",
            "http://metadata.google.internal/",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://10.1.2.4/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data",
            "http://100.64.0.1/",
            "http://0.0.0.0/",
            "http://[::1]/",
            "http://[fe80::1]/",
            "http://[fd12::1]/",
            "http://[::ffff:192.168.1.1]/",
            "http://[64:ff9b::a01:204]/",
        ];
        for text in private {
            assert_eq!(refused(text), "target_private", "{text}");
            let domains = domains(json!({"allow_private_targets": true}));
            assert!(
                check(text, &domains, domains.default_domain()).is_ok(),
                "{text}"
            );
        }
        for text in [
            "http://172.32.0.1/",
            "http://8.8.8.8/",
            "https://[2001:4860:4860::8888]/",
            "https://local.example/",
        ] {
            assert!(checked(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_fallback_of_an_intent_is_a_target_as_others_are() {
        let with = |fallback: &str| {
            format!("intent://x#Intent;scheme=openapp;S.browser_fallback_url={fallback};end")
        };
        let domains = domains(json!({"app_schemes": ["intent"]}));
        let check = |text: &str| check(text, &domains, domains.default_domain());
        let good = with("https%3A%2F%2Fgood.example%2F");
        assert_eq!(check(&good).unwrap().url, good);
        assert!(check("intent://x#Intent;scheme=openapp;end").is_ok());
        for (fallback, word) in [
            ("https%3A%2F%2Fevil.example%2F", "target_denied_host"),
            ("https://evil.example/", "target_denied_host"),
            ("javascript:alert(1)", "target_scheme"),
            ("http%3A%2F%2F10.0.0.1%2F", "target_private"),
            ("%ff", "target_not_url"),
            (
                "https%3A%2F%2Fgood.example;S.browser_fallback_url=https%3A%2F%2Fevil.example",
                "target_denied_host",
            ),
        ] {
            assert_eq!(
                check(&with(fallback)).unwrap_err().word(),
                word,
                "{fallback}"
            );
        }
        let flagged = check(&with("https%3A%2F%2Fxn--pple-43d.com%2F")).unwrap();
        assert_eq!(flagged.flag, Some(Flag::IdnHomograph));
    }

    fn checked(text: &str) -> Result<Target, TargetError> {
        let domains = domains(json!({}));
        check(text, &domains, domains.default_domain())
    }

    fn refused(text: &str) -> &'static str {
        match checked(text) {
            Err(error) => error.word(),
            Ok(target) => panic!("{text} was taken as {target:?}"),
        }
    }

    #[test]
    fn plain_targets_are_taken_as_they_are() {
        for text in [
            "https://example.com/",
            "http://example.com:8080/a/b?c=d&e=%20#f",
            "https://example.com/a@b?user=c@d",
            "https://[2001:db8::1]/x",
            "https://evil.example.com/",
            "https://notevil.example/",
            "weixin://dl/business/?t=abc",
            "openapp.jdmobile://virtual?params=%7B%7D",
        ] {
            let target = checked(text).unwrap();
            assert_eq!((target.url.as_str(), target.flag), (text, None));
        }
    }

    #[test]
    fn a_target_is_stored_as_browsers_read_it() {
        for (text, stored) in [
            ("HTTPS://EXAMPLE.com", "https://example.com/"),
            (
                "https://example.com/ä?ö#ü",
                "https://example.com/%C3%A4?%C3%B6#%C3%BC",
            ),
            ("https://example.com:443/a/../b", "https://example.com/b"),
            ("https://0x8.0x080808/", "https://8.8.8.8/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("https://例え.テスト/", "https://xn--r8jz45g.xn--zckzah/"),
        ] {
            assert_eq!(checked(text).unwrap().url, stored, "{text}");
        }
    }

    #[test]
    fn schemes_that_run_something_are_refused_whatever_their_spelling() {
        for text in [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,<script>alert(1)</script>",
            "vbscript:x",
            "file:///etc/passwd",
            "ftp://example.com/",
            "blob:https://example.com/x",
            "intent://x#Intent;end",
        ] {
            assert_eq!(refused(text), "target_scheme", "{text}");
        }
        // They cannot be configured, either; should they come in all the same, they stay refused.
        let mut domain = domains(json!({})).default_domain().clone();
        domain.app_schemes = ["javascript".into()].into();
        let error = check("javascript:alert(1)", &domains(json!({})), &domain);
        assert_eq!(error.unwrap_err().word(), "target_scheme");
    }

    #[test]
    fn userinfo_that_passes_for_a_host_is_refused() {
        for text in [
            "https://bank.example@evil.test/",
            "https://user:password@example.com/",
            "https://@example.com/",
            "https://bank.example%2F@evil.test/",
            "https://a@b@example.com/",
        ] {
            assert_eq!(refused(text), "target_userinfo", "{text}");
        }
    }

    #[test]
    fn control_characters_spaces_and_invisible_ones_are_refused() {
        for text in [
            "https://example.com/\r\nset-cookie: a=b",
            "https://example.com/\n",
            "java\tscript:alert(1)",
            " https://example.com/",
            "https://example.com/ a",
            "https://exam\u{0}ple.com/",
            "https://example.com/\u{7f}",
            "https://example.com/\u{85}",
            "https://exam\u{200b}ple.com/",
            "https://example.com/\u{202e}moc",
            "https://example.com/\u{feff}",
            "weixin://ä",
        ] {
            assert_eq!(refused(text), "target_control_character", "{text:?}");
        }
    }

    #[test]
    fn backslashes_are_refused() {
        for text in [
            "https:\\\\evil.test/",
            "https://example.com\\@evil.test/",
            "https://example.com/\\evil.test",
            "\\\\evil.test",
        ] {
            assert_eq!(refused(text), "target_backslash", "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_url_is_refused() {
        for text in [
            "",
            "example.com",
            "//example.com/",
            "/path",
            "https:",
            "https://",
            "https:///example.com",
            "https:example.com",
            "https:/example.com",
            "https://?a",
        ] {
            assert_eq!(refused(text), "target_not_url", "{text}");
        }
        for text in [
            "https://a..%00b/",
            "https://[::1/",
            "https://example.com:99999/",
            "https://a<b/",
        ] {
            assert_eq!(refused(text), "target_not_url", "{text}");
        }
    }

    #[test]
    fn loops_onto_any_own_domain_are_refused_in_every_spelling() {
        for text in [
            "https://s.example.com/abc",
            "http://S.EXAMPLE.COM:8080/",
            "https://s.example.com./x",
            "https://t.example.com/",
            "https://s%2eexample.com/",
            "https://ｓ.example.com/",
            "https://s。example.com/",
            "https://münchen.example/",
        ] {
            assert_eq!(refused(text), "target_own_domain", "{text}");
        }
    }

    #[test]
    fn denied_hosts_and_what_is_under_them_are_refused() {
        for text in [
            "https://evil.example/",
            "https://www.EVIL.example/a",
            "https://a.b.evil.example.:444/",
            "https://ev%69l.example/",
            "https://10.1.2.3/",
            "https://0xa.0x010203/",
            "https://[::ffff:10.1.2.3]/",
            "https://[::ffff:a01:203]/",
            "https://[FD00:0::1]:8443/",
        ] {
            assert_eq!(refused(text), "target_denied_host", "{text}");
        }
        // The list is the domain's own.
        let domains = domains(json!({}));
        let other = domains.by_id("t").unwrap();
        assert!(check("https://evil.example/", &domains, other).is_ok());
    }

    #[test]
    fn homographs_are_flagged_and_names_in_other_scripts_are_not() {
        for text in [
            // All Cyrillic: looks like "apple".
            "https://аррӏе.com/",
            // One Cyrillic letter in Latin.
            "https://pаypal.com/",
            // Greek omicron.
            "https://gοogle.com/",
            // The same, as it comes over the wire.
            "https://xn--80ak6aa92e.com/",
        ] {
            let target = checked(text).unwrap();
            assert_eq!(target.flag, Some(Flag::IdnHomograph), "{text}");
            assert_eq!(flag_of(&Link::to(&*target.url)), target.flag);
            assert!(target.url.starts_with("https://xn--"), "{target:?}");
        }
        for text in [
            "https://bücher.example/",
            "https://例え.テスト/",
            "https://中文网.example/",
            "https://qq腾讯.example/",
            "https://пример.испытание/",
            "https://παράδειγμα.example/",
        ] {
            assert_eq!(checked(text).unwrap().flag, None, "{text}");
        }
        let strict = domains(json!({"homographs": "refuse"}));
        let error = check("https://pаypal.com/", &strict, strict.default_domain());
        assert_eq!(error, Err(TargetError::Homograph));
    }

    #[test]
    fn a_target_is_as_long_as_browsers_and_proxies_are_sure_to_take() {
        let long = |len: usize| {
            let start = "https://example.com/";
            start.to_string() + &"a".repeat(len - start.len())
        };
        assert!(checked(&long(2048)).is_ok());
        assert_eq!(refused(&long(2049)), "target_too_long");
        // Short as given, too long as stored.
        let grows = "https://example.com/".to_string() + &"ä".repeat(600);
        assert_eq!(refused(&grows), "target_too_long");
    }

    #[test]
    fn a_page_leads_to_pages_only() {
        let domains = domains(json!({}));
        let page = |text| check_page(text, &domains, domains.default_domain());
        assert!(page("https://example.com/").is_ok());
        let app = page("weixin://dl").unwrap_err();
        assert_eq!(app.word(), "target_scheme");
    }

    proptest! {
        /// Whatever is taken fits into a header, and is taken again as it is.
        #[test]
        fn what_is_stored_is_visible_ascii_and_stays_as_it_is(
            text in "(https?|weixin|HTTPS)://[a-zäσж0-9.@:-]{0,12}[/?#]?\\PC{0,12}"
        ) {
            if let Ok(target) = checked(&text) {
                prop_assert!(target.url.bytes().all(|b| b.is_ascii_graphic()), "{:?}", target);
                prop_assert_eq!(checked(&target.url), Ok(target));
            }
        }
    }
}
