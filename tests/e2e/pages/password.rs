//! The page that requests a link's password, at a gateway.

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::report::SilentReporter;
use weir_stack::tools;
use weir_tests::{Browser, LinkSetup, until};

use super::{SCREEN, looks_right};

const TARGET: &str = "https://target.example/page";

/// Browsers restrict redirects of a form by its page's policy, some of them including the final target.
#[tokio::test(flavor = "multi_thread")]
async fn visitor_enters_the_link_password_on_the_page() -> Result<()> {
    let gateways = LinkSetup {
        gateways: 1,
        workers: 1,
        config: None,
    }
    .start()
    .await?;
    let code = gateways
        .create(TARGET, json!({ "password": "s3sam" }))
        .await?;
    let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
    let browser = Browser::start(&tool, &gateways.data().join("browser")).await?;
    browser.show_on(SCREEN).await?;
    let url = format!("http://{}/{code}", gateways.authority(0));
    browser.open(&url).await?;
    browser
        .wait_for_text("h1", "This link is protected")
        .await?;
    looks_right(&browser, "link-password").await?;
    browser.type_into("[name=password]", "sesam").await?;
    browser.click("button").await?;
    browser
        .wait_for_text("[role=alert]", "Wrong password.")
        .await?;
    looks_right(&browser, "link-password-wrong").await?;
    browser.type_into("[name=password]", "s3sam").await?;
    browser.click("button").await?;
    until("the browser is led on", async || {
        browser.url().await.is_ok_and(|url| url.starts_with(TARGET))
    })
    .await
    .context("the form was not let go")
}
