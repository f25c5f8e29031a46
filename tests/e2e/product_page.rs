//! The example of a product page from a CDN, `docs/examples/product-page`, with a real gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use weir_stack::report::SilentReporter;
use weir_stack::{Stack, tools};
use weir_tests::{Browser, Server, response};

const PAGE: &str = include_str!("../../docs/examples/product-page/index.html");
const SCRIPT: &str = include_str!("../../docs/examples/product-page/countdown.js");
const STYLE: &str = include_str!("../../docs/examples/product-page/product.css");

fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Replaces a CDN.
async fn cdn(page: String) -> Result<Server> {
    let respond =
        move |request: &hyper::Request<()>, _: hyper::body::Bytes| match request.uri().path() {
            "/" => response(200, "text/html", page.clone()),
            "/countdown.js" => response(200, "text/javascript", SCRIPT),
            "/product.css" => response(200, "text/css", STYLE),
            _ => response(404, "text/plain", ""),
        };
    Server::start(0, Arc::new(respond)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn countdown_uses_the_gateway_clock_and_opens_the_sale() -> Result<()> {
    let stack = Stack::builder().key_prefix("countdown").start().await?;
    let starts_at_ms = now_ms() + 12_000;
    let more = json!({ "starts_at_ms": starts_at_ms });
    stack.open_sale_with("shoes", 5, 1, more).await?;
    let page = PAGE.replace("https://sale.example.com", stack.gateway_url().as_str());
    ensure!(page != PAGE, "the page names another gateway");
    let server = cdn(page).await?;
    let dir = tempfile::tempdir()?;
    let browser = Browser::start(
        &tools::Chromium::find_or_get(&mut SilentReporter)?,
        dir.path(),
    )
    .await?;
    browser
        .open(&format!("http://{}/", server.address()))
        .await?;
    let counts =
        "return /starts in 00:00:0\\d/.test(document.getElementById('countdown').textContent)";
    browser.until(counts, &[]).await?;
    let is_hidden = "return document.getElementById('buy').hidden";
    ensure!(browser.run(is_hidden, &[]).await? == json!(true));
    browser
        .wait_for_text("#countdown", "The sale is on.")
        .await?;
    ensure!(now_ms() >= starts_at_ms, "it opened too early");
    ensure!(browser.run(is_hidden, &[]).await? == json!(false));
    // By then the page has polled the gateway again.
    tokio::time::sleep(Duration::from_secs(3)).await;
    browser
        .wait_for_text("#countdown", "The sale is on.")
        .await?;
    let script = "return performance.getEntriesByType('resource').filter(it => it.name.endsWith('/sales/shoes')).length";
    ensure!(browser.run(script, &[]).await? == json!(2));
    Ok(())
}
