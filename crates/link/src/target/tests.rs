use super::*;
use crate::domain::DomainsConfig;
use alloc::format;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

/// The first and last address of each network, and their neighbours outside it.
#[test]
fn private_network_bounds_are_exact() {
    let private = [
        "0.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "198.18.0.0",
        "198.19.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[ff02::1]",
        "[fc00::1]",
        "[fdff::1]",
        "[fe80::1]",
        "[febf::1]",
        "[fec0::1]",
        "[feff::1]",
        "[100::1]",
        "[2002:a01:204::1]",
        "[2002:808:808::1]",
    ];
    for host in private {
        let text = format!("http://{host}/");
        assert_eq!(refused(&text), "target_private", "{text}");
    }
    let public = [
        "1.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "101.64.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "[fbff::1]",
        "[fe7f::1]",
        "[101::1]",
        "[100:1::1]",
    ];
    for host in public {
        let text = format!("http://{host}/");
        assert!(checked(&text).is_ok(), "{text}");
    }
}

/// IANA's registries of special-purpose addresses, entry by entry, as of November 2026.
const SPECIAL_NETWORKS: [&str; 53] = [
    "0.0.0.0/8",
    "0.0.0.0/32",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.0.0/29",
    "192.0.0.8/32",
    "192.0.0.9/32",
    "192.0.0.10/32",
    "192.0.0.170/32",
    "192.0.0.171/32",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.88.99.2/32",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:2::/48",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
];

#[test]
fn every_special_network_is_refused_over_its_whole_range() {
    for network in SPECIAL_NETWORKS {
        let (first, prefix) = network.split_once('/').unwrap();
        let prefix: u32 = prefix.parse().unwrap();
        let ends = match first.parse::<IpAddr>().unwrap() {
            IpAddr::V4(first) => {
                let last = first.to_bits() | u32::MAX.checked_shr(prefix).unwrap_or(0);
                [first.to_string(), Ipv4Addr::from_bits(last).to_string()]
            }
            IpAddr::V6(first) => {
                let last = first.to_bits() | u128::MAX.checked_shr(prefix).unwrap_or(0);
                let last = Ipv6Addr::from_bits(last);
                [format!("[{first}]"), format!("[{last}]")]
            }
        };
        for host in ends {
            let text = format!("https://{host}/");
            assert_eq!(refused(&text), "target_private", "{network}: {text}");
        }
    }
    // Writing a public IPv4 address as IPv6 does not make it acceptable.
    for host in ["[::8.8.8.8]", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]"] {
        assert_eq!(refused(&format!("https://{host}/")), "target_private");
    }
    // Neighbouring addresses are on the public internet.
    for host in [
        "192.0.1.0",
        "192.0.3.0",
        "192.31.195.255",
        "192.52.194.0",
        "192.88.98.255",
        "192.88.100.0",
        "192.175.49.0",
        "198.51.99.255",
        "203.0.114.0",
        "[2001:200::1]",
        "[2001:db9::1]",
        "[2003::1]",
        "[2620:4f:8001::1]",
        "[3ffe:ffff::1]",
        "[2606:4700::1111]",
    ] {
        let text = format!("https://{host}/");
        assert!(checked(&text).is_ok(), "{text}");
    }
}

#[test]
fn homograph_in_an_app_fallback_is_flagged() {
    let flag = |address: &str| flag_of(&Link::to(address));
    let imitation = "https://xn--pple-43d.com/";
    assert_eq!(flag(imitation), Some(Flag::IdnHomograph));
    let fallback = imitation.replace(':', "%3A").replace('/', "%2F");
    let intent = format!("intent://x#Intent;scheme=a;S.browser_fallback_url={fallback};end");
    assert_eq!(flag(&intent), Some(Flag::IdnHomograph));
    for plain in ["https://example.com/", "weixin://dl", "no address"] {
        assert_eq!(flag(plain), None, "{plain}");
    }
}

#[test]
fn intent_fallback_is_checked_like_any_target() {
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
            check(&with(fallback)).unwrap_err().label(),
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
        Err(error) => error.label(),
        Ok(target) => panic!("{text} was taken as {target:?}"),
    }
}

#[test]
fn plain_targets_are_accepted_unchanged() {
    for text in [
        "https://example.com/",
        "http://example.com:8080/a/b?c=d&e=%20#f",
        "https://example.com/a@b?user=c@d",
        "https://[2606:4700::1111]/x",
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
fn target_is_stored_as_browsers_parse_it() {
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
fn executable_schemes_are_refused_in_any_spelling() {
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
    // They cannot be configured, and stay refused even if they were.
    let mut domain = domains(json!({})).default_domain().clone();
    domain.app_schemes = ["javascript".into()].into();
    let error = check("javascript:alert(1)", &domains(json!({})), &domain);
    assert_eq!(error.unwrap_err().label(), "target_scheme");
}

#[test]
fn userinfo_that_imitates_a_host_is_refused() {
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
fn control_space_and_invisible_characters_are_refused() {
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
fn incomplete_target_url_is_refused() {
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
fn redirect_loops_to_own_domains_are_refused_in_any_spelling() {
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
fn denied_hosts_and_their_subdomains_are_refused() {
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
    // The list belongs to the domain.
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
        // The same in its wire form.
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
fn target_length_is_bounded_for_browsers_and_proxies() {
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
fn page_target_must_be_a_web_page() {
    let domains = domains(json!({}));
    let page = |text| check_page(text, &domains, domains.default_domain());
    assert!(page("https://example.com/").is_ok());
    let app = page("weixin://dl").unwrap_err();
    assert_eq!(app.label(), "target_scheme");
}

proptest! {
    /// Every accepted target is visible ASCII, and is accepted unchanged when checked again.
    #[test]
    fn accepted_target_is_visible_ascii_and_stays_unchanged(
        text in "(https?|weixin|HTTPS)://[a-zäσж0-9.@:-]{0,12}[/?#]?\\PC{0,12}"
    ) {
        if let Ok(target) = checked(&text) {
            prop_assert!(target.url.bytes().all(|b| b.is_ascii_graphic()), "{:?}", target);
            prop_assert_eq!(checked(&target.url), Ok(target));
        }
    }
}
