//! Views recorded by route, without a change to the site.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use weir_event::stamps::Kind;
use weir_stack::http::Method;
use weir_tests::EventGateway;

use super::shipped;

async fn look(gateway: &EventGateway, sku: &str, headers: &[(&str, &str)]) -> Result<u16> {
    let path = format!("/products/{sku}");
    Ok(gateway.ask(Method::GET, &path, headers, "").await?.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shown_page_is_one_view() -> Result<()> {
    let mut gateway = shipped().await?;
    let alice = [("x-user-id", "alice"), ("cookie", "weir_visitor=v1")];
    for n in 0..40 {
        assert_eq!(look(&gateway, &format!("s{n}"), &alice).await?, 200);
    }
    assert_eq!(
        look(&gateway, "bot", &[("user-agent", "Googlebot/2.1")]).await?,
        200
    );
    assert_eq!(
        look(&gateway, "ahead", &[("sec-purpose", "prefetch")]).await?,
        200
    );
    assert_eq!(look(&gateway, "gone", &alice).await?, 404);
    assert_eq!(
        look(&gateway, "private", &[("cookie", "weir_consent=none")]).await?,
        200
    );
    gateway.origin.expect_count(40).await?;
    for (outcome, count) in [
        ("view", 40),
        ("bot", 1),
        ("prefetch", 1),
        ("failed", 1),
        ("dropped", 1),
    ] {
        let name = format!("observed_total.outcome.{outcome}");
        assert_eq!(
            gateway.count_reaching(&name, count).await?,
            count,
            "{outcome}"
        );
    }
    assert_eq!(
        gateway
            .count_reaching("views_total.outcome.accepted", 40)
            .await?,
        40
    );
    let events = gateway.origin.events();
    let skus: BTreeSet<String> = events
        .values()
        .map(|event| event.attributes["sku"].to_string())
        .collect();
    assert_eq!((events.len(), skus.len()), (40, 40));
    let view = events.values().next().context("no view")?;
    assert_eq!(
        view.customer.as_ref().map(|name| name.as_str()),
        Some("alice")
    );
    assert_eq!(view.visitor.as_ref().map(|name| name.as_str()), Some("v1"));
    let requests = gateway.origin.requests();
    ensure!(
        requests.len() < 20,
        "views come in batches, not in {} requests",
        requests.len()
    );
    let stamps = requests[0].stamps()?;
    assert_eq!(
        (stamps.key.as_str(), stamps.kind),
        ("shop-web", Kind::Server)
    );
    gateway.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn views_wait_during_origin_outage_and_each_arrives_once() -> Result<()> {
    let mut gateway = shipped().await?;
    gateway.origin.kill();
    for n in 0..40 {
        assert_eq!(look(&gateway, &format!("s{n}"), &[]).await?, 200);
    }
    gateway.count_reaching("batches_failed_total", 1).await?;
    gateway.origin.revive().await?;
    gateway.origin.expect_count(40).await?;
    assert_eq!(
        gateway
            .count_reaching("views_total.outcome.accepted", 40)
            .await?,
        40
    );
    assert_eq!(gateway.origin.events().len(), 40);
    gateway.check()
}
