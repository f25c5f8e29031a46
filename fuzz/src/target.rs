//! Targets of links, as API clients request them, and the domains document that restricts them.

use url::{Host, Url};
use weir_link::domain::{Domain, Domains, DomainsConfig, HOSTS_MAX, LIFE_DAYS_MAX};
use weir_link::record::is_target;
use weir_link::target::{Flag, Target, TargetError, check, check_page};

use crate::config::check_refusal_text;

/// Domains with every kind of restriction on targets.
const DOMAINS: &str = r#"{"domains": [
    {"id": "s", "hosts": ["s.example.com", "xn--mnchen-3ya.example"], "app_schemes": ["weixin"],
     "denied_hosts": ["evil.example", "10.1.2.3", "::1"]},
    {"id": "t", "hosts": ["t.example.com"], "homographs": "refuse"}
]}"#;

/// A requested target of a link. Checks that an accepted one is a valid header value, redirects to the checked URL, and
/// is accepted again unchanged.
pub fn link_target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let config: DomainsConfig = serde_json::from_str(DOMAINS).expect("written above");
    let domains = config.checked().expect("as written above");
    for domain in domains.iter() {
        let checked = check(text, &domains, domain);
        let as_page = check_page(text, &domains, domain);
        match &checked {
            Ok(target) => check_taken(target, &domains, domain),
            Err(refusal) => check_refusal(refusal, text),
        }
        // A page is a target outside apps.
        let is_page = |target: &Target| scheme(&target.url) != "weixin";
        assert_eq!(as_page.ok(), checked.ok().filter(is_page));
    }
}

fn check_taken(target: &Target, domains: &Domains, domain: &Domain) {
    assert!(is_target(&target.url), "{target:?}");
    let again = check(&target.url, domains, domain);
    assert_eq!(again.as_ref(), Ok(target), "what is stored is taken");
    if scheme(&target.url) == "weixin" {
        assert!(domain.is_app_scheme("weixin"));
        return;
    }
    let url = Url::parse(&target.url).expect("it was read before");
    assert!(matches!(url.scheme(), "http" | "https"), "{url}");
    assert!(url.username().is_empty() && url.password().is_none());
    let host = match url.host().expect("a web page has a host") {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_canonical().to_string(),
    };
    assert!(domains.by_host(&host).is_none(), "{host}");
    for denied in &domain.denied_hosts {
        assert!(host != *denied && !host.ends_with(&format!(".{denied}")));
    }
    if target.flag == Some(Flag::IdnHomograph) {
        assert!(host.contains("xn--") && domain.id.as_str() == "s");
    }
}

fn check_refusal(refusal: &TargetError, text: &str) {
    assert!(refusal.label().starts_with("target_"));
    if let TargetError::Control { at } = refusal {
        assert!(text.is_char_boundary(*at) && *at < text.len());
    }
}

fn scheme(url: &str) -> String {
    let scheme = url.split(':').next().unwrap_or_default();
    scheme.to_ascii_lowercase()
}

/// The domains document. Checks that an accepted one is within its bounds, matches each of its hosts in any spelling,
/// and is accepted again in its published form. A refusal must name the field and the reason.
pub fn link_domains(data: &[u8]) {
    let Ok(written) = serde_json::from_slice::<DomainsConfig>(data) else {
        return;
    };
    let domains = match written.clone().checked() {
        Ok(domains) => domains,
        Err(refusal) => return check_refusal_text(&refusal.problem, &refusal.to_string()),
    };
    assert_eq!(domains.to_config(), written);
    assert_eq!(Some(domains.default_domain()), domains.iter().next());
    for domain in domains.iter() {
        assert_eq!(domains.by_id(domain.id.as_str()), Some(domain));
        assert!((1..=HOSTS_MAX).contains(&domain.hosts.len()));
        assert!(domain.life_days <= LIFE_DAYS_MAX);
        let mut lives = domain.life_days_by_length.values();
        assert!(lives.all(|days| *days <= LIFE_DAYS_MAX));
        for host in &domain.hosts {
            for spelt in [host.clone(), host.to_uppercase(), format!("{host}.:443")] {
                assert_eq!(domains.by_host(&spelt), Some(domain), "{spelt}");
            }
        }
    }
}
