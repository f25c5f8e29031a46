//! What whoever clicks a link is answered, at gateways and at the origin alike.

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
    /// Whether a browser asks before anybody has clicked.
    pub is_prefetch: bool,
    /// What stands behind the first `?` of its path, if anything.
    pub query: &'a [u8],
    /// Its `User-Agent`.
    pub user_agent: &'a [u8],
    /// Its `Accept-Language`.
    pub accept_language: &'a [u8],
    /// The country that it comes from, if somebody who is trusted has said so.
    pub country: Option<Country>,
    /// Where among a hundred its visitor stands: [`point_of`](super::rule::point_of). Read only of links that
    /// [have shares](Link::has_shares).
    pub point: u8,
    /// When it came, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The name of the click, if the link [is tracked](Link::is_tracked) and there is somebody who names clicks.
    pub click_tag: Option<&'a str>,
    /// How long the link lives without a click, in milliseconds; `None`: permanently. 0: it has ended, because it had no click for
    /// that long.
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
        /// How the page is shown.
        shown: PageOptions,
    },
    /// A program that previews links is shown what it is to show.
    Preview(&'a Preview),
    /// A password is asked for. Only the origin knows whether one is right: gateways send the request there.
    Guarded(Language),
    /// The link leads nowhere any more.
    Gone(InactiveReason),
    /// The link has ended, and says where to go now.
    Ended {
        /// Why.
        why: InactiveReason,
        /// Where to.
        target: &'a str,
    },
    /// A redirect would turn the request into a GET.
    NotAllowed,
    /// A browser would keep the answer for the click, which then would not be counted: it is to come with the click.
    NotBeforeClick,
}

/// Why a link leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// It was disabled.
    Disabled,
    /// Its end has come, or it had no click for its whole life.
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

impl Visit<'_> {
    /// Whether somebody, or a program, follows the link, and does not only look: what the statistics count.
    pub fn is_counted(&self) -> bool {
        self.method == Method::Get && !self.is_prefetch
    }

    /// Whether this is a click, which renews the link's life and uses one of its clicks: not that of a program that comes
    /// by itself.
    pub fn is_click(&self) -> bool {
        self.is_counted() && Agent::read(self.user_agent).device != Device::Bot
    }
}

impl Answer<'_> {
    /// Whether a GET that is answered so has followed the link: a click, or a program that was shown what there is.
    pub fn leads_on(&self) -> bool {
        matches!(
            self,
            Self::Redirect { .. } | Self::App { .. } | Self::Preview(_)
        )
    }
}

/// Decides what `visit` of `link` is answered. Whether it has clicks left is known elsewhere: see
/// [`InactiveReason::UsedUp`].
pub fn answer<'a>(link: &'a Link, visit: &Visit<'_>) -> Answer<'a> {
    if link.is_disabled {
        return Answer::Gone(InactiveReason::Disabled);
    }
    let has_own_end_come = link.expires_at_ms != 0 && visit.now_ms >= link.expires_at_ms;
    if has_own_end_come || visit.left_ms == Some(0) {
        return ended(link, InactiveReason::Expired);
    }
    if link.guard.is_some() {
        return Answer::Guarded(page::language(visit.accept_language));
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

/// What is answered of a link that has ended.
pub fn ended(link: &Link, why: InactiveReason) -> Answer<'_> {
    match link.ended_target.as_str() {
        "" => Answer::Gone(why),
        target => Answer::Ended { why, target },
    }
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
    if let (Device::Bot, Some(preview)) = (agent.device, &link.preview) {
        return Answer::Preview(preview);
    }
    let rule = rule_for(link, agent, visit);
    let target = rule.map_or(&link.target, |rule| &rule.target);
    // A crawler that previews a link cannot open apps: it sees what a browser would.
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
        // Who has no app for a universal link is shown its page: it is its own fallback.
        None if is_universal => redirect(link, &app.url, visit),
        fallback => Answer::App {
            url: &app.url,
            fallback: with_query(link, fallback.as_deref().unwrap_or(target), visit),
            shown: PageOptions {
                in_app: agent::is_in_app(visit.user_agent),
                language: page::language(visit.accept_language),
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
        // Another client is answered otherwise.
        false => CacheControl::Private(max_age_s),
    }
}

/// Where those who come from the store are told which click led there: what the query's parameter `referrer` says.
const PLAY_STORE: &str = "https://play.google.com/store/apps/details?";

/// `target` with the request's query string, if the link passes it on, and with the click's name, if it has one.
fn with_query<'a>(link: &Link, target: &'a str, visit: &Visit<'_>) -> Cow<'a, str> {
    let passes_query = link.pass_query && visit.query.len() <= QUERY_LEN_MAX;
    let query = if passes_query { visit.query } else { b"" };
    let tag = visit.click_tag.filter(|_| link.is_tracked);
    if query.is_empty() && tag.is_none() {
        return Cow::Borrowed(target);
    }
    // What tells a scan apart, and what a click is called, is ours alone.
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

/// What stands before the first parameter that is added to `page`.
fn joint(page: &str) -> &'static str {
    match page {
        page if page.ends_with(['?', '&']) => "",
        page if page.contains('?') => "&",
        _ => "?",
    }
}

/// Names the click to whatever stands at `page`.
fn push_tag(location: &mut String, page: &str, tag: &str) {
    // The store hands on to the app that it installs what `referrer` says.
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
        self.apps.is_empty() && self.rules.is_empty() && self.preview.is_none()
    }

    /// Whether it hangs on the visitor where it leads.
    pub fn has_shares(&self) -> bool {
        self.rules.iter().any(|rule| rule.percent > 0)
    }
}

impl InactiveReason {
    /// Its word, in metrics.
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
    /// As it is sent by a link of `domain`.
    pub fn reply(self, domain: &'a Domain) -> Reply<'a> {
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
                shown,
            } => page::app(url, &fallback, shown),
            Self::Preview(preview) => page::preview(preview),
            Self::Guarded(language) => password::form_page(language, None),
            Self::Gone(why) => site::ended_reply(domain, why),
            Self::Ended { target, .. } => site::redirect_reply(target),
            Self::NotAllowed => Reply {
                status: 405,
                headers: Vec::from([
                    ("allow", Cow::Borrowed("GET, HEAD")),
                    ("cache-control", Cow::Borrowed("no-store")),
                ]),
                body: Cow::Borrowed(""),
            },
            // Browsers drop a prefetch that is answered with an error.
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
