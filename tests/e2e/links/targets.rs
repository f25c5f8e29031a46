//! Links with different targets for some visitors, and searches by click count.

use anyhow::Result;
use serde_json::{Value, json};
use weir_stack::http::Method;
use weir_tests::{LinkSetup, until};

use super::{SHIPPED, TARGET};

const DE: &str = "https://de.example/";
const NEW: &str = "https://new.example/";
const REF: &str = "https://ref.example/";

#[tokio::test(flavor = "multi_thread")]
async fn visitors_are_routed_by_country_share_and_query() -> Result<()> {
    let setup = LinkSetup {
        gateways: 2,
        config: Some(
            r#"{ "redis": {}, "clicks": { "trusted_hops": 1, "flush_ms": 100 }, "country_header": "x-geo-country" }"#,
        ),
        ..SHIPPED
    };
    let mut gateways = setup.start().await?;
    let rules = json!([
        { "countries": ["DE"], "target": DE },
        { "query": [{ "name": "ref", "value": "a b" }], "target": REF },
        { "percent": 50, "target": NEW },
    ]);
    let preview = json!({ "title": "<Spring>" });
    let fields = json!({ "rules": rules, "preview": preview, "tags": ["spring"] });
    let code = gateways.create(TARGET, fields).await?;
    let path = format!("/{code}");
    let led = async |gateway: usize, path: &str, headers: &[(&str, &str)]| -> Result<String> {
        let answer = gateways.ask(gateway, path, headers).await?;
        anyhow::ensure!(answer.status == 302, "{}", answer.status);
        Ok(answer.header("location").unwrap_or_default().to_owned())
    };
    assert_eq!(led(0, &path, &[("x-geo-country", "DE")]).await?, DE);
    assert_eq!(led(0, &format!("{path}?ref=a+b"), &[]).await?, REF);
    // A hundred visitors: each gets the same target at both gateways and again.
    let mut new = 0;
    for n in 0..100 {
        let chain = format!("192.0.2.{n}");
        let headers = [
            ("x-forwarded-for", chain.as_str()),
            ("user-agent", "curl/8"),
        ];
        let first = led(0, &path, &headers).await?;
        assert!([TARGET, NEW].contains(&first.as_str()), "{first}");
        assert_eq!(led(1, &path, &headers).await?, first);
        new += usize::from(first == NEW);
    }
    // By the binomial distribution, fails once in a million.
    assert!((26..=74).contains(&new), "{new}");
    let displayed = gateways
        .ask(1, &path, &[("user-agent", "WhatsApp/2.23")])
        .await?;
    assert_eq!(displayed.status, 200);
    assert!(
        displayed
            .text()
            .contains("og:title\" content=\"&lt;Spring&gt;\"")
    );

    let once = json!({ "max_clicks": 1, "ended_target": "https://over.example/" });
    let once = format!("/{}", gateways.create("https://once.example/", once).await?);
    assert_eq!(led(0, &once, &[]).await?, "https://once.example/");
    assert_eq!(led(1, &once, &[]).await?, "https://over.example/");
    gateways
        .create("https://unclicked.example/", json!({}))
        .await?;

    until("the links are in the order of their clicks", async || {
        let list = "/links?sort=clicks";
        let Ok(page) = gateways.admin(Method::GET, list, Value::Null, 200).await else {
            return false;
        };
        let clicks = page["links"].as_array().map(|links| {
            links
                .iter()
                .map(|link| link["clicks"].as_u64().unwrap_or(9))
                .collect::<Vec<_>>()
        });
        // Without the preview and the clicks after the end.
        clicks.is_some_and(|clicks| clicks == [202, 1, 0])
    })
    .await?;
    let found = gateways
        .admin(
            Method::GET,
            "/links?q=SPRING&target=new.ex",
            Value::Null,
            200,
        )
        .await?;
    assert_eq!(found["links"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["links"][0]["code"], code.as_str());
    gateways.check()
}

/// A QR code contains the link with a marker. The marker is not passed to the target, and distinguishes scans.
#[tokio::test(flavor = "multi_thread")]
async fn qr_scans_are_counted_apart_from_clicks() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let code = gateways
        .create(TARGET, json!({ "pass_query": true }))
        .await?;
    let location = async |query: &str, headers: &[(&str, &str)]| -> Result<String> {
        let answer = gateways.ask(0, &format!("/{code}{query}"), headers).await?;
        Ok(answer.header("location").unwrap_or_default().to_owned())
    };
    assert_eq!(location("?qr", &[]).await?, TARGET);
    let joint = if TARGET.contains('?') { '&' } else { '?' };
    assert_eq!(
        location("?qr&x=1", &[]).await?,
        format!("{TARGET}{joint}x=1")
    );
    assert_eq!(location("", &[]).await?, TARGET);
    let page = [("referer", "https://page.example/")];
    assert_eq!(location("?qr", &page).await?, TARGET);
    until("they are counted", async || {
        let path = format!("/links/{code}/stats");
        let stats = gateways.admin(Method::GET, &path, Value::Null, 200).await;
        stats.is_ok_and(|stats| stats["clicks"] == 4 && stats["scans"] == 2)
    })
    .await?;
    let path = format!("/links/{code}/crosstab?referrer=qr&tz=Asia/Tokyo");
    let crosstab = gateways.admin(Method::GET, &path, Value::Null, 200).await?;
    assert_eq!(
        (&crosstab["clicks"], &crosstab["tz"]),
        (&json!(2), &json!("Asia/Tokyo"))
    );
    gateways.check()
}
