//! Link domains with their defaults: a JSON document. The origin reads it from a file, checks it and publishes it in
//! Redis for gateways.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_base::FieldError;

use super::code::{Code, DomainId, Length};
use super::record::{RedirectStatus, is_target};
use super::spelling::CodeOptions;

/// Maximum domains.
pub const DOMAINS_MAX: usize = 100;

/// Maximum hosts of one domain.
pub const HOSTS_MAX: usize = 16;

/// Maximum app schemes, and maximum denied hosts, of one domain.
pub const LISTED_MAX: usize = 10_000;

/// Maximum size of a domain's page, in bytes: each VM of a gateway holds it in memory.
pub const PAGE_LEN_MAX: usize = 64 * 1024;

/// Maximum size of a file for apps, in bytes of JSON.
pub const APP_FILE_LEN_MAX: usize = 128 * 1024;

/// Maximum lifetime of a link without a visit, in days: ten years.
pub const LIFE_DAYS_MAX: u32 = 3_650;

/// Schemes that run their content or reach into the device. They are never allowed as targets, even if configured.
pub const SCHEMES_NEVER: [&str; 9] = [
    "javascript",
    "data",
    "vbscript",
    "file",
    "blob",
    "about",
    "filesystem",
    "view-source",
    "jar",
];

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// All link domains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkDomains))]
pub struct DomainsConfig {
    /// Increases with each change. In Redis it is a hash of the rest.
    #[serde(default)]
    pub version: u64,
    /// The domains in order; the first is the default.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub domains: Vec<Domain>,
}

/// A link domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkDomain))]
pub struct Domain {
    /// Short id, used in Redis keys. It cannot change while the domain has links.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[a-z0-9-]{1,16}$"))]
    pub id: DomainId,
    /// Hosts in lower case, without a port. New links use the first.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 16))]
    pub hosts: Vec<String>,
    /// Scheme of new links' URLs. Default: `https`.
    #[serde(default)]
    pub scheme: Scheme,
    /// The port of new links' URLs, if it is not the scheme's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, minimum = 1, maximum = 65535)
    )]
    pub port: Option<u16>,
    /// Length of generated codes. Default: 7.
    #[serde(default = "default_length")]
    #[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 5, maximum = 8))]
    pub length: Length,
    /// Options for codes.
    #[serde(default, skip_serializing_if = "CodeOptions::is_plain")]
    pub codes: CodeOptions,
    /// Days without a visit after which a link expires; 0: never. Default: 30.
    #[serde(default = "default_life_days")]
    #[cfg_attr(feature = "openapi", schema(maximum = 3650))]
    pub life_days: u32,
    /// The same by the length of generated codes, instead of `life_days`: `{"5": 10}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u32>, example = json!({"5": 10, "6": 30, "7": 30})))]
    pub life_days_by_length: BTreeMap<Length, u32>,
    /// Redirect status. Default: 302.
    #[serde(default)]
    pub status: RedirectStatus,
    /// Whether to append the visitor's query string to the target.
    #[serde(default)]
    pub pass_query: bool,
    /// HTML page for unknown codes. Default: a plain page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65536))]
    pub not_found_page: Option<String>,
    /// HTML page for expired links. Default: a plain page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65536))]
    pub gone_page: Option<String>,
    /// Redirect target for links that have expired or reached their click limit: an http or https URL. Default: the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ended_target: Option<String>,
    /// HTML page for failed lookups. Default: a plain page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65536))]
    pub unavailable_page: Option<String>,
    /// Redirect target for `/`: an http or https URL. Default: the page for unknown codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub home: Option<String>,
    /// Content of `/robots.txt`. Default: all crawlers are allowed, so that links have previews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65536))]
    pub robots: Option<String>,
    /// Whether targets may be in private networks. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_private_targets: bool,
    /// Additional schemes for targets and app links, besides http and https.
    #[serde(default)]
    pub app_schemes: Vec<String>,
    /// Denied target hosts, including their subdomains; IPv6 addresses without brackets.
    #[serde(default)]
    pub denied_hosts: Vec<String>,
    /// Handling of targets whose host imitates another one.
    #[serde(default)]
    pub homographs: Homographs,
    /// Content of `/.well-known/apple-app-site-association`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Option<Object>))]
    pub apple_app_site_association: Option<Value>,
    /// Content of `/.well-known/assetlinks.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, value_type = Option<Vec<Object>>))]
    pub assetlinks: Option<Value>,
}

/// The scheme of links' own URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkScheme))]
pub enum Scheme {
    /// Without TLS, for tests.
    Http,
    /// With TLS.
    #[default]
    Https,
}

/// Handling of targets whose host imitates another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LinkHomographs))]
pub enum Homographs {
    /// They are accepted with a flag in the answer.
    #[default]
    Flag,
    /// They are refused.
    Refuse,
}

/// Checked domains.
#[derive(Clone, Debug, PartialEq)]
pub struct Domains {
    version: u64,
    first: Domain,
    others: Vec<Domain>,
}

impl Scheme {
    /// The text in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Domain {
    /// Lifetime without a visit of a link with a custom code, in milliseconds; 0: permanent.
    pub fn life_ms(&self) -> u64 {
        u64::from(self.life_days).saturating_mul(DAY_MS)
    }

    /// Lifetime without a visit of a link with a generated code of this length, in milliseconds; 0: permanent.
    pub fn generated_life_ms(&self, length: Length) -> u64 {
        let days = self.life_days_by_length.get(&length);
        u64::from(days.copied().unwrap_or(self.life_days)).saturating_mul(DAY_MS)
    }

    /// The URL of a link of this domain.
    pub fn url(&self, code: &Code) -> String {
        let host = self.hosts.first().map_or("", String::as_str);
        let scheme = self.scheme.as_str();
        match self.port {
            Some(port) => format!("{scheme}://{host}:{port}/{}", self.codes.in_url(code)),
            None => format!("{scheme}://{host}/{}", self.codes.in_url(code)),
        }
    }

    /// Whether targets and app links may have this scheme (in lower case), besides http and https.
    pub fn is_app_scheme(&self, scheme: &str) -> bool {
        self.app_schemes.iter().any(|existing| existing == scheme)
    }
}

impl DomainsConfig {
    /// Checks the domains.
    ///
    /// # Errors
    /// If a field is out of bounds or contradicts another one.
    pub fn checked(self) -> Result<Domains, FieldError> {
        let refused = |problem| Err(at("domains", problem));
        if self.domains.len() > DOMAINS_MAX {
            return refused(format!("must have at most {DOMAINS_MAX} domains"));
        }
        let (mut ids, mut hosts) = (BTreeSet::new(), BTreeSet::new());
        for (n, domain) in self.domains.iter().enumerate() {
            let path = format!("domains[{n}]");
            check_domain(domain, &path)?;
            if !ids.insert(&domain.id) {
                return Err(at(
                    &format!("{path}.id"),
                    "is used by an earlier domain".into(),
                ));
            }
            for (m, host) in domain.hosts.iter().enumerate() {
                if !hosts.insert(host) {
                    let path = format!("{path}.hosts[{m}]");
                    return Err(at(
                        &path,
                        "is listed before: a host can have only one domain".into(),
                    ));
                }
            }
        }
        let version = self.version;
        let mut domains = self.domains.into_iter();
        let Some(first) = domains.next() else {
            return refused("needs at least one domain".into());
        };
        let others = domains.collect();
        Ok(Domains {
            version,
            first,
            others,
        })
    }
}

impl Domains {
    /// The version, which differs between documents.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The domain of links without an explicit domain.
    pub fn default_domain(&self) -> &Domain {
        &self.first
    }

    /// All domains in configured order.
    pub fn iter(&self) -> impl Iterator<Item = &Domain> {
        core::iter::once(&self.first).chain(&self.others)
    }

    /// The domain with this ID.
    pub fn by_id(&self, id: &str) -> Option<&Domain> {
        self.iter().find(|domain| domain.id.as_str() == id)
    }

    /// Parses `text` as a code under a domain, with that domain's options. A domain that is not configured has no
    /// options.
    pub fn read_code(&self, domain: &DomainId, text: &[u8]) -> Option<Code> {
        let domain = self.by_id(domain.as_str());
        let options = domain.map_or_else(CodeOptions::default, |domain| domain.codes);
        Code::new(options.read(text)?).ok()
    }

    /// The domain that serves `host`, the value of a `Host` header: in any case, with or without a port or a trailing
    /// dot.
    pub fn by_host(&self, host: &str) -> Option<&Domain> {
        let name = name_of(host);
        let is_name = |existing: &String| existing.eq_ignore_ascii_case(name);
        self.iter().find(|domain| domain.hosts.iter().any(is_name))
    }

    /// The longest lifetime that any domain gives links with generated codes of this length, in milliseconds; `None`:
    /// permanent.
    pub fn longest_life_ms(&self, length: Length) -> Option<u64> {
        let lives = self.iter().map(|domain| domain.generated_life_ms(length));
        lives
            .map(|ms| (ms > 0).then_some(ms))
            .try_fold(0, |longest, ms| Some(ms?.max(longest)))
    }

    /// The document to publish.
    pub fn to_config(&self) -> DomainsConfig {
        DomainsConfig {
            version: self.version,
            domains: self.iter().cloned().collect(),
        }
    }
}

/// A host without its port and trailing dot. An IPv6 address keeps its brackets.
fn name_of(host: &str) -> &str {
    let end_of_name = match host.rfind(']') {
        Some(end) => end.saturating_add(1),
        None => host.find(':').unwrap_or(host.len()),
    };
    let name = host.get(..end_of_name).unwrap_or(host);
    name.strip_suffix('.').unwrap_or(name)
}

fn at(path: &str, problem: String) -> FieldError {
    let path = path.into();
    FieldError { path, problem }
}

fn check_domain(domain: &Domain, path: &str) -> Result<(), FieldError> {
    let refused = |field: &str, problem: String| Err(at(&format!("{path}.{field}"), problem));
    if !(1..=HOSTS_MAX).contains(&domain.hosts.len()) {
        return refused("hosts", format!("needs 1 to {HOSTS_MAX} hosts"));
    }
    check_hosts(&domain.hosts, &format!("{path}.hosts"))?;
    check_denied(&domain.denied_hosts, &format!("{path}.denied_hosts"))?;
    check_schemes(&domain.app_schemes, &format!("{path}.app_schemes"))?;
    if domain.life_days > LIFE_DAYS_MAX {
        return refused(
            "life_days",
            format!("must be 0 (never expires) to {LIFE_DAYS_MAX}"),
        );
    }
    for (length, days) in &domain.life_days_by_length {
        if *days > LIFE_DAYS_MAX {
            let field = format!("life_days_by_length.{length}");
            return refused(
                &field,
                format!("must be 0 (never expires) to {LIFE_DAYS_MAX}"),
            );
        }
    }
    if domain.port == Some(0) {
        return refused("port", "is 1 to 65535".into());
    }
    let texts = [
        ("not_found_page", &domain.not_found_page),
        ("gone_page", &domain.gone_page),
        ("unavailable_page", &domain.unavailable_page),
        ("robots", &domain.robots),
    ];
    for (field, text) in texts {
        let len = text.as_ref().map_or(0, String::len);
        if len > PAGE_LEN_MAX {
            let problem = format!("has {len} bytes, the maximum is {PAGE_LEN_MAX}");
            return refused(field, problem);
        }
    }
    let addresses = [
        ("home", &domain.home),
        ("ended_target", &domain.ended_target),
    ];
    for (field, address) in addresses {
        if address.as_ref().is_some_and(|address| !is_home(address)) {
            return refused(field, "must be an http or https URL".into());
        }
    }
    check_app_files(domain, path)
}

fn is_home(address: &str) -> bool {
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    is_web && is_target(address)
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn check_app_files(domain: &Domain, path: &str) -> Result<(), FieldError> {
    let files = [
        (
            "apple_app_site_association",
            &domain.apple_app_site_association,
        ),
        ("assetlinks", &domain.assetlinks),
    ];
    for (field, file) in files {
        let Some(file) = file else { continue };
        let is_right = match field {
            "assetlinks" => file.is_array(),
            _ => file.is_object(),
        };
        if !is_right {
            let kind = if field == "assetlinks" {
                "array"
            } else {
                "object"
            };
            return Err(at(
                &format!("{path}.{field}"),
                format!("must be a JSON {kind}"),
            ));
        }
        let len = serde_json::to_vec(file).map_or(usize::MAX, |json| json.len());
        if len > APP_FILE_LEN_MAX {
            let problem = format!("must have at most {APP_FILE_LEN_MAX} bytes");
            return Err(at(&format!("{path}.{field}"), problem));
        }
    }
    Ok(())
}

fn check_hosts(hosts: &[String], path: &str) -> Result<(), FieldError> {
    let problem = "must be a host in lower case, without a port; IDN names as xn--…";
    check_each(hosts, path, is_host, problem)
}

fn check_denied(hosts: &[String], path: &str) -> Result<(), FieldError> {
    let problem = "must be a host in lower case, without a port; IDN names as xn--…, IPv6 addresses in their shortest form, without brackets";
    check_each(hosts, path, |host| is_host(host) || is_ipv6(host), problem)
}

fn check_each(
    hosts: &[String],
    path: &str,
    is_right: fn(&str) -> bool,
    problem: &str,
) -> Result<(), FieldError> {
    if hosts.len() > LISTED_MAX {
        return Err(at(path, format!("must have at most {LISTED_MAX} entries")));
    }
    match hosts.iter().position(|host| !is_right(host)) {
        Some(n) => Err(at(&format!("{path}[{n}]"), problem.into())),
        None => Ok(()),
    }
}

/// Whether `host` is an IPv6 address in canonical form. An IPv4-mapped address must be listed as IPv4.
fn is_ipv6(host: &str) -> bool {
    let address = host.parse::<Ipv6Addr>();
    address.is_ok_and(|address| address.to_ipv4_mapped().is_none() && address.to_string() == host)
}

fn is_host(host: &str) -> bool {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.len() <= 253 && host.bytes().all(allowed) && host.split('.').all(is_label)
}

fn check_schemes(schemes: &[String], path: &str) -> Result<(), FieldError> {
    if schemes.len() > LISTED_MAX {
        return Err(at(path, format!("must have at most {LISTED_MAX} entries")));
    }
    for (n, scheme) in schemes.iter().enumerate() {
        let refused = |problem: &str| Err(at(&format!("{path}[{n}]"), problem.into()));
        if !is_scheme(scheme) {
            return refused("must be a scheme in lower case, without a colon");
        }
        if SCHEMES_NEVER.contains(&scheme.as_str()) {
            return refused("is never allowed: it can run code or read the device");
        }
        if matches!(scheme.as_str(), "http" | "https") {
            return refused("is always allowed, and must not be listed");
        }
    }
    Ok(())
}

/// Whether `scheme` follows RFC 3986, section 3.1, in lower case, with at most 64 bytes.
fn is_scheme(scheme: &str) -> bool {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.');
    scheme.len() <= 64
        && scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(allowed)
}

fn default_length() -> Length {
    Length::ALL.get(2).copied().unwrap_or(Length::MAX)
}

fn default_life_days() -> u32 {
    30
}

#[cfg(test)]
mod tests;
