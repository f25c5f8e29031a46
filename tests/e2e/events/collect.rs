//! `POST /events` and `GET /events.gif`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use weir_event::consent::Consent;
use weir_event::stamps::Kind;
use weir_stack::http::{self, Method};
use weir_tests::{EventGateway, SHOP_KEY};

use super::{event, post, shipped};
use crate::metrics::{Gateways, documented, scraped};

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_origin_with_gateway_metadata_only() -> Result<()> {
    let mut gateway = shipped().await?;
    let forged = [
        ("x-weir-event-key", "shop"),
        ("x-weir-event-kind", "server"),
        ("x-weir-received-ms", "1"),
        ("x-weir-address", "6.6.6.0/24"),
        ("cookie", "session=1"),
        ("authorization", "Bearer x"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-user-id", "alice"),
    ];
    let body = format!("[{},{}]", event("e1"), event("e2"));
    let answer = post(&gateway, &body, &forged).await?;
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(answer.json()?["accepted"], 2);
    let received = gateway.origin.requests().remove(0);
    assert_eq!(received.body, body);
    let stamps = received.stamps()?;
    assert_eq!(
        (stamps.key.as_str(), stamps.kind),
        ("shop-web", Kind::Browser)
    );
    assert!(stamps.received_ms > 1_700_000_000_000);
    // Envoy appends the connection's address, which is the relevant one.
    assert!(
        stamps
            .address
            .is_some_and(|network| network.to_string().starts_with("127."))
    );
    for name in [
        "x-weir-event-key",
        "x-weir-event-kind",
        "x-weir-received-ms",
        "x-weir-address",
    ] {
        assert_eq!(received.headers.get_all(name).iter().count(), 1, "{name}");
    }
    for removed in [
        "cookie",
        "authorization",
        "x-forwarded-for",
        "x-weir-write-key",
    ] {
        assert!(received.headers.get(removed).is_none(), "{removed}");
    }
    assert_eq!(received.headers["x-user-id"], "alice");
    let server = post(&gateway, &event("e3"), &[("x-weir-write-key", SHOP_KEY)]).await?;
    assert_eq!(server.status, 202);
    assert_eq!(gateway.origin.requests()[1].stamps()?.kind, Kind::Server);
    assert_eq!(gateway.count_reaching("forged_total", 1).await?, 1);
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_events_never_reach_the_origin() -> Result<()> {
    let mut gateway = shipped().await?;
    let long = "x".repeat((1 << 20) + 1);
    for (status, body, headers) in [
        (401, "{}", &[("x-weir-write-key", "wk_other_key")][..]),
        (403, "{}", &[("origin", "https://evil.example")]),
        (
            403,
            "{}",
            &[
                ("origin", "http://localhost:10000"),
                ("x-weir-write-key", SHOP_KEY),
            ],
        ),
        (415, "{}", &[("content-type", "text/html")]),
        (415, "{}", &[("content-encoding", "br")]),
        (413, &long, &[]),
        (400, "{}", &[("x-weir-consent", "perhaps")]),
    ] {
        let answer = post(&gateway, body, headers).await?;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text());
        assert!(
            answer.json()?["message"]
                .as_str()
                .is_some_and(|text| text.len() > 20)
        );
    }
    let get = gateway.ask(Method::GET, "/events", &[], "").await?;
    assert_eq!(
        (get.status, get.header("allow")),
        (405, Some("POST, OPTIONS"))
    );
    assert!(gateway.origin.requests().is_empty());
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_enforces_consent() -> Result<()> {
    let mut gateway = shipped().await?;
    let none = post(&gateway, &event("e1"), &[("x-weir-consent", "none")]).await?;
    assert_eq!((none.status, &none.json()?["dropped"]), (202, &true.into()));
    assert!(gateway.origin.requests().is_empty());
    let gpc = [
        ("sec-gpc", "1"),
        ("x-user-id", "alice"),
        ("x-weir-visitor", "v1"),
    ];
    assert_eq!(post(&gateway, &event("e2"), &gpc).await?.status, 202);
    let received = gateway.origin.requests().remove(0);
    let stamps = received.stamps()?;
    assert_eq!((stamps.consent, stamps.address), (Consent::Anonymous, None));
    assert!(received.headers.get("x-user-id").is_none());
    assert!(received.headers.get("x-forwarded-for").is_none());
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn image_request_stores_an_event_and_returns_a_pixel() -> Result<()> {
    let mut gateway = shipped().await?;
    let path = "/events.gif?key=wk_shop_web&type=view&visitor=v1&id=g1&a.sku=a%261";
    let image = gateway.ask(Method::GET, path, &[], "").await?;
    assert_eq!(
        (image.status, image.header("content-type")),
        (200, Some("image/gif"))
    );
    assert!(image.body.starts_with(b"GIF89a"));
    let received = gateway.origin.requests().remove(0);
    assert!(!received.path.contains("key="), "{}", received.path);
    assert_eq!(received.stamps()?.key.as_str(), "shop-web");
    assert_eq!(gateway.origin.events()["g1"].attributes["sku"], "a&1");
    // The gateway returns the same image when it drops the event.
    let dropped = format!("{path}&consent=none");
    let dropped = gateway.ask(Method::GET, &dropped, &[], "").await?;
    assert_eq!((dropped.status, dropped.body), (200, image.body));
    assert_eq!(gateway.origin.requests().len(), 1);
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_workers_enforce_one_limit_per_visitor() -> Result<()> {
    let config = r#"{ "keys": [{ "name": "web", "kind": "browser", "key": "wk_shop_web", "origins": ["*"] }],
        "collect": {}, "limits": { "per_visitor": { "rate": 10, "per": "1h" } } }"#;
    let mut gateway = EventGateway::start(Some(config), BTreeMap::new()).await?;
    let mut passed = 0;
    for n in 0..30 {
        let answer = post(
            &gateway,
            &event(&format!("e{n}")),
            &[("x-weir-visitor", "v1")],
        )
        .await?;
        match answer.status {
            202 => passed += 1,
            status => {
                assert_eq!(status, 429);
                assert!(answer.header("retry-after").is_some());
                assert!(answer.header("ratelimit").is_some());
            }
        }
    }
    assert_eq!((passed, gateway.origin.events().len()), (10, 10));
    let other = post(&gateway, &event("other"), &[("x-weir-visitor", "v2")]).await?;
    assert_eq!(other.status, 202);
    assert_eq!(
        gateway
            .count_reaching("requests_total.outcome.limited", 20)
            .await?,
        20
    );
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn bridge_enforces_a_limit_in_redis() -> Result<()> {
    let config = r#"{ "keys": [{ "name": "web", "kind": "browser", "key": "wk_shop_web", "origins": ["*"] }],
        "collect": {}, "limits": { "per_visitor": { "rate": 10, "per": "1h" }, "store": "redis",
        "redis": { "cluster": "weir_redis", "key_prefix": "weir", "topology": "single", "deadline_ms": 5000 } } }"#;
    let mut gateway = EventGateway::start_with_redis(config).await?;
    let mut passed = 0;
    for n in 0..30 {
        let visitor = [("x-weir-visitor", "v1")];
        let answer = post(&gateway, &event(&format!("e{n}")), &visitor).await?;
        match answer.status {
            202 => passed += 1,
            status => assert_eq!(status, 429, "{}", answer.text()),
        }
    }
    assert_eq!((passed, gateway.origin.events().len()), (10, 10));
    let other = post(&gateway, &event("other"), &[("x-weir-visitor", "v2")]).await?;
    assert_eq!(other.status, 202);
    // Redis counts, with one key per visitor.
    let redis = gateway.redis.as_ref().context("no Redis")?;
    let mut connection = redis.connection().await?;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("weir:limit:*")
        .query_async(&mut connection)
        .await?;
    assert_eq!(keys.len(), 2, "{keys:?}");
    gateway.check()
}

/// A dead origin is reported immediately. Clients send unacknowledged events again with the same IDs.
#[tokio::test(flavor = "multi_thread")]
async fn unavailable_origin_acknowledges_nothing_and_recovers() -> Result<()> {
    let mut gateway = shipped().await?;
    assert_eq!(post(&gateway, &event("e1"), &[]).await?.status, 202);
    gateway.origin.kill();
    let page = [("origin", "http://localhost:10000")];
    let dead = post(&gateway, &event("e2"), &page).await?;
    assert_eq!(dead.status, 503);
    assert_eq!(
        dead.header("access-control-allow-origin"),
        Some("http://localhost:10000")
    );
    gateway.origin.revive().await?;
    for id in ["e1", "e2"] {
        assert_eq!(post(&gateway, &event(id), &[]).await?.status, 202);
    }
    assert_eq!(gateway.origin.events().len(), 2);
    assert_eq!(gateway.origin.duplicates(), 1);
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_match_envoys() -> Result<()> {
    let gateway = shipped().await?;
    post(&gateway, &event("e1"), &[]).await?;
    gateway
        .count_reaching("requests_total.outcome.forwarded", 1)
        .await?;
    let url = format!("{}/stats/prometheus", gateway.envoys[0].admin_url());
    let names = scraped(&url).await?;
    let own: BTreeSet<String> = names
        .into_iter()
        .filter(|name| name.starts_with("weir_events_"))
        .collect();
    assert_eq!(own, documented(Gateways::Events));
    let stats = http::get(&url).await?.text();
    assert!(
        stats.contains(r#"weir_events_requests_total{outcome="forwarded"} 1"#),
        "{stats}"
    );
    Ok(())
}
