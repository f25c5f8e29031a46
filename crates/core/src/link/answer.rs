//! What whoever clicks a link is answered, at gateways and at the origin alike.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::agent::{Agent, Device, Language};
use super::record::{App, Link, RedirectStatus, Rule, TARGET_LEN_MAX};

/// The longest query string that is passed on, in bytes; a longer one is left out.
pub const QUERY_LEN_MAX: usize = 4_096;

/// For how long at most a client may remember a permanent redirect, in seconds: so long an edit may go
/// unseen, and so long its clicks are not counted.
pub const MAX_AGE_S: u64 = 3_600;

/// A request for a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visit<'a> {
    /// What it asks for.
    pub method: Method,
    /// What stands behind the first `?` of its path, if anything.
    pub query: &'a [u8],
    /// Its `User-Agent`.
    pub user_agent: &'a [u8],
    /// Its `Accept-Language`.
    pub accept_language: &'a [u8],
    /// When it came, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// How long the link still lives if nobody clicks it, in milliseconds; `None` is for ever.
    pub left_ms: Option<u64>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// To follow the link: a click.
    #[default]
    Get,
    /// To hear where it leads: no click.
    Head,
    /// Anything else.
    Other,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The client goes elsewhere.
    Redirect {
        /// How.
        status: RedirectStatus,
        /// Where to.
        location: Cow<'a, str>,
        /// What of it may be remembered.
        cache: CacheControl,
    },
    /// A page that opens an app.
    App {
        /// The app's address.
        url: &'a str,
        /// Where those go who do not have it.
        fallback: Cow<'a, str>,
    },
    /// The link leads nowhere any more.
    Gone(Gone),
    /// A redirect would turn the request into a GET.
    NotAllowed,
}

/// Why a link leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was disabled.
    Disabled,
    /// Its end has come.
    Expired,
    /// All its clicks are used.
    UsedUp,
}

/// What of an answer may be remembered, by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheControl {
    /// Nothing: each click counts.
    NoStore,
    /// By the client, if it asks again each time.
    PrivateNoCache,
    /// By the client, for so many seconds.
    Private(u64),
    /// By anyone, for so many seconds.
    Public(u64),
}

/// An answer as it is sent. To `HEAD` it goes without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Names, in lower case, and values.
    pub headers: Vec<(&'static str, Cow<'a, str>)>,
    /// The body: HTML, or nothing.
    pub body: Cow<'a, str>,
}

impl Method {
    /// Reads a `:method`.
    pub fn read(method: &[u8]) -> Self {
        match method {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            _ => Self::Other,
        }
    }
}

impl Answer<'_> {
    /// Whether a GET that is answered so has followed the link: a click.
    pub fn leads_on(&self) -> bool {
        matches!(self, Self::Redirect { .. } | Self::App { .. })
    }
}

/// Decides what `visit` of `link` is answered. Whether it has clicks left is known elsewhere: see
/// [`Gone::UsedUp`].
pub fn answer<'a>(link: &'a Link, visit: &Visit<'_>) -> Answer<'a> {
    if link.is_disabled {
        return Answer::Gone(Gone::Disabled);
    }
    if link.expires_at_ms != 0 && visit.now_ms >= link.expires_at_ms {
        return Answer::Gone(Gone::Expired);
    }
    if visit.method == Method::Other && !keeps_method(link.status) {
        return Answer::NotAllowed;
    }
    if link.is_plain() {
        return redirect(link, &link.target, visit);
    }
    for_client(link, visit)
}

/// Whether the client must ask with its own method again.
fn keeps_method(status: RedirectStatus) -> bool {
    matches!(
        status,
        RedirectStatus::TemporaryRedirect | RedirectStatus::PermanentRedirect
    )
}

fn for_client<'a>(link: &'a Link, visit: &Visit<'_>) -> Answer<'a> {
    let agent = Agent::read(visit.user_agent);
    let language = Language::preferred(visit.accept_language).unwrap_or_default();
    let fits = |rule: &&Rule| rule.fits(agent, language);
    let rule = link.rules.iter().find(fits);
    let target = rule.map_or(&link.target, |rule| &rule.target);
    // A crawler that previews a link cannot open apps: it sees what a browser would.
    let app = match agent.device {
        Device::Bot => None,
        _ => link.apps.iter().find(|app| agent.is(app.platform)),
    };
    match app {
        Some(app) => wake(link, app, target, visit),
        None => redirect(link, target, visit),
    }
}

fn wake<'a>(link: &'a Link, app: &'a App, target: &'a str, visit: &Visit<'_>) -> Answer<'a> {
    let is_universal = app.url.starts_with("https:") || app.url.starts_with("http:");
    match &app.fallback {
        // Who has no app for a universal link is shown its page: it is its own fallback.
        None if is_universal => redirect(link, &app.url, visit),
        fallback => Answer::App {
            url: &app.url,
            fallback: with_query(link, fallback.as_deref().unwrap_or(target), visit),
        },
    }
}

fn redirect<'a>(link: &Link, target: &'a str, visit: &Visit<'_>) -> Answer<'a> {
    Answer::Redirect {
        status: link.status,
        location: with_query(link, target, visit),
        cache: cache_control(link, visit),
    }
}

fn cache_control(link: &Link, visit: &Visit<'_>) -> CacheControl {
    if link.max_clicks > 0 {
        return CacheControl::NoStore;
    }
    if !link.status.is_permanent() {
        return CacheControl::PrivateNoCache;
    }
    let until_end_ms = match link.expires_at_ms {
        0 => u64::MAX,
        end_ms => end_ms.saturating_sub(visit.now_ms),
    };
    let left_ms = visit.left_ms.unwrap_or(u64::MAX).min(until_end_ms);
    let max_age_s = MAX_AGE_S.min(left_ms / 1_000);
    match link.is_plain() {
        true => CacheControl::Public(max_age_s),
        // Another client is answered otherwise.
        false => CacheControl::Private(max_age_s),
    }
}

/// `target` with the request's query string, if the link passes it on.
fn with_query<'a>(link: &Link, target: &'a str, visit: &Visit<'_>) -> Cow<'a, str> {
    let query = visit.query;
    if !link.pass_query || query.is_empty() || query.len() > QUERY_LEN_MAX {
        return Cow::Borrowed(target);
    }
    let (page, fragment) = match target.find('#') {
        Some(at) => target.split_at_checked(at).unwrap_or((target, "")),
        None => (target, ""),
    };
    let joint = match page {
        page if page.ends_with(['?', '&']) => "",
        page if page.contains('?') => "&",
        _ => "?",
    };
    let mut location = String::with_capacity(TARGET_LEN_MAX.min(target.len()) + query.len() + 1);
    location.push_str(page);
    location.push_str(joint);
    query
        .iter()
        .for_each(|byte| push_visible(&mut location, *byte));
    location.push_str(fragment);
    Cow::Owned(location)
}

/// What cannot stand in a header, or would end the query string, is percent-encoded.
fn push_visible(location: &mut String, byte: u8) {
    match byte {
        b'#' => location.push_str("%23"),
        byte if byte.is_ascii_graphic() => location.push(char::from(byte)),
        byte => location.push_str(&format!("%{byte:02X}")),
    }
}

impl Link {
    /// Whether all clients are sent to the same place.
    pub fn is_plain(&self) -> bool {
        self.apps.is_empty() && self.rules.is_empty()
    }
}

impl Rule {
    fn fits(&self, agent: Agent, language: Language) -> bool {
        let is_one = |listed: &&String| listed.eq_ignore_ascii_case(language.as_str());
        let platforms = &self.platforms;
        let languages = &self.languages;
        (platforms.is_empty() || platforms.iter().any(|platform| agent.is(*platform)))
            && (languages.is_empty() || languages.iter().any(|listed| is_one(&listed)))
    }
}

impl Gone {
    /// Its word, in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::UsedUp => "used_up",
        }
    }
}

impl CacheControl {
    /// The value of `Cache-Control`.
    pub fn value(self) -> Cow<'static, str> {
        match self {
            Self::NoStore => "no-store".into(),
            Self::PrivateNoCache => "private, no-cache".into(),
            Self::Private(seconds) => format!("private, max-age={seconds}").into(),
            Self::Public(seconds) => format!("public, max-age={seconds}").into(),
        }
    }
}

/// The script of the page that opens an app: the same for all, so that its hash can be told to browsers.
const APP_SCRIPT: &str = include_str!("app_page.js");

/// Nothing may run in that page but its script, and nothing may be loaded.
const APP_POLICY: &str = "default-src 'none'; script-src 'sha256-bCv0N+l3h64QMjsEfM8QPaITpKkVaVhGRggwoqBTKDY='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Of pages without a script.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// What unknown links are answered if their domain has no page of its own.
const UNKNOWN_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>No such link</title><h1>No such link</h1><p>It may have been mistyped, or have ended.</p>";

const GONE_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>This link has ended</title><h1>This link has ended</h1>";

impl<'a> Answer<'a> {
    /// As it is sent.
    pub fn reply(self) -> Reply<'a> {
        match self {
            Self::Redirect {
                status,
                location,
                cache,
            } => Reply {
                status: status.code(),
                headers: Vec::from([("location", location), ("cache-control", cache.value())]),
                body: Cow::Borrowed(""),
            },
            Self::App { url, fallback } => app_page(url, &fallback),
            Self::Gone(_) => page(410, GONE_PAGE, PAGE_POLICY, "no-store"),
            Self::NotAllowed => Reply {
                status: 405,
                headers: Vec::from([
                    ("allow", Cow::Borrowed("GET, HEAD")),
                    ("cache-control", Cow::Borrowed("no-store")),
                ]),
                body: Cow::Borrowed(""),
            },
        }
    }
}

/// The answer to a link that does not exist: its domain's page, if it has one.
pub fn unknown(domains_page: Option<&str>) -> Reply<'_> {
    let page_of_domain = domains_page.unwrap_or(UNKNOWN_PAGE);
    page(404, page_of_domain, PAGE_POLICY, "no-store")
}

fn page<'a>(
    status: u16,
    body: impl Into<Cow<'a, str>>,
    policy: &'static str,
    cache: &'static str,
) -> Reply<'a> {
    let headers = [
        ("content-type", HTML),
        ("cache-control", cache),
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
    ];
    Reply {
        status,
        headers: headers
            .map(|(name, value)| (name, Cow::Borrowed(value)))
            .into(),
        body: body.into(),
    }
}

fn app_page(url: &str, fallback: &str) -> Reply<'static> {
    let (url, fallback) = (escaped(url), escaped(fallback));
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Opening the app</title>\
         <p><a id=\"app\" href=\"{url}\">Open in the app</a></p>\
         <p><a id=\"web\" href=\"{fallback}\">Continue in the browser</a></p>\
         <script>{APP_SCRIPT}</script>"
    );
    page(200, body, APP_POLICY, "no-store")
}

/// Text for an attribute in double quotes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::record::Platform;
    use alloc::vec;
    use base64::Engine;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    const IPHONE: &[u8] = b"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148";

    fn link() -> Link {
        Link::to("https://t.example/")
    }

    fn location(link: &Link, visit: &Visit<'_>) -> String {
        match answer(link, visit) {
            Answer::Redirect { location, .. } => location.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn cache(link: &Link, visit: &Visit<'_>) -> String {
        let reply = answer(link, visit).reply();
        let mut headers = reply.headers.into_iter();
        let found = headers.find(|(name, _)| *name == "cache-control");
        found.unwrap().1.into_owned()
    }

    #[test]
    fn a_plain_link_is_a_redirect_and_nothing_is_copied() {
        let link = link();
        let answer = answer(&link, &Visit::default());
        assert!(matches!(
            &answer,
            Answer::Redirect {
                location: Cow::Borrowed(_),
                ..
            }
        ));
        let reply = answer.reply();
        assert_eq!((reply.status, reply.body.len()), (302, 0));
        assert_eq!(reply.headers[0], ("location", "https://t.example/".into()));
    }

    #[test]
    fn what_may_be_remembered_ends_with_the_link() {
        let visit = Visit {
            now_ms: 1_000,
            ..Visit::default()
        };
        let with = |status, max_clicks, expires_at_ms| Link {
            status,
            max_clicks,
            expires_at_ms,
            ..link()
        };
        use RedirectStatus::{Found, MovedPermanently, PermanentRedirect, TemporaryRedirect};
        assert_eq!(cache(&with(Found, 0, 0), &visit), "private, no-cache");
        assert_eq!(
            cache(&with(TemporaryRedirect, 0, 0), &visit),
            "private, no-cache"
        );
        assert_eq!(
            cache(&with(MovedPermanently, 0, 0), &visit),
            "public, max-age=3600"
        );
        assert_eq!(
            cache(&with(PermanentRedirect, 0, 61_999), &visit),
            "public, max-age=60"
        );
        assert_eq!(cache(&with(PermanentRedirect, 1, 0), &visit), "no-store");
        let dying = Visit {
            left_ms: Some(5_500),
            ..visit
        };
        assert_eq!(
            cache(&with(MovedPermanently, 0, 0), &dying),
            "public, max-age=5"
        );
        let ruled = Link {
            rules: vec![Rule {
                platforms: vec![],
                languages: vec![],
                target: "a:b".into(),
            }],
            ..with(MovedPermanently, 0, 0)
        };
        assert_eq!(cache(&ruled, &visit), "private, max-age=3600");
    }

    #[test]
    fn an_ended_link_is_gone() {
        let at = |now_ms| Visit {
            now_ms,
            ..Visit::default()
        };
        let ending = Link {
            expires_at_ms: 10,
            ..link()
        };
        assert!(answer(&ending, &at(9)).leads_on());
        assert_eq!(answer(&ending, &at(10)), Answer::Gone(Gone::Expired));
        let disabled = Link {
            is_disabled: true,
            ..link()
        };
        assert_eq!(answer(&disabled, &at(9)), Answer::Gone(Gone::Disabled));
        assert_eq!(answer(&disabled, &at(9)).reply().status, 410);
    }

    #[test]
    fn only_statuses_that_keep_the_method_redirect_a_post() {
        let post = Visit {
            method: Method::read(b"POST"),
            ..Visit::default()
        };
        for status in RedirectStatus::ALL {
            let link = Link { status, ..link() };
            let is_kept = status.code() >= 307;
            assert_eq!(answer(&link, &post).leads_on(), is_kept, "{status:?}");
        }
        assert_eq!(Answer::NotAllowed.reply().status, 405);
    }

    #[test]
    fn a_query_string_goes_in_front_of_the_fragment() {
        let check = |target: &str, query: &[u8], expected: &str| {
            let link = Link {
                pass_query: true,
                ..Link::to(target)
            };
            let visit = Visit {
                query,
                ..Visit::default()
            };
            assert_eq!(location(&link, &visit), expected);
        };
        check("https://t.example/a", b"x=1", "https://t.example/a?x=1");
        check("https://t.example/a?y", b"x=1", "https://t.example/a?y&x=1");
        check("https://t.example/a?", b"x=1", "https://t.example/a?x=1");
        check("https://t.example/a?y&", b"x", "https://t.example/a?y&x");
        check(
            "https://t.example/a#f?g",
            b"x=1",
            "https://t.example/a?x=1#f?g",
        );
        check("https://t.example/a", b"", "https://t.example/a");
        check(
            "https://t.example/a",
            b"\xff \r\n#\"",
            "https://t.example/a?%FF%20%0D%0A%23\"",
        );
        check(
            "https://t.example/a",
            &[b'x'; QUERY_LEN_MAX + 1],
            "https://t.example/a",
        );
        let visit = Visit {
            query: b"x=1",
            ..Visit::default()
        };
        assert_eq!(location(&link(), &visit), "https://t.example/");
    }

    #[test]
    fn the_first_rule_that_fits_chooses_the_target() {
        let rule = |platforms: &[Platform], languages: &[&str], target: &str| Rule {
            platforms: platforms.to_vec(),
            languages: languages
                .iter()
                .map(|language| String::from(*language))
                .collect(),
            target: target.into(),
        };
        let rules = vec![
            rule(&[Platform::Ios], &["zh"], "a:ios-zh"),
            rule(&[Platform::Android, Platform::Ios], &[], "a:phone"),
            rule(&[], &["ZH", "ja"], "a:east"),
        ];
        let link = Link { rules, ..link() };
        let check = |user_agent, accept_language, expected: &str| {
            let visit = Visit {
                user_agent,
                accept_language,
                ..Visit::default()
            };
            assert_eq!(location(&link, &visit), expected);
        };
        check(IPHONE, b"zh-CN,en;q=0.5", "a:ios-zh");
        check(IPHONE, b"en,zh;q=0.5", "a:phone");
        check(b"", b"zh-TW", "a:east");
        check(b"", b"", "https://t.example/");
    }

    #[test]
    fn an_app_is_woken_where_it_can_be() {
        let app = |platform, url: &str, fallback: Option<&str>| App {
            platform,
            url: url.into(),
            fallback: fallback.map(String::from),
        };
        let with = |app: App| Link {
            apps: vec![app],
            ..link()
        };
        let visit = Visit {
            user_agent: IPHONE,
            ..Visit::default()
        };
        let custom = with(app(Platform::Ios, "openapp://x", None));
        let expected = Answer::App {
            url: "openapp://x",
            fallback: "https://t.example/".into(),
        };
        assert_eq!(answer(&custom, &visit), expected);
        let bot = Visit {
            user_agent: b"iPhone Googlebot/2.1",
            ..Visit::default()
        };
        for other in [bot, Visit::default()] {
            assert_eq!(location(&custom, &other), "https://t.example/");
        }
        let universal = with(app(Platform::Ios, "https://app.example/x", None));
        assert_eq!(location(&universal, &visit), "https://app.example/x");
        let both = with(app(
            Platform::Any,
            "https://app.example/x",
            Some("https://web.example/"),
        ));
        let expected = Answer::App {
            url: "https://app.example/x",
            fallback: "https://web.example/".into(),
        };
        assert_eq!(answer(&both, &visit), expected);
    }

    #[test]
    fn no_address_leaves_its_attribute() {
        let reply = app_page(
            "openapp://\"><script>alert(1)</script>",
            "https://t.example/?a=1&b='",
        );
        assert_eq!(reply.body.matches("<script>").count(), 1);
        assert!(
            reply
                .body
                .contains("href=\"openapp://&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\"")
        );
        assert!(reply.body.contains("?a=1&amp;b=&#39;\""));
    }

    #[test]
    fn the_policy_names_the_hash_of_the_script() {
        let hash = base64::prelude::BASE64_STANDARD.encode(Sha256::digest(APP_SCRIPT));
        assert!(APP_POLICY.contains(&format!("'sha256-{hash}'")), "{hash}");
    }

    #[test]
    fn a_domains_page_takes_the_place_of_the_plain_one() {
        assert_eq!(unknown(Some("<p>x")).body, "<p>x");
        assert_eq!(unknown(None).body, UNKNOWN_PAGE);
        assert_eq!(unknown(None).status, 404);
    }

    proptest! {
        #[test]
        fn no_query_string_breaks_the_header(query: Vec<u8>) {
            let link = Link { pass_query: true, ..link() };
            let visit = Visit { query: &query, ..Visit::default() };
            prop_assert!(location(&link, &visit).bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
