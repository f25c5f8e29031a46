//! Short links: their targets, for which clients, how often, and their response headers.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};
use weir_link::record::{App, Link, Platform, RedirectStatus, Rule};
use weir_link::redis::keys::{LinkKeys, link_changes, link_domains};

use super::{Ask, Draft, NOW_MS, POLL_INTERVAL_MS};
use crate::vector::{Content, Entry, Vector};

const ENGINE: &str = "shortlink-redirect";
const HOST: &str = "s.example.com";
pub(super) const LINK: &str = "s/aZ3k9Qx";
pub(super) const PATH: &str = "/aZ3k9Qx";
pub(super) const TARGET: &str = "https://target.example/page";

/// Clients, and their platforms in addition to `any`.
pub(super) const AGENTS: [(&str, &str, &[Platform]); 6] = [
    (
        "desktop",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
        &[Platform::Desktop],
    ),
    (
        "iphone",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
        &[Platform::Ios, Platform::Mobile],
    ),
    (
        "wechat",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 MicroMessenger/8.0.50(0x18003237) NetType/WIFI Language/zh_CN",
        &[Platform::Ios, Platform::Mobile, Platform::Wechat],
    ),
    (
        "ipad",
        "Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/119.0.0.0 Mobile/15E148 Safari/604.1",
        &[Platform::Ios, Platform::Tablet],
    ),
    (
        "android",
        "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36",
        &[Platform::Android, Platform::Mobile],
    ),
    (
        "android-tablet",
        "Mozilla/5.0 (Linux; Android 13; SM-X900) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
        &[Platform::Android, Platform::Tablet],
    ),
];
pub(super) const CRAWLER: &str =
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

pub(super) const PLATFORMS: [(&str, Platform); 7] = [
    ("ios", Platform::Ios),
    ("android", Platform::Android),
    ("wechat", Platform::Wechat),
    ("mobile", Platform::Mobile),
    ("tablet", Platform::Tablet),
    ("desktop", Platform::Desktop),
    ("any", Platform::Any),
];

pub(super) fn config() -> Value {
    json!({
        "redis": {},
        "origin": { "cluster": "origin" },
        "clicks": { "enabled": false },
        "poll_interval_ms": POLL_INTERVAL_MS,
    })
}

/// The domains document as the origin writes it: the version comes first, where gateways expect it.
fn document(version: u64, domain: &Value) -> String {
    format!(r#"{{"version":{version},"domains":[{domain}]}}"#)
}

/// A gateway with one domain.
pub(super) fn gateway(name: &str, config: Value, domain: Value) -> Draft {
    let mut one = json!({ "id": "s", "hosts": [HOST] });
    for (field, value) in domain.as_object().into_iter().flatten() {
        one[field] = value.clone();
    }
    let draft = Draft::new(format!("links/{name}"), ENGINE, config);
    let key = link_domains(&draft.prefix());
    draft.text(key, document(1, &one))
}

pub(super) fn record(link: &Link) -> String {
    crate::text::escape(&link.encode())
}

fn keys(draft: &Draft) -> LinkKeys {
    LinkKeys::new(&draft.prefix(), &LINK.parse().expect("a link"))
}

pub(super) fn with_link(draft: Draft, link: &Link) -> Draft {
    let key = keys(&draft).record();
    draft.stored(key, Entry::string(record(link)))
}

/// A gateway with only this link.
pub(super) fn link(name: &str, link: &Link) -> Draft {
    with_link(gateway(name, config(), json!({})), link)
}

pub(super) fn to(change: impl FnOnce(&mut Link)) -> Link {
    let mut link = Link::to(TARGET);
    change(&mut link);
    link
}

pub(super) fn visit(method: &str, path: &str) -> Ask {
    Ask::new(method, path).host(HOST)
}

pub(super) fn click() -> Ask {
    visit("GET", PATH)
}

pub(super) fn redirects_to(target: &str) -> String {
    format!("302 {target}")
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = statuses();
    drafts.extend(queries());
    drafts.extend(ends());
    drafts.extend(click_limits());
    drafts.extend(lives());
    drafts.extend(platforms());
    drafts.extend(languages());
    drafts.extend(super::link_targets::drafts());
    drafts.extend(apps());
    drafts.extend(hosts());
    drafts.extend(files());
    drafts.extend(super::link_codes::drafts());
    drafts.extend(super::link_lookups::drafts());
    drafts.extend(edits());
    drafts.extend(without_redis());
    drafts.into_iter().map(Draft::done).collect()
}

fn statuses() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for status in RedirectStatus::ALL {
        let code = status.code();
        for method in ["GET", "HEAD", "POST", "PUT"] {
            let keeps_method = matches!(code, 307 | 308);
            let expected = match method {
                "POST" | "PUT" if !keeps_method => "405".to_owned(),
                _ => format!("{code} {TARGET}"),
            };
            let name = format!("status/{code}-{}", method.to_lowercase());
            drafts.push(
                link(&name, &to(|link| link.status = status)).ask(visit(method, PATH), expected),
            );
        }
        // The client's cache time depends on the link's remaining time.
        let name = format!("status/{code}-ends-in-a-minute");
        let ends = to(|link| {
            link.status = status;
            link.expires_at_ms = NOW_MS + 60_000;
        });
        drafts.push(link(&name, &ends).ask(click(), format!("{code} {TARGET}")));
    }
    drafts
}

fn queries() -> Vec<Draft> {
    let of = |name: &str, target: &str, passes: bool, query: &str, location: &str| {
        let to = to(|link| {
            link.target = target.into();
            link.pass_query = passes;
        });
        link(&format!("query/{name}"), &to).ask(
            visit("GET", &format!("{PATH}{query}")),
            redirects_to(location),
        )
    };
    vec![
        of(
            "left-out",
            "https://t.example/",
            false,
            "?a=b",
            "https://t.example/",
        ),
        of(
            "passed",
            "https://t.example/",
            true,
            "?a=b",
            "https://t.example/?a=b",
        ),
        of(
            "joined",
            "https://t.example/?x=y",
            true,
            "?a=b",
            "https://t.example/?x=y&a=b",
        ),
        of(
            "behind-a-question-mark",
            "https://t.example/?",
            true,
            "?a=b",
            "https://t.example/?a=b",
        ),
        of(
            "before-a-fragment",
            "https://t.example/#f",
            true,
            "?a=b",
            "https://t.example/?a=b#f",
        ),
        of(
            "empty",
            "https://t.example/",
            true,
            "?",
            "https://t.example/",
        ),
        of(
            "two-question-marks",
            "https://t.example/",
            true,
            "?a=b?c",
            "https://t.example/?a=b?c",
        ),
        of(
            "with-bytes",
            "https://t.example/",
            true,
            "?a=\\xff",
            "https://t.example/?a=%FF",
        ),
    ]
}

fn ends() -> Vec<Draft> {
    let at = |name: &str, end_ms: u64, expected: &str| {
        link(
            &format!("end/{name}"),
            &to(|link| link.expires_at_ms = end_ms),
        )
        .ask(click(), expected)
    };
    let redirect = redirects_to(TARGET);
    vec![
        at("a-millisecond-left", NOW_MS + 1, &redirect),
        at("now", NOW_MS, "410"),
        at("long-ago", 1, "410"),
        link(
            "end/it-comes",
            &to(|link| link.expires_at_ms = NOW_MS + 1_000),
        )
        .ask(click(), redirect.clone())
        .after(999)
        .ask(click(), redirect.clone())
        .after(1)
        .ask(click(), "410"),
        link("end/disabled", &to(|link| link.is_disabled = true)).ask(click(), "410"),
        with_link(
            gateway(
                "end/a-page-of-the-domain",
                config(),
                json!({ "gone_page": "<p>gone" }),
            ),
            &to(|link| link.is_disabled = true),
        )
        .ask(click(), "410"),
    ]
}

/// Links with a click limit.
fn click_limits() -> Vec<Draft> {
    let redirect = redirects_to(TARGET);
    let of = |name: &str, max: u64| {
        link(
            &format!("click-limit/{name}"),
            &to(|link| link.max_clicks = max),
        )
    };
    let mut drafts = Vec::new();
    for max in [1_u64, 2, 3] {
        let mut draft = of(&format!("of-{max}"), max);
        for _ in 0..max {
            draft = draft.ask(click(), redirect.clone());
        }
        drafts.push(draft.ask(click(), "410").ask(click(), "410"));
    }
    let used = of("used-elsewhere", 3);
    let key = keys(&used).clicks();
    drafts.push(used.text(key, "3").ask(click(), "410"));
    drafts.extend([
        of("head-uses-none", 1)
            .ask(visit("HEAD", PATH), redirect.clone())
            .ask(click(), redirect.clone())
            .ask(click(), "410"),
        of("a-crawler-uses-none", 1)
            .ask(click().header("user-agent", CRAWLER), redirect.clone())
            .ask(click(), redirect.clone()),
        of("no-answer-before-the-click", 1)
            .ask(click().header("sec-purpose", "prefetch"), "503")
            .ask(click(), redirect.clone()),
    ]);
    drafts
}

/// A click renews a link's lifetime after a part of it has passed.
fn lives() -> Vec<Draft> {
    const LIFE_MS: u64 = 1_000_000;
    let of = |name: &str, left_ms: u64, ask: Ask| {
        let draft = link(&format!("life/{name}"), &Link::to(TARGET));
        let key = keys(&draft).record();
        let record = Entry {
            expires_at_ms: Some(NOW_MS + left_ms),
            ..Entry::string(record(&to(|link| link.life_ms = LIFE_MS)))
        };
        draft.stored(key, record).ask(ask, redirects_to(TARGET))
    };
    vec![
        of("fresh", LIFE_MS, click()),
        of("exactly-a-tenth-gone", LIFE_MS * 9 / 10, click()),
        of("more-than-a-tenth-gone", LIFE_MS * 9 / 10 - 1, click()),
        of("nearly-over", 1, click()),
        of("a-look-renews-nothing", 500_000, visit("HEAD", PATH)),
        of(
            "nor-does-a-crawler",
            500_000,
            click().header("user-agent", CRAWLER),
        ),
    ]
}

/// A rule for each platform, and clients of each kind.
fn platforms() -> Vec<Draft> {
    const THERE: &str = "https://rule.example/";
    let mut drafts = Vec::new();
    for (word, platform) in PLATFORMS {
        let rule = Rule {
            platforms: vec![platform],
            languages: vec![],
            target: THERE.into(),
            ..Rule::default()
        };
        let to = to(|link| link.rules = vec![rule]);
        for (agent, text, of) in AGENTS {
            let fits = platform == Platform::Any || of.contains(&platform);
            let expected = redirects_to(if fits { THERE } else { TARGET });
            let ask = click().header("user-agent", text);
            drafts.push(link(&format!("platform/{word}-{agent}"), &to).ask(ask, expected));
        }
    }
    drafts
}

fn languages() -> Vec<Draft> {
    let rule = |languages: &[&str], target: &str| Rule {
        platforms: vec![],
        languages: languages
            .iter()
            .map(|language| (*language).to_owned())
            .collect(),
        target: target.into(),
        ..Rule::default()
    };
    let to = to(|link| {
        link.language = "en".into();
        link.rules = vec![
            rule(&["de"], "https://de.example/"),
            rule(&["zh"], "https://zh.example/"),
            rule(&["zh-TW"], "https://tw.example/"),
            rule(&["fr", "it"], "https://romance.example/"),
        ];
    });
    let of = |(name, accepts, target): (&str, &str, &str)| {
        let ask = click().header("accept-language", accepts);
        link(&format!("language/{name}"), &to).ask(ask, redirects_to(target))
    };
    [
        ("german", "de", "https://de.example/"),
        ("swiss-german", "de-CH", "https://de.example/"),
        ("chinese", "zh", "https://zh.example/"),
        ("chinese-of-taiwan", "zh-TW", "https://tw.example/"),
        ("italian", "it", "https://romance.example/"),
        ("english", "en-GB", TARGET),
        ("what-nobody-offers", "ja", TARGET),
        ("english-before-german", "en, de;q=0.5", TARGET),
        (
            "german-before-english",
            "de, en;q=0.9",
            "https://de.example/",
        ),
        (
            "the-weight-counts",
            "de;q=0.4, fr;q=0.8",
            "https://romance.example/",
        ),
        ("in-capitals", "DE", "https://de.example/"),
        ("not-at-all", "de;q=0, en", TARGET),
        ("nonsense", ";;,=q,\\xff", TARGET),
        ("empty", "", TARGET),
    ]
    .map(of)
    .into()
}

/// A page opens apps; universal links open by themselves.
fn apps() -> Vec<Draft> {
    let app = |platform: Platform, url: &str, fallback: Option<&str>| App {
        platform,
        url: url.into(),
        fallback: fallback.map(Into::into),
    };
    let agent = |name: &str| {
        AGENTS
            .iter()
            .find(|(existing, ..)| *existing == name)
            .map_or("", |(_, text, _)| text)
    };
    let of = |name: &str, apps: Vec<App>, agent: &str, expected: &str| {
        let ask = click().header("user-agent", agent);
        link(&format!("app/{name}"), &to(|link| link.apps = apps)).ask(ask, expected)
    };
    let ios = || vec![app(Platform::Ios, "shop://item/1", None)];
    let universal = "https://app.example/item/1";
    let redirect = redirects_to(TARGET);
    vec![
        of("opened-on-an-iphone", ios(), agent("iphone"), "200"),
        of(
            "with-a-fallback",
            vec![app(
                Platform::Ios,
                "shop://item/1",
                Some("https://store.example/"),
            )],
            agent("iphone"),
            "200",
        ),
        of("not-on-a-desktop", ios(), agent("desktop"), &redirect),
        of(
            "not-for-a-crawler",
            vec![app(Platform::Any, "shop://item/1", None)],
            CRAWLER,
            &redirect,
        ),
        of("within-wechat", ios(), agent("wechat"), "200"),
        of(
            "universal",
            vec![app(Platform::Ios, universal, None)],
            agent("iphone"),
            &redirects_to(universal),
        ),
        of(
            "universal-with-a-fallback",
            vec![app(
                Platform::Ios,
                universal,
                Some("https://store.example/"),
            )],
            agent("iphone"),
            "200",
        ),
        of(
            "the-first-that-fits",
            vec![
                app(Platform::Android, "a://1", None),
                app(Platform::Mobile, "https://m.example/", None),
            ],
            agent("iphone"),
            &redirects_to("https://m.example/"),
        ),
        link("app/in-chinese", &to(|link| link.apps = ios())).ask(
            click()
                .header("user-agent", agent("iphone"))
                .header("accept-language", "zh-CN,zh;q=0.9"),
            "200",
        ),
        link("app/head-of-a-page", &to(|link| link.apps = ios())).ask(
            visit("HEAD", PATH).header("user-agent", agent("iphone")),
            "200",
        ),
        link(
            "app/characters-that-html-knows",
            &to(|link| link.apps = vec![app(Platform::Ios, "shop://a?b=%22&c='<>", None)]),
        )
        .ask(click().header("user-agent", agent("iphone")), "200"),
    ]
}

/// The served hosts; requests for other hosts continue.
fn hosts() -> Vec<Draft> {
    let of = |(name, host, is_ours): (&str, &str, bool)| {
        let hosts = json!({ "hosts": [HOST, "second.example"] });
        let expected = if is_ours {
            redirects_to(TARGET)
        } else {
            "goes on".into()
        };
        with_link(
            gateway(&format!("host/{name}"), config(), hosts),
            &Link::to(TARGET),
        )
        .ask(Ask::get(PATH).host(host), expected)
    };
    [
        ("the-first", HOST, true),
        ("the-second", "second.example", true),
        ("in-capitals", "S.Example.COM", true),
        ("with-a-port", "s.example.com:8443", true),
        ("with-a-dot", "s.example.com.", true),
        ("with-a-dot-and-a-port", "s.example.com.:80", true),
        ("another", "shop.example", false),
        ("one-above", "example.com", false),
        ("one-below", "a.s.example.com", false),
        ("an-address", "192.0.2.1", false),
        ("an-address-in-brackets", "[2001:db8::1]:80", false),
    ]
    .map(of)
    .into()
}

fn files() -> Vec<Draft> {
    let all = json!({
        "home": "https://home.example/",
        "robots": "User-agent: *\nDisallow: /\n",
        "apple_app_site_association": { "applinks": { "details": [] } },
        "assetlinks": [{ "relation": ["x"] }],
    });
    let of = |name: &str, domain: &Value, path: &str, expected: &str| {
        gateway(&format!("file/{name}"), config(), domain.clone()).ask(visit("GET", path), expected)
    };
    let nothing = json!({});
    let unknown =
        |draft: Draft, path: &str| draft.origin(path, 404, &[("x-weir-link", "unknown")], "");
    vec![
        of("home", &all, "/", "302 https://home.example/"),
        of("robots", &all, "/robots.txt", "200"),
        of(
            "apple",
            &all,
            "/.well-known/apple-app-site-association",
            "200",
        ),
        of(
            "apple-at-the-root",
            &all,
            "/apple-app-site-association",
            "200",
        ),
        of("android", &all, "/.well-known/assetlinks.json", "200"),
        of("icon", &all, "/favicon.ico", "204"),
        of("with-a-query", &all, "/robots.txt?x", "200"),
        of("no-home", &nothing, "/", "404"),
        of("robots-by-themselves", &nothing, "/robots.txt", "200"),
        of(
            "no-apple",
            &nothing,
            "/.well-known/apple-app-site-association",
            "404",
        ),
        of(
            "no-android",
            &nothing,
            "/.well-known/assetlinks.json",
            "404",
        ),
        of("no-link-at-all", &nothing, "/a/b", "404"),
        of("a-code-of-other-letters", &nothing, "/a$b", "404"),
        unknown(
            gateway(
                "file/a-page-of-the-domain",
                config(),
                json!({ "not_found_page": "<p>nothing of s" }),
            ),
            "/link-records/s/unknown",
        )
        .ask(visit("GET", "/unknown"), "404"),
    ]
}

/// A stream announces edits.
fn edits() -> Vec<Draft> {
    let mut quick = config();
    quick["poll_interval_ms"] = json!(50);
    let of = |name: &str| {
        with_link(
            gateway(&format!("edit/{name}"), quick.clone(), json!({})),
            &Link::to(TARGET),
        )
        .ask(click(), redirects_to(TARGET))
    };
    let reply = |draft: Draft| {
        let key = link_changes(&draft.prefix());
        let entry = (
            "1700000000500-0".to_owned(),
            vec!["l".to_owned(), LINK.to_owned()],
        );
        draft.stored(key, Content::Stream(vec![entry]))
    };
    let elsewhere = to(|link| link.target = "https://new.example/".into());
    let renamed = json!({ "id": "s", "hosts": ["new.example"], "home": "https://home.example/" });
    let domains = of("the-domain-has-another-host");
    let key = link_domains(&domains.prefix());
    vec![
        with_link(reply(of("another-target")), &elsewhere)
            .after_polls(1_000, 1)
            .ask(click(), redirects_to("https://new.example/")),
        with_link(of("not-told-of"), &elsewhere)
            .after_polls(1_000, 1)
            .ask(click(), redirects_to(TARGET)),
        with_link(reply(of("disabled")), &to(|link| link.is_disabled = true))
            .after_polls(1_000, 1)
            .ask(click(), "410"),
        domains
            .text(key, document(2, &renamed))
            .after_polls(1_000, 2)
            .ask(click(), "goes on")
            .ask(
                Ask::get("/").host("new.example"),
                "302 https://home.example/",
            ),
    ]
}

/// A gateway that cannot reach Redis has no domains, and lets all requests continue.
fn without_redis() -> Vec<Draft> {
    let mut nowhere = config();
    nowhere["redis"] = json!({ "cluster": "nowhere" });
    vec![Draft::new("links/no-redis/all-go-on", ENGINE, nowhere).ask(click(), "goes on")]
}
