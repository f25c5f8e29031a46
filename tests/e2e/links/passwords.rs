//! Links that require a password.

use anyhow::Result;
use serde_json::{Value, json};
use weir_stack::http::{Connection, Method, Response};
use weir_tests::{LinkGateways, until};

use super::{SHIPPED, TARGET};

/// Submits the form of a link.
async fn typed(gateways: &LinkGateways, path: &str, password: &str) -> Result<Response> {
    let mut connection = Connection::open(&gateways.authority(0)).await?;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = format!("password={password}");
    connection.send(Method::POST, path, &form, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_without_the_password_is_not_redirected() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let code = gateways
        .create(TARGET, json!({ "password": "s3sam" }))
        .await?;
    let path = format!("/{code}");
    // Each worker loads it from Redis, and then has it in memory.
    for _ in 0..10 {
        let page = gateways.ask(0, &path, &[]).await?;
        assert_eq!(page.status, 200);
        assert!(page.text().contains("<form method=\"post\">"));
        assert!(!page.text().contains("target.example") && page.header("location").is_none());
    }
    let wrong = typed(&gateways, &path, "sesam").await?;
    assert_eq!((wrong.status, wrong.header("location")), (403, None));
    let right = typed(&gateways, &path, "s3sam").await?;
    assert_eq!(
        (right.status, right.header("location")),
        (303, Some(TARGET))
    );
    until("gateways have counted", async || {
        let count = gateways.count("answers_total.answer.guarded").await;
        count.is_ok_and(|count| count == 12)
    })
    .await?;

    // Counts the click once: neither the pages nor the wrong passwords.
    until("the click is counted", async || {
        let stats = format!("/links/{code}/stats");
        let stats = gateways.admin(Method::GET, &stats, Value::Null, 200).await;
        stats.is_ok_and(|stats| stats["clicks"] == 1)
    })
    .await?;

    // Works without Redis.
    gateways.redis.stop();
    let right = typed(&gateways, &path, "s3sam").await?;
    assert_eq!(right.header("location"), Some(TARGET), "{}", right.text());
    assert_eq!(typed(&gateways, &path, "x").await?.status, 403);
    gateways.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn password_change_reaches_gateways_within_a_second() -> Result<()> {
    let mut gateways = SHIPPED.start().await?;
    let code = gateways.create(TARGET, json!({})).await?;
    assert_eq!(gateways.location(0, &code).await?, TARGET);
    let path = format!("/links/{code}");
    let guarded = json!({ "password": "s3sam" });
    gateways.admin(Method::PATCH, &path, guarded, 200).await?;
    let leads_on = async || gateways.location(0, &code).await.is_ok();
    until("no worker leads on", async || {
        for _ in 0..20 {
            if leads_on().await {
                return false;
            }
        }
        true
    })
    .await?;
    let open = json!({ "password": null });
    gateways.admin(Method::PATCH, &path, open, 200).await?;
    until("it leads on", leads_on).await?;
    gateways.check()
}
