//! Short links with alternative targets: by country, query string or share; after their end; in previews.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::json;
use weir_link::preview::Preview;
use weir_link::record::{Country, Link, Parameter, Rule};

use super::links::{
    AGENTS, CRAWLER, PATH, TARGET, click, config, gateway, link, redirects_to, to, visit, with_link,
};
use super::{Draft, NOW_MS};

pub(super) fn drafts() -> Vec<Draft> {
    let mut drafts = countries();
    drafts.extend(parameters());
    drafts.extend(shares());
    drafts.extend(ended());
    drafts.extend(previews());
    drafts
}

fn rule(target: &str) -> Rule {
    Rule {
        target: target.into(),
        ..Rule::default()
    }
}

/// Only the configured header is trusted.
fn countries() -> Vec<Draft> {
    const THERE: &str = "https://de.example/";
    let country = |text: &str| Country::read(text.as_bytes()).expect("a country");
    let link = to(|link| {
        link.rules = vec![Rule {
            countries: vec![country("DE"), country("AT")],
            ..rule(THERE)
        }];
    });
    let of = |(name, header, value, target): (&str, Option<&str>, &str, &str)| {
        let mut config = config();
        if let Some(header) = header {
            config["country_header"] = json!(header);
        }
        let draft = gateway(&format!("country/{name}"), config, json!({}));
        let ask = click().header("x-geo-country", value);
        with_link(draft, &link).ask(ask, redirects_to(target))
    };
    let trusted = Some("x-geo-country");
    [
        ("the-first", trusted, "DE", THERE),
        ("the-second", trusted, "AT", THERE),
        ("in-small-letters", trusted, "de", THERE),
        ("another", trusted, "FR", TARGET),
        ("unknown", trusted, "XX", TARGET),
        ("no-country", trusted, "Germany", TARGET),
        ("not-configured", None, "DE", TARGET),
        (
            "another-header-is-configured",
            Some("cf-ipcountry"),
            "DE",
            TARGET,
        ),
    ]
    .map(of)
    .into()
}

fn parameters() -> Vec<Draft> {
    const THERE: &str = "https://q.example/";
    let part = |name: &str, value: Option<&str>| Parameter {
        name: name.into(),
        value: value.map(Into::into),
    };
    let to_there = to(|link| {
        link.rules = vec![Rule {
            query: vec![part("ref", Some("a b")), part("x", None)],
            ..rule(THERE)
        }];
    });
    let of = |(name, query, target): (&str, &str, &str)| {
        let ask = visit("GET", &format!("{PATH}{query}"));
        link(&format!("parameter/{name}"), &to_there).ask(ask, redirects_to(target))
    };
    [
        ("both", "?ref=a+b&x", THERE),
        ("encoded-and-in-another-order", "?x=1&y&re%66=a%20b", THERE),
        ("another-value", "?ref=a&x", TARGET),
        ("one-is-missing", "?ref=a+b", TARGET),
        ("none", "", TARGET),
    ]
    .map(of)
    .into()
}

/// The visitors' buckets were computed independently, from the description of the hash: 192.0.2.7 in 3, .2 in 32, .1 in
/// 62, all with `curl/8`. For IPv6 the first 64 bits count: 2001:db8:0:0::/64 is in 41.
fn shares() -> Vec<Draft> {
    let share = |percent, target: &str| Rule {
        percent,
        ..rule(target)
    };
    let (a, b) = ("https://a.example/", "https://b.example/");
    let split = to(|link| link.rules = vec![share(30, a), share(20, b)]);
    let of = |(name, from, target): (&str, &str, &str)| {
        let ask = || click().from(from).header("user-agent", "curl/8");
        link(&format!("share/{name}"), &split)
            .ask(ask(), redirects_to(target))
            .ask(ask(), redirects_to(target))
    };
    [
        ("the-first", "192.0.2.7:4711", a),
        ("from-another-port", "192.0.2.7:80", a),
        ("the-second", "192.0.2.2:4711", b),
        ("the-rest", "192.0.2.1:4711", TARGET),
        ("of-a-network", "[2001:db8::1]:4711", b),
        ("of-the-same-network", "[2001:db8::2]:4711", b),
    ]
    .map(of)
    .into()
}

/// An expired link redirects to its own or its domain's target for expired links.
fn ended() -> Vec<Draft> {
    const OVER: &str = "https://over.example/";
    let of = |name: &str, own: bool, domain: bool, change: fn(&mut Link)| {
        let mut link = to(change);
        if own {
            link.ended_target = OVER.into();
        }
        let domain = match domain {
            true => json!({ "ended_target": "https://all.example/" }),
            false => json!({}),
        };
        with_link(gateway(&format!("ended/{name}"), config(), domain), &link)
    };
    let over = |link: &mut Link| link.expires_at_ms = NOW_MS;
    vec![
        of("by-the-link", true, false, over).ask(click(), redirects_to(OVER)),
        of("by-the-link-before-the-domain", true, true, over).ask(click(), redirects_to(OVER)),
        of("by-the-domain", false, true, over).ask(click(), redirects_to("https://all.example/")),
        of("by-nobody", false, false, over).ask(click(), "410"),
        of("a-look", true, false, over).ask(visit("HEAD", PATH), redirects_to(OVER)),
        of("not-if-disabled", true, true, |link| {
            link.is_disabled = true
        })
        .ask(click(), "410"),
        of("before-its-end", true, true, |link| {
            link.expires_at_ms = NOW_MS + 1
        })
        .ask(click(), redirects_to(TARGET)),
        of("out-of-clicks", true, false, |link| link.max_clicks = 1)
            .ask(click(), redirects_to(TARGET))
            .ask(click(), redirects_to(OVER)),
    ]
}

/// Preview bots get a page, all other clients the redirect.
fn previews() -> Vec<Draft> {
    let displayed = to(|link| {
        link.preview = Some(Preview {
            title: "<Spring> & more".into(),
            text: "All of \"it\"".into(),
            image: "https://i.example/a.png?b&c".into(),
        });
    });
    let of = |name: &str, method: &str, agent: &str, expected: &str| {
        let ask = visit(method, PATH).header("user-agent", agent);
        link(&format!("preview/{name}"), &displayed).ask(ask, expected)
    };
    let redirect = redirects_to(TARGET);
    vec![
        of("whatsapp", "GET", "WhatsApp/2.23.20", "200"),
        of("facebook", "GET", "facebookexternalhit/1.1", "200"),
        of("a-crawler", "GET", CRAWLER, "200"),
        of("head", "HEAD", "WhatsApp/2.23.20", "200"),
        of("a-browser", "GET", AGENTS[0].1, &redirect),
        of("a-script", "GET", "curl/8", &redirect),
    ]
}
