//! Short links: their data in Redis, and requests of visitors.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use weir_base::key::{KeyRing, SigningKey};
use weir_link::answer::{Method, Reply, Visit, answer};
use weir_link::cache::{CacheLookup, Limits, LinkName, LinkReading, Memory, Source};
use weir_link::click::{BATCH_ROWS_MAX, MINUTE_MS, decode, encode};
use weir_link::click_buffer::{Click, ClickBuffer};
use weir_link::click_tag::{ClickTag, TAG_LEN_MAX};
use weir_link::domain::{Domain, DomainsConfig};
use weir_link::engine::config::Config;
use weir_link::engine::request::{Fields, Resource};
use weir_link::record::{App, Country, Link, Platform, RECORD_LEN_MAX, Rule, is_target};
use weir_link::spelling::CodeOptions;

use crate::config::{check_nothing_follows, check_refusal};

/// A link's record. Checks that a parsed one encodes to an equal record, that its targets are valid header values, and
/// that it redirects to them.
pub fn link_record(data: &[u8]) {
    let Ok(link) = Link::decode(data) else {
        return;
    };
    assert!(data.len() <= RECORD_LEN_MAX);
    assert_eq!(Link::decode(&link.encode()), Ok(link.clone()));
    assert!(link.addresses().all(is_target));
    for method in [Method::Get, Method::Head, Method::Other] {
        let visit = Visit {
            method,
            is_prefetch: false,
            query: b"a=\xff\r\n",
            user_agent: b"Mozilla/5.0 (iPhone) MicroMessenger/8",
            accept_language: b"zh-CN",
            country: Country::read(b"DE"),
            point: 49,
            click_tag: Some("1.s.abc"),
            now_ms: 1_700_000_000_000,
            left_ms: Some(link.life_ms),
        };
        let site = site();
        check_reply(&answer(&link, &visit).reply(&site, visit.accept_language));
    }
}

fn site() -> Domain {
    serde_json::from_str(r#"{"id":"s","hosts":["s.example"]}"#).expect("a domain")
}

/// Checks that no reply allows header injection, for any link and request.
fn check_reply(reply: &Reply<'_>) {
    assert!([200, 301, 302, 307, 308, 405, 410, 503].contains(&reply.status));
    for (name, value) in &reply.headers {
        let is_safe = value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic());
        assert!(is_safe && !value.is_empty(), "{name}: {value:?}");
    }
    assert!(reply.body.matches("<script>").count() <= 1);
}

/// A batch of clicks. Checks that a parsed one encodes to an equal batch.
pub fn click_batch(data: &[u8]) {
    let Ok(rows) = decode(data) else {
        return;
    };
    assert!(rows.len() <= BATCH_ROWS_MAX);
    assert!(
        rows.iter()
            .all(|row| row.clicks > 0 && row.minute_ms % MINUTE_MS == 0)
    );
    assert_eq!(decode(&encode(&rows)), Ok(rows));
}

/// The configuration of the filter. Checks that an accepted one is within its bounds, and that a refusal names the
/// field and the reason.
pub fn links_config(data: &[u8]) {
    let checked = weir_engine::config::parse::<Config>(data).and_then(Config::checked);
    let accepted = match checked {
        Ok(accepted) => accepted,
        Err(refusal) => return check_refusal(&refusal),
    };
    check_nothing_follows::<Config>(data);
    assert!(!accepted.redis.cluster.is_empty() && !accepted.origin.cluster.is_empty());
    assert!((1..=1_000_000).contains(&accepted.lookups.rate()));
    assert!((1..=60_000).contains(&accepted.origin.timeout_ms));
    assert!((50..=60_000).contains(&accepted.poll_interval_ms));
    assert!((1..=1_000).contains(&accepted.limits.renew_permille));
    assert!(accepted.limits.bytes_max <= 1 << 30 && accepted.limits.unknown_max <= 1_000_000);
    assert!(
        accepted
            .clicks
            .is_none_or(|clicks| (100..=60_000).contains(&clicks.flush_ms))
    );
}

/// A click, of seven lines: method, path, host, `User-Agent`, `Accept-Language`, `Referer`, address. Checks that the
/// code keeps its spelling, that the answer is valid, and that the click survives encoding as a row.
pub fn link_click(data: &[u8]) {
    let mut lines = data.splitn(7, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let fields = Fields {
        method: Method::read(line()),
        is_prefetch: false,
        path: line(),
        host: line(),
        user_agent: line(),
        accept_language: line(),
        referer: line(),
        forwarded_for: line(),
        country: None,
        point: 0,
        click_tag: None,
    };
    check_host(fields.host);
    check_spelling(&fields);
    let Resource::Link(name) = fields.resource(&site()) else {
        return;
    };
    let code = fields
        .split_path()
        .0
        .strip_prefix(b"/")
        .expect("a link's path");
    assert_eq!(name.as_bytes(), [b"s/", code].concat());
    let link = name.to_link().expect("a code");
    assert_eq!(LinkName::from(&link), name);
    let now_ms = 1_700_000_000_000;
    for link in [&plain(), &choosy()] {
        let answer = answer(link, &fields.visit(None, now_ms));
        check_reply(&answer.reply(&site(), fields.accept_language));
    }
    check_memory(&name, now_ms);
    check_row(&name, &fields, now_ms);
}

/// With all options for codes enabled, a path created from the code of another path resolves to the same link.
fn check_spelling(fields: &Fields<'_>) {
    let every = Domain {
        codes: CodeOptions {
            trailing_slash: true,
            ignore_case: true,
            unicode: true,
            segments: true,
        },
        ..site()
    };
    if let Resource::Link(name) = fields.resource(&every) {
        let link = name.to_link().expect("a code");
        let path = ["/", link.code.as_str()].concat();
        let again = Fields {
            path: path.as_bytes(),
            ..*fields
        };
        assert_eq!(again.resource(&every), Resource::Link(name));
    }
}

fn plain() -> Link {
    Link {
        pass_query: true,
        ..Link::to("https://t.example/a?b#c")
    }
}

fn choosy() -> Link {
    let app = App {
        platform: Platform::Mobile,
        url: "openapp://<\"'&>".into(),
        fallback: None,
    };
    let rule = Rule {
        platforms: vec![Platform::Desktop, Platform::Tablet],
        languages: vec!["zh".into(), "en".into()],
        target: "https://r.example/".into(),
        ..Rule::default()
    };
    Link {
        apps: vec![app],
        rules: vec![rule],
        ..plain()
    }
}

fn check_host(host: &[u8]) {
    let json = br#"{"domains":[{"id":"s","hosts":["s.example.com"]}]}"#;
    let config: DomainsConfig = serde_json::from_slice(json).expect("a document");
    let domains = config.checked().expect("good domains");
    if let Ok(host) = std::str::from_utf8(host)
        && domains.by_host(host).is_some()
    {
        assert!(host.to_ascii_lowercase().starts_with("s.example.com"));
    }
}

fn check_memory(name: &LinkName, now_ms: u64) {
    let limits = Limits {
        entries_max: 2,
        bytes_max: 10_000,
        unknown_max: 2,
        fresh_ms: 1_000,
        origin_fresh_ms: 1_000,
        unknown_ms: 100,
        renew_permille: 100,
    };
    let mut memory = Memory::new(limits, 1);
    memory.learn_unknown(name, now_ms);
    assert_eq!(memory.find(name, now_ms), CacheLookup::Unknown);
    let reading = LinkReading {
        link: plain(),
        is_used_up: false,
        left_ms: None,
        source: Source::Redis,
    };
    memory.learn(name, reading, now_ms);
    assert!(matches!(
        memory.find(name, now_ms),
        CacheLookup::Link { is_due: false, .. }
    ));
}

fn check_row(name: &LinkName, fields: &Fields<'_>, now_ms: u64) {
    let mut click_buffer = ClickBuffer::new("fuzz", 1);
    let click = Click {
        link: name,
        now_ms,
        address: fields.forwarded(0).unwrap_or_default(),
        user_agent: fields.user_agent,
        referer: fields.referer,
        accept_language: fields.accept_language,
    };
    click_buffer.count(&click);
    click_buffer.count(&click);
    click_buffer.close();
    let batch = click_buffer.send_next().expect("a batch");
    let rows = decode(&batch.payload).expect("a batch is read back");
    assert_eq!((rows.len(), rows[0].clicks, batch.clicks), (1, 2, 2));
    assert_eq!(rows[0].link, name.to_link().expect("a code"));
}

/// A signed click ID. Checks that a parsed one encodes to the same text with one of the keys.
pub fn click_tag(data: &[u8]) {
    let key = |id: &str, byte: u8| SigningKey::new(id, &[byte; 32]).expect("a good key");
    let ring = KeyRing::new(vec![key("k1", 7), key("k2", 8)]).expect("two keys");
    let Ok(tag) = ClickTag::read(&ring, data) else {
        return;
    };
    assert!(data.len() <= TAG_LEN_MAX);
    let text = std::str::from_utf8(data).expect("names are text");
    let by = |key: SigningKey| tag.sign(&key.into());
    // Hex digits of either case are the same ID.
    let is_same = |own: String| own.eq_ignore_ascii_case(text);
    assert!(
        is_same(by(key("k1", 7))) || is_same(by(key("k2", 8))),
        "{text}"
    );
}
