//! Decides the response to a visit of a link, at gateways and at the origin.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::language::Language;

use super::agent::{self, Agent, Device};
use super::click::SCAN_MARKER;
use super::click_tag;
use super::domain::Domain;
use super::page::{self, PageOptions};
use super::password;
use super::record::{App, Country, Link, Preview, RedirectStatus, TARGET_LEN_MAX};
use super::rule::rule_for;
use super::site;

/// Maximum length of a query string that is passed on, in bytes. A longer one is dropped.
pub const QUERY_LEN_MAX: usize = 4_096;

/// Maximum time for which a client may cache a permanent redirect, in seconds. During it, the client sees no edits and
/// its clicks are not counted.
pub const MAX_AGE_S: u64 = 3_600;

/// A request for a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visit<'a> {
    /// The HTTP method.
    pub method: Method,
    /// Whether a browser prefetches the link before a click.
    pub is_prefetch: bool,
    /// The query string after the first `?` of the path; empty if there is none.
    pub query: &'a [u8],
    /// Its `User-Agent`.
    pub user_agent: &'a [u8],
    /// Its `Accept-Language`.
    pub accept_language: &'a [u8],
    /// The client's country, if a trusted proxy sends it.
    pub country: Option<Country>,
    /// The visitor's bucket, 0 to 99: [`point_of`](super::rule::point_of). Read only for links that [have
    /// shares](Link::has_shares).
    pub point: u8,
    /// Arrival time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The signed click ID, if the link [is tracked](Link::is_tracked) and click keys are configured.
    pub click_tag: Option<&'a str>,
    /// Remaining lifetime without a click, in milliseconds. `None`: permanent. 0: expired after inactivity.
    pub left_ms: Option<u64>,
}

/// The method of a request, by its meaning for links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// To follow the link: a click.
    #[default]
    Get,
    /// Reads the target without following it: not a click.
    Head,
    /// Anything else.
    Other,
}

/// The response to a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Redirects the client.
    Redirect {
        /// The redirect status.
        status: RedirectStatus,
        /// The target URL.
        location: Cow<'a, str>,
        /// How the response may be cached.
        cache: CacheControl,
    },
    /// A page that opens an app.
    App {
        /// The app's URL.
        url: &'a str,
        /// The URL for clients without the app.
        fallback: Cow<'a, str>,
        /// How the page is shown.
        options: PageOptions,
    },
    /// The preview for programs that show link previews.
    Preview(&'a Preview),
    /// A password form. Only the origin can check a password: gateways pass the request to it.
    Guarded(Language),
    /// The link is inactive.
    Gone(InactiveReason),
    /// The link has ended and has an `ended_target`.
    Ended {
        /// The reason.
        why: InactiveReason,
        /// The URL of the replacement.
        target: &'a str,
    },
    /// The method is not allowed: a redirect would turn the request into a GET.
    NotAllowed,
    /// Refuses a prefetch: the browser would reuse the response for the click, which then would not be counted.
    NotBeforeClick,
}

/// Why a link is inactive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// It was disabled.
    Disabled,
    /// It reached its end time, or had no click during its lifetime.
    Expired,
    /// It reached its click limit.
    UsedUp,
}

/// How a response may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheControl {
    /// Not at all: each click counts.
    NoStore,
    /// By the client, with revalidation on each use.
    PrivateNoCache,
    /// By the client, for this many seconds.
    Private(u64),
    /// By any cache, for this many seconds.
    Public(u64),
}

/// An HTTP response. A response to `HEAD` omits the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Header names, in lower case, and values.
    pub headers: Vec<(&'static str, Cow<'a, str>)>,
    /// The body: HTML, or empty.
    pub body: Cow<'a, str>,
}

impl Method {
    /// Parses a `:method`.
    pub fn read(method: &[u8]) -> Self {
        match method {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            _ => Self::Other,
        }
    }
}

impl Visit<'_> {
    /// Whether statistics count this request: a GET that is not a prefetch, by a person or a program.
    pub fn is_counted(&self) -> bool {
        self.method == Method::Get && !self.is_prefetch
    }

    /// Whether this is a click, which renews the link's lifetime and uses one of its clicks. Automatic clients are
    /// excluded.
    pub fn is_click(&self) -> bool {
        self.is_counted() && Agent::read(self.user_agent).device != Device::Bot
    }
}

impl Answer<'_> {
    /// Whether this response to a GET follows the link: a redirect, an app page or a preview.
    pub fn leads_on(&self) -> bool {
        matches!(
            self,
            Self::Redirect { .. } | Self::App { .. } | Self::Preview(_)
        )
    }
}

/// Decides the response to `visit`. The caller checks the click limit: see [`InactiveReason::UsedUp`].
pub fn answer<'a>(link: &'a Link, visit: &Visit<'_>) -> Answer<'a> {
    if link.is_disabled {
        return Answer::Gone(InactiveReason::Disabled);
    }
    let has_own_end_come = link.expires_at_ms != 0 && visit.now_ms >= link.expires_at_ms;
    if has_own_end_come || visit.left_ms == Some(0) {
        return ended(link, InactiveReason::Expired);
    }
    if link.guard.is_some() {
        return Answer::Guarded(Language::accepted(visit.accept_language));
    }
    if visit.method == Method::Other && !keeps_method(link.status) {
        return Answer::NotAllowed;
    }
    if visit.is_prefetch && link.max_clicks > 0 {
        return Answer::NotBeforeClick;
    }
    if link.is_plain() {
        return redirect(link, &link.target, visit);
    }
    for_client(link, visit)
}

/// The response for a link that has ended.
pub fn ended(link: &Link, why: InactiveReason) -> Answer<'_> {
    match link.ended_target.as_str() {
        "" => Answer::Gone(why),
        target => Answer::Ended { why, target },
    }
}

/// Whether a redirect with this status keeps the request's method.
fn keeps_method(status: RedirectStatus) -> bool {
    matches!(
        status,
        RedirectStatus::TemporaryRedirect | RedirectStatus::PermanentRedirect
    )
}

fn for_client<'a>(link: &'a Link, visit: &Visit<'_>) -> Answer<'a> {
    let agent = Agent::read(visit.user_agent);
    if let (Device::Bot, Some(preview)) = (agent.device, &link.preview) {
        return Answer::Preview(preview);
    }
    let rule = rule_for(link, agent, visit);
    let target = rule.map_or(&link.target, |rule| &rule.target);
    // Crawlers that preview a link cannot open apps, so they get the browser's response.
    let app = match agent.is_program() {
        true => None,
        false => link.apps.iter().find(|app| agent.is(app.platform)),
    };
    match app {
        Some(app) => wake(link, app, target, visit),
        None => redirect(link, target, visit),
    }
}

fn wake<'a>(link: &'a Link, app: &'a App, target: &'a str, visit: &Visit<'_>) -> Answer<'a> {
    let is_universal = app.url.starts_with("https:") || app.url.starts_with("http:");
    match &app.fallback {
        // A client without the app opens a universal link as a web page: the link is its own fallback.
        None if is_universal => redirect(link, &app.url, visit),
        fallback => Answer::App {
            url: &app.url,
            fallback: with_query(link, fallback.as_deref().unwrap_or(target), visit),
            options: PageOptions {
                in_app: agent::is_in_app(visit.user_agent),
                language: Language::accepted(visit.accept_language),
            },
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
    if link.max_clicks > 0 || link.is_tracked {
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
        // Other clients get other responses.
        false => CacheControl::Private(max_age_s),
    }
}

/// The store page of an Android app. It passes its parameter `referrer` to the app that it installs.
const PLAY_STORE: &str = "https://play.google.com/store/apps/details?";

/// `target` with the request's query string, if the link passes it on, and with the click ID, if there is one.
fn with_query<'a>(link: &Link, target: &'a str, visit: &Visit<'_>) -> Cow<'a, str> {
    let passes_query = link.pass_query && visit.query.len() <= QUERY_LEN_MAX;
    let query = if passes_query { visit.query } else { b"" };
    let tag = visit.click_tag.filter(|_| link.is_tracked);
    if query.is_empty() && tag.is_none() {
        return Cow::Borrowed(target);
    }
    // Drop the scan marker and the click ID: only Weir uses them.
    let is_passed = |parameter: &&[u8]| {
        let is_tag = link.is_tracked && click_tag::is_parameter(parameter);
        *parameter != SCAN_MARKER.as_bytes() && !is_tag
    };
    let mut parameters = query.split(|byte| *byte == b'&').filter(is_passed);
    let first = parameters.next().filter(|_| !query.is_empty());
    if first.is_none() && tag.is_none() {
        return Cow::Borrowed(target);
    }
    let (page, fragment) = match target.find('#') {
        Some(at) => target.split_at_checked(at).unwrap_or((target, "")),
        None => (target, ""),
    };
    let mut location = String::with_capacity(TARGET_LEN_MAX.min(target.len()) + query.len() + 1);
    location.push_str(page);
    location.push_str(joint(page));
    if let Some(first) = first {
        push_visibly(&mut location, first);
        for parameter in parameters {
            location.push('&');
            push_visibly(&mut location, parameter);
        }
    }
    if let Some(tag) = tag {
        if first.is_some() {
            location.push('&');
        }
        push_tag(&mut location, page, tag);
    }
    location.push_str(fragment);
    Cow::Owned(location)
}

/// The separator before the first parameter that is added to `page`.
fn joint(page: &str) -> &'static str {
    match page {
        page if page.ends_with(['?', '&']) => "",
        page if page.contains('?') => "&",
        _ => "?",
    }
}

/// Adds the click ID to the query of `page`.
fn push_tag(location: &mut String, page: &str, tag: &str) {
    // The store passes the value of `referrer` to the app that it installs.
    let (before, equals) = match page.starts_with(PLAY_STORE) {
        true => ("referrer=", "%3D"),
        false => ("", "="),
    };
    location.push_str(before);
    location.push_str(click_tag::PARAMETER);
    location.push_str(equals);
    location.push_str(tag);
}

fn push_visibly(location: &mut String, parameter: &[u8]) {
    for byte in parameter {
        push_visible(location, *byte);
    }
}

/// Appends a byte, percent-encoded if a header cannot contain it or if it would end the query string.
fn push_visible(location: &mut String, byte: u8) {
    match byte {
        b'#' => location.push_str("%23"),
        byte if byte.is_ascii_graphic() => location.push(char::from(byte)),
        byte => location.push_str(&format!("%{byte:02X}")),
    }
}

impl Link {
    /// Whether all clients get the same target.
    pub fn is_plain(&self) -> bool {
        self.apps.is_empty() && self.rules.is_empty() && self.preview.is_none()
    }

    /// Whether the target depends on the visitor's bucket.
    pub fn has_shares(&self) -> bool {
        self.rules.iter().any(|rule| rule.percent > 0)
    }
}

impl InactiveReason {
    /// The metric label.
    pub const fn label(self) -> &'static str {
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

impl<'a> Answer<'a> {
    /// The HTTP response for a link of `domain`, for a client with this `Accept-Language`.
    pub fn reply(self, domain: &'a Domain, accept_language: &[u8]) -> Reply<'a> {
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
            Self::App {
                url,
                fallback,
                options: displayed,
            } => page::app(url, &fallback, displayed),
            Self::Preview(preview) => page::preview(preview),
            Self::Guarded(language) => password::form_page(language, None),
            Self::Gone(why) => site::ended_reply(domain, why, accept_language),
            Self::Ended { target, .. } => site::redirect_reply(target),
            Self::NotAllowed => Reply {
                status: 405,
                headers: Vec::from([
                    ("allow", Cow::Borrowed("GET, HEAD")),
                    ("cache-control", Cow::Borrowed("no-store")),
                ]),
                body: Cow::Borrowed(""),
            },
            // Browsers discard a prefetch with an error status.
            Self::NotBeforeClick => Reply {
                status: 503,
                headers: Vec::from([("cache-control", Cow::Borrowed("no-store"))]),
                body: Cow::Borrowed(""),
            },
        }
    }
}

#[cfg(test)]
mod tests;
