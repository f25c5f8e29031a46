//! Responses of a domain besides its links: files, the home page, and pages for links without a target.

use alloc::borrow::Cow;
use alloc::string::ToString;

use super::answer::{InactiveReason, Reply};
use super::domain::Domain;
use super::page;

/// Caching of files and of the redirect of `/`.
const CACHE_CONTROL: &str = "public, max-age=300";

/// Caching of the missing icon.
const ICON_CACHE_CONTROL: &str = "public, max-age=86400";

/// The default `/robots.txt`. It allows all crawlers, because programs that show link previews obey it, too.
const ROBOTS: &str = "User-agent: *\nDisallow:\n";

/// A path of a domain that is not a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `apple-app-site-association`.
    AppleApps,
    /// `assetlinks.json`.
    AndroidApps,
    /// `/`.
    Home,
    /// `/robots.txt`.
    Robots,
    /// `/favicon.ico`, which browsers request automatically.
    Icon,
}

impl File {
    /// The file at `path`, which has no query string.
    pub fn at(path: &[u8]) -> Option<Self> {
        Some(match path {
            b"/" => Self::Home,
            b"/robots.txt" => Self::Robots,
            b"/favicon.ico" => Self::Icon,
            b"/.well-known/apple-app-site-association" | b"/apple-app-site-association" => {
                Self::AppleApps
            }
            b"/.well-known/assetlinks.json" => Self::AndroidApps,
            _ => return None,
        })
    }

    /// The response of `domain`, if it has this file.
    pub fn reply(self, domain: &Domain) -> Option<Reply<'_>> {
        // They were parsed from JSON.
        let json = |file: &serde_json::Value| text("application/json", file.to_string().into());
        match self {
            Self::AppleApps => domain.apple_app_site_association.as_ref().map(json),
            Self::AndroidApps => domain.assetlinks.as_ref().map(json),
            Self::Home => domain.home.as_deref().map(home),
            Self::Robots => {
                let robots = domain.robots.as_deref().unwrap_or(ROBOTS);
                Some(text("text/plain; charset=utf-8", robots.into()))
            }
            Self::Icon => Some(Reply {
                status: 204,
                headers: [("cache-control", ICON_CACHE_CONTROL.into())].into(),
                body: Cow::Borrowed(""),
            }),
        }
    }
}

fn text<'a>(content_type: &'static str, body: Cow<'a, str>) -> Reply<'a> {
    Reply {
        status: 200,
        headers: [
            ("content-type", content_type.into()),
            ("cache-control", CACHE_CONTROL.into()),
            ("x-content-type-options", "nosniff".into()),
        ]
        .into(),
        body,
    }
}

fn home(address: &str) -> Reply<'_> {
    Reply {
        status: 302,
        headers: [
            ("location", address.into()),
            ("cache-control", CACHE_CONTROL.into()),
        ]
        .into(),
        body: Cow::Borrowed(""),
    }
}

/// The answer to a link that does not exist, for a client with this `Accept-Language`.
pub fn unknown<'a>(domain: Option<&'a Domain>, accept_language: &[u8]) -> Reply<'a> {
    let own_page = domain.and_then(|domain| domain.not_found_page.as_deref());
    let home = domain.and_then(|domain| domain.home.as_deref());
    page::NOT_FOUND.reply(own_page, home, accept_language)
}

/// The response for an inactive link.
pub(crate) fn ended_reply<'a>(
    domain: &'a Domain,
    why: InactiveReason,
    accept_language: &[u8],
) -> Reply<'a> {
    match &domain.ended_target {
        // A disabled link redirects nowhere.
        Some(target) if why != InactiveReason::Disabled => redirect_reply(target),
        _ => {
            let (own_page, home) = (domain.gone_page.as_deref(), domain.home.as_deref());
            page::GONE.reply(own_page, home, accept_language)
        }
    }
}

/// The redirect to the `ended_target` of a link.
pub(crate) fn redirect_reply(target: &str) -> Reply<'_> {
    Reply {
        status: 302,
        headers: [
            ("location", target.into()),
            ("cache-control", "no-store".into()),
        ]
        .into(),
        body: Cow::Borrowed(""),
    }
}

/// The response during an outage, with the time until a retry, in seconds.
pub fn unavailable<'a>(
    domain: &'a Domain,
    accept_language: &[u8],
    retry_after_s: u64,
) -> Reply<'a> {
    let own_page = domain.unavailable_page.as_deref();
    let mut reply = page::UNAVAILABLE.reply(own_page, domain.home.as_deref(), accept_language);
    let retry_after = retry_after_s.to_string();
    reply.headers.push(("retry-after", retry_after.into()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn domain(more: &str) -> Domain {
        let json = alloc::format!(r#"{{"id":"s","hosts":["s.example"]{more}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn ask(path: &str, domain: &Domain) -> Option<(u16, Vec<String>, String)> {
        let reply = File::at(path.as_bytes())?.reply(domain)?;
        let headers = reply.headers.iter();
        let values = headers.map(|(_, value)| value.clone().into_owned());
        Some((reply.status, values.collect(), reply.body.into_owned()))
    }

    #[test]
    fn domain_serves_its_configured_files() {
        let plain = domain("");
        for path in [
            "/",
            "/apple-app-site-association",
            "/.well-known/assetlinks.json",
        ] {
            assert_eq!(ask(path, &plain), None, "{path}");
        }
        let robots = ask("/robots.txt", &plain).unwrap();
        assert_eq!((robots.0, robots.2.as_str()), (200, ROBOTS));
        assert_eq!(ask("/favicon.ico", &plain).unwrap().0, 204);
        let own = domain(
            r#","home":"https://home.example/","robots":"Disallow: /\n","assetlinks":[{"a":1}],
               "apple_app_site_association":{"b":2}"#,
        );
        let (status, values, _) = ask("/", &own).unwrap();
        assert_eq!((status, values[0].as_str()), (302, "https://home.example/"));
        assert_eq!(ask("/robots.txt", &own).unwrap().2, "Disallow: /\n");
        let (_, values, body) = ask("/.well-known/assetlinks.json", &own).unwrap();
        assert_eq!(
            (values[0].as_str(), body.as_str()),
            ("application/json", r#"[{"a":1}]"#)
        );
        for path in [
            "/apple-app-site-association",
            "/.well-known/apple-app-site-association",
        ] {
            assert_eq!(ask(path, &own).unwrap().2, r#"{"b":2}"#);
        }
    }

    #[test]
    fn domain_pages_cover_missing_links_and_retry_time() {
        let own = domain(r#","not_found_page":"<p>none","unavailable_page":"<p>later""#);
        let none = unknown(Some(&own), b"de");
        assert_eq!((none.status, none.body.as_ref()), (404, "<p>none"));
        assert!(unknown(None, b"").body.contains("No such link"));
        let later = unavailable(&own, b"de", 7);
        assert_eq!((later.status, later.body.as_ref()), (503, "<p>later"));
        assert!(later.headers.contains(&("retry-after", "7".into())));
    }

    #[test]
    fn other_paths_are_not_site_files() {
        for path in [
            "",
            "*",
            "/abc",
            "/robots.txt/",
            "//",
            "/Robots.txt",
            "robots.txt",
        ] {
            assert_eq!(File::at(path.as_bytes()), None, "{path}");
        }
    }
}
