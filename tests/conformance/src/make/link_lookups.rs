//! Short links that are not in Redis: gateways look them up at the origin.

use serde_json::json;
use weir_link::record::Link;

use super::Draft;
use super::links::{LINK, TARGET, click, config, gateway, record, redirects_to, to, visit};

pub(super) fn drafts() -> Vec<Draft> {
    let mut drafts = unknown();
    drafts.extend(lookups());
    drafts
}

fn unknown() -> Vec<Draft> {
    let draft = |name: &str| {
        gateway(&format!("unknown/{name}"), config(), json!({})).origin(
            "/link-records/s/nobody1",
            404,
            &[("x-weir-link", "unknown")],
            "",
        )
    };
    vec![
        draft("the-origin-says-so").ask(visit("GET", "/nobody1"), "404"),
        draft("it-is-remembered")
            .ask(visit("GET", "/nobody1"), "404")
            .ask(visit("GET", "/nobody1"), "404"),
        draft("head").ask(visit("HEAD", "/nobody1"), "404"),
    ]
}

/// Links that are missing in Redis and may exist at the origin.
fn lookups() -> Vec<Draft> {
    let of = |name: &str, status: u16, body: &str| {
        gateway(&format!("look-up/{name}"), config(), json!({})).origin(
            &format!("/link-records/{LINK}"),
            status,
            &[],
            body,
        )
    };
    let reply = |head: &str, link: &Link| format!("{head}\n{}", record(link));
    let redirect = redirects_to(TARGET);
    vec![
        of("found", 200, &reply("- -", &Link::to(TARGET))).ask(click(), redirect.clone()),
        of(
            "found-and-remembered",
            200,
            &reply("- -", &Link::to(TARGET)),
        )
        .ask(click(), redirect.clone())
        .ask(click(), redirect.clone()),
        of(
            "with-a-click-left",
            200,
            &reply("- 1", &to(|link| link.max_clicks = 3)),
        )
        .ask(click(), redirect.clone()),
        of(
            "with-no-click-left",
            200,
            &reply("- 0", &to(|link| link.max_clicks = 3)),
        )
        .ask(click(), "410"),
        of(
            "disabled",
            200,
            &reply("- -", &to(|link| link.is_disabled = true)),
        )
        .ask(click(), "410"),
        of(
            "ended-because-nobody-clicked",
            200,
            &reply("0 -", &to(|link| link.life_ms = 1_000)),
        )
        .ask(click(), "410")
        .ask(click(), "410"),
        of(
            "ended-because-nobody-clicked-with-another-target",
            200,
            &reply(
                "0 -",
                &to(|link| {
                    link.life_ms = 1_000;
                    link.ended_target = "https://over.example/".into();
                }),
            ),
        )
        .ask(click(), redirects_to("https://over.example/")),
        of("no-document", 200, "a page").ask(click(), "503"),
        of("an-error-of-the-origin", 500, "").ask(click(), "503"),
        of("not-found-by-somebody-else", 404, "").ask(click(), "503"),
    ]
}
