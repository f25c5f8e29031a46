//! Behaviour events: which requests continue, with which gateway metadata, and the answers to the others.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};

use super::{Ask, Draft};
use crate::vector::Vector;

const ENGINE: &str = "events";
const KEY: &str = "wk_shop_web";
const PAGE: &str = "https://shop.example";
const BODY: &str = r#"{"events":[]}"#;
const PASSES: &str = "goes on";

/// A gateway with a browser key and a server key.
fn gateway(name: &str, browser: Value, more: Value) -> Draft {
    let mut web = json!({ "name": "shop-web", "kind": "browser", "key": KEY, "origins": [PAGE] });
    for (field, value) in browser.as_object().into_iter().flatten() {
        web[field] = value.clone();
    }
    let erp =
        json!({ "name": "erp", "kind": "server", "secret": { "env": "WEIR_EVENTS_KEY_ERP" } });
    let mut config = json!({ "keys": [web, erp], "collect": {} });
    for (field, value) in more.as_object().into_iter().flatten() {
        config[field] = value.clone();
    }
    Draft::new(format!("events/{name}"), ENGINE, config).secret("WEIR_EVENTS_KEY_ERP")
}

fn plain(name: &str) -> Draft {
    gateway(name, json!({}), json!({}))
}

fn post() -> Ask {
    of_key(KEY)
}

fn of_key(key: &str) -> Ask {
    typed("application/json").header("x-weir-write-key", key)
}

fn typed(content_type: &str) -> Ask {
    with_body(Ask::new("POST", "/events")).header("content-type", content_type)
}

fn with_body(mut ask: Ask) -> Ask {
    ask.0.body = BODY.into();
    ask
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = collected();
    drafts.extend(refused());
    drafts.extend(consents());
    drafts.extend(samples());
    drafts.extend(images());
    drafts.extend(pages());
    drafts.into_iter().map(Draft::done).collect()
}

fn collected() -> Vec<Draft> {
    let of = |name: &str, ask: Ask| plain(&format!("collect/{name}")).ask(ask, PASSES);
    vec![
        of(
            "a-browser",
            post()
                .header("x-weir-visitor", "v1")
                .header("x-user-id", "alice"),
        ),
        of("a-server", of_key("erp-secret-0123456789")),
        of("from-a-network", post().from("[2001:db8:1:2:3::4]:5")),
        of(
            "text",
            typed("text/plain;charset=UTF-8").header("x-weir-write-key", KEY),
        ),
        of(
            "json-in-capitals",
            typed("Application/JSON; charset=utf-8").header("x-weir-write-key", KEY),
        ),
        of(
            "what-is-private-is-removed",
            post()
                .header("cookie", "session=1")
                .header("authorization", "Bearer x")
                .header("x-forwarded-for", "203.0.113.7")
                .header("x-real-ip", "203.0.113.7"),
        ),
        of(
            "forged-stamps-are-removed",
            post()
                .header("x-weir-received", "1")
                .header("x-weir-key", "erp")
                .header("x-weir-address", "203.0.113.0/24"),
        ),
        of(
            "a-beacon-brings-its-key-in-the-query",
            with_body(Ask::new("POST", format!("/events?key={KEY}&visitor=v1")))
                .header("content-type", "text/plain;charset=UTF-8"),
        ),
        of("elsewhere", Ask::new("POST", "/").header("cookie", "a=b")),
        of(
            "nearly-there",
            Ask::new("POST", "/events/").header("cookie", "a=b"),
        ),
        gateway(
            "collect/behind-a-proxy",
            json!({}),
            json!({ "trusted_hops": 1 }),
        )
        .ask(
            post().header("x-forwarded-for", "203.0.113.7, 192.0.2.9"),
            PASSES,
        ),
    ]
}

fn refused() -> Vec<Draft> {
    let of =
        |name: &str, ask: Ask, expected: &str| plain(&format!("refused/{name}")).ask(ask, expected);
    let method =
        |method: &str| with_body(Ask::new(method, "/events")).header("x-weir-write-key", KEY);
    let key = |content_type: &str| typed(content_type).header("x-weir-write-key", KEY);
    vec![
        of("no-key", typed("application/json"), "401 unknown_key"),
        of("an-empty-key", of_key(""), "401 unknown_key"),
        of("an-unknown-key", of_key("wk_shop_wec"), "401 unknown_key"),
        of("put", method("PUT"), "405 method_not_allowed"),
        of(
            "get",
            Ask::get("/events").header("x-weir-write-key", KEY),
            "405 method_not_allowed",
        ),
        of("html", key("text/html"), "415 unsupported_media_type"),
        of(
            "nearly-json",
            key("application/jsonx"),
            "415 unsupported_media_type",
        ),
        of(
            "no-type",
            with_body(Ask::new("POST", "/events")).header("x-weir-write-key", KEY),
            "415 unsupported_media_type",
        ),
        of(
            "compressed",
            post().header("content-encoding", "br"),
            "415 unsupported_media_type",
        ),
        of(
            "too-long",
            Ask::new("POST", "/events")
                .header("content-type", "application/json")
                .header("x-weir-write-key", KEY)
                .header("content-length", "1048577"),
            "413 too_large",
        ),
        of(
            "no-such-consent",
            post().header("x-weir-consent", "yes"),
            "400 bad_consent",
        ),
        of(
            "another-page",
            post().header("origin", "https://evil.example"),
            "403 origin_not_allowed",
        ),
        of(
            "a-page-without-a-name",
            post().header("origin", "null"),
            "403 origin_not_allowed",
        ),
        of(
            "a-page-with-a-servers-key",
            of_key("erp-secret-0123456789").header("origin", PAGE),
            "403 origin_not_allowed",
        ),
    ]
}

fn consents() -> Vec<Draft> {
    let of = |name: &str, ask: Ask, expected: &str| {
        let ask = ask
            .header("x-user-id", "alice")
            .header("x-forwarded-for", "203.0.113.7");
        plain(&format!("consent/{name}")).ask(ask, expected)
    };
    let signals = json!({ "signals": { "gpc": "drop", "dnt": "anonymise" } });
    vec![
        of("full", post().header("x-weir-consent", "full"), PASSES),
        of(
            "anonymous",
            post().header("x-weir-consent", "anonymous"),
            PASSES,
        ),
        of("none", post().header("x-weir-consent", "none"), "202"),
        of("a-signal", post().header("sec-gpc", "1"), PASSES),
        of(
            "a-signal-against-what-is-said",
            post()
                .header("sec-gpc", "1")
                .header("x-weir-consent", "full"),
            PASSES,
        ),
        of(
            "a-signal-that-nobody-means",
            post().header("dnt", "1"),
            PASSES,
        ),
        gateway("consent/a-signal-that-drops", json!({}), signals.clone())
            .ask(post().header("sec-gpc", "1"), "202"),
        gateway("consent/a-signal-that-makes-anonymous", json!({}), signals)
            .ask(post().header("dnt", "1"), PASSES),
        gateway(
            "consent/silence-is-anonymous",
            json!({ "consent": "anonymous" }),
            json!({}),
        )
        .ask(post(), PASSES),
    ]
}

/// Sampling depends only on the visitor's ID, on every host.
fn samples() -> Vec<Draft> {
    let half = json!({ "sample": 0.5 });
    let mut drafts: Vec<Draft> = [
        ("v0", false),
        ("v1", false),
        ("v2", true),
        ("v3", false),
        ("v4", true),
        ("v5", true),
    ]
    .map(|(visitor, is_kept)| {
        let expected = if is_kept { PASSES } else { "202" };
        let ask = post().header("x-weir-visitor", visitor);
        gateway(&format!("sample/half-{visitor}"), half.clone(), json!({}))
            .ask(ask.clone(), expected)
            .ask(ask, expected)
    })
    .into();
    drafts.push(gateway("sample/none", json!({ "sample": 0.0 }), json!({})).ask(post(), "202"));
    drafts
}

fn images() -> Vec<Draft> {
    let path = format!("/events.gif?type=view&key={KEY}&visitor=v1&a.sku=a%261&consent=full&_=7");
    let of =
        |name: &str, ask: Ask, expected: &str| plain(&format!("image/{name}")).ask(ask, expected);
    vec![
        of("an-event", Ask::get(&path).header("cookie", "a=b"), PASSES),
        of(
            "dropped",
            Ask::get(&path).header("x-weir-consent", "none"),
            "200",
        ),
        of("posted", Ask::new("POST", &path), "405 method_not_allowed"),
        of(
            "without-a-key",
            Ask::get("/events.gif?type=view"),
            "401 unknown_key",
        ),
    ]
}

/// Pages of other sites can read answers only with CORS headers.
fn pages() -> Vec<Draft> {
    let preflight = |path: &str, origin: &str| {
        Ask::new("OPTIONS", path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "x-weir-write-key")
    };
    let of =
        |name: &str, ask: Ask, expected: &str| plain(&format!("page/{name}")).ask(ask, expected);
    vec![
        of("its-answer", post().header("origin", PAGE), PASSES),
        of(
            "its-refusal",
            of_key("none-of-ours").header("origin", PAGE),
            "401 unknown_key",
        ),
        of(
            "its-dropped-events",
            post()
                .header("origin", PAGE)
                .header("x-weir-consent", "none"),
            "202",
        ),
        of("preflight", preflight("/events", PAGE), "204"),
        of(
            "preflight-with-a-key",
            preflight(&format!("/events?key={KEY}"), PAGE),
            "204",
        ),
        of(
            "preflight-of-another-page",
            preflight("/events", "https://evil.example"),
            "403 origin_not_allowed",
        ),
        of(
            "preflight-with-another-key",
            preflight("/events?key=wk_other_key", PAGE),
            "403 origin_not_allowed",
        ),
    ]
}
