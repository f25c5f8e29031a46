//! The client in `sdk` and the sample shop in `examples/storefront`, with a real gateway: in Node and in Chromium.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::http::Method;
use weir_stack::report::SilentReporter;
use weir_stack::storefront::{SALE, Storefront};
use weir_stack::{Stack, command, tools, workspace};
use weir_tests::{Browser, Server, response};

use super::{PHONE, looks_right, nothing_to_complain};

/// Time to look at the countdown in the browser.
const STARTS_IN: Duration = Duration::from_secs(8);

/// Includes the installation of packages.
const NODE_LIMIT: Duration = Duration::from_secs(600);

/// All filters as in `cargo xtask up`, with the shop's sale and event types.
async fn sandbox(starts_in: Duration) -> Result<Stack> {
    let stack = Stack::builder()
        .workers(2)
        .all_filters()
        .events()
        .fitment()
        .edit_config(|config| config.cors_for_local_pages(&[]))
        .edit_config(EnvoyConfig::event_keys_for_any_page)
        .edit_config(EnvoyConfig::room_before_sales)
        .start()
        .await?;
    for name in ["cart", "page", "view", "weir.lost"] {
        let path = format!("/events/types/{name}");
        stack.ensure(Method::PUT, &path, &json!({})).await?;
    }
    stack.open_storefront(starts_in).await?;
    Ok(stack)
}

/// A copy of `sdk` with its packages, where its tests run.
fn sdk() -> Result<TempDir> {
    let modules = tools::SdkModules::find_or_get(&mut SilentReporter)?;
    let folder = TempDir::new_in(&modules.0)?;
    let source = workspace::root().join("sdk");
    let mut copy = Command::new("cp");
    copy.arg("-R");
    for name in [
        "src",
        "dist",
        "test",
        "build.js",
        "openapi.js",
        "gateway.json",
    ] {
        copy.arg(source.join(name));
    }
    for name in [
        "openapi.json",
        "package.json",
        "tsconfig.json",
        "weir-events.js",
    ] {
        copy.arg(source.join(name));
    }
    copy.arg(folder.path());
    command::succeed(&mut copy, NODE_LIMIT)?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn client_buys_in_node_and_openapi_fits_all_answers() -> Result<()> {
    let stack = sandbox(Duration::ZERO).await?;
    let folder = sdk()?;
    let mut node = Command::new("sh");
    node.args(["-c", "node --test --test-reporter spec test/*.test.js"])
        .current_dir(folder.path())
        .env("WEIR_GATEWAY", stack.gateway_url())
        .env("WEIR_ADMIN", stack.origin_admin_url())
        .env("WEIR_ADMIN_TOKEN", &stack.admin_token)
        .env("WEIR_PAY", "1");
    let run = tokio::task::spawn_blocking(move || command::succeed(&mut node, NODE_LIMIT));
    let output = run.await??;
    ensure!(output.contains(" fail 0"), "{output}");
    ensure!(output.contains(" skipped 0"), "{output}");
    Ok(())
}

/// A shop, and a browser that opened it.
struct Visit {
    browser: Browser,
    stack: Stack,
    shop: Storefront,
    _dir: TempDir,
}

impl Visit {
    async fn start() -> Result<Self> {
        let stack = sandbox(STARTS_IN).await?;
        let shop = Storefront::start(0, &stack.gateway_url(), true).await?;
        let dir = tempfile::tempdir()?;
        let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
        let browser = Browser::start(&tool, dir.path()).await?;
        Ok(Self {
            browser,
            stack,
            shop,
            _dir: dir,
        })
    }

    async fn open(&self, query: &str) -> Result<()> {
        let url = format!("{}/{query}", self.shop.url());
        self.browser.open(&url).await?;
        let is_ready = "return document.body.dataset.ready === 'true'";
        self.browser.until(is_ready, &[]).await.map(drop)
    }

    async fn sign_in(&self, name: &str) -> Result<()> {
        self.browser.type_into("#name", name).await?;
        self.browser.click("#sign-in button[value=ok]").await
    }

    async fn room(&self, mode: &str) -> Result<()> {
        let setting =
            json!({ "mode": mode, "per_minute": 60_000, "active_max": 0, "opens_at_ms": 0 });
        let path = "/rooms/drop";
        self.stack.ensure(Method::PUT, path, &setting).await
    }

    /// Presses Buy on the drop's page, as soon as the sale runs.
    async fn buy(&self) -> Result<()> {
        let can_buy = "return document.querySelector('.buy > .primary').disabled === false";
        self.browser.until(can_buy, &[]).await?;
        self.browser.click(".buy > .primary").await
    }

    /// The order on the drop's page, once it is placed.
    async fn ordered(&self) -> Result<String> {
        let order = "return document.querySelector('.buy [data-order]')?.dataset.order";
        let order = self.browser.until(order, &[]).await?;
        Ok(order.as_str().context("no order")?.to_owned())
    }

    /// Pays on the provider's page, in this tab.
    async fn pay(&self) -> Result<()> {
        self.browser.run("window.open = () => null", &[]).await?;
        self.browser.click(".order .primary").await?;
        self.browser
            .wait_for_text("h1", "Pay for your order")
            .await?;
        self.browser.click("button[value=paid]").await?;
        self.browser.wait_for_text("h1", "Paid").await
    }

    async fn own_order_is(&self, status: &str) -> Result<()> {
        self.open("?view=orders").await?;
        self.browser.wait_for_text(".order .state", status).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shop_sells_with_countdown_challenge_and_payment() -> Result<()> {
    let visit = Visit::start().await?;
    let browser = &visit.browser;
    visit.open("").await?;
    browser.wait_for_text(".hero h1", "Summit roof box").await?;
    looks_right(browser, "storefront-home").await?;
    browser.click(".hero .primary").await?;
    browser.wait_for_text(".buy .clock", "sec").await?;
    let is_early = "return document.querySelector('.buy > .primary').disabled";
    assert_eq!(browser.run(is_early, &[]).await?, Value::Bool(true));
    visit.buy().await?;
    visit.sign_in("ada").await?;
    let order = visit.ordered().await?;
    ensure!(order.starts_with(SALE), "{order}");
    browser
        .wait_for_text(".order .state", "Waiting for payment")
        .await?;
    looks_right(browser, "storefront-ordered").await?;
    visit.pay().await?;
    visit.own_order_is("Paid").await?;
    looks_right(browser, "storefront-orders").await?;
    // Another user sees none of it.
    browser
        .run("localStorage['shop.user'] = 'bob'", &[])
        .await?;
    visit.open("?view=orders").await?;
    browser
        .wait_for_text("main", "You have no orders yet")
        .await?;
    nothing_to_complain(browser, &["403"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn phone_waits_in_line_then_buys_what_fits_the_car() -> Result<()> {
    let visit = Visit::start().await?;
    let browser = &visit.browser;
    browser.show_on(PHONE).await?;
    visit.open("?sku=dash-cam-4k").await?;
    visit.open("?sku=roof-box-420").await?;
    for (vehicle, fit) in [("1000002", "does_not"), ("1000001", "fits")] {
        let choose = "const car = document.getElementById('car'); car.value = arguments[0]; \
                      car.dispatchEvent(new Event('change'))";
        browser.run(choose, &[json!(vehicle)]).await?;
        let answer = "return document.querySelector('.fit output').dataset.fit === arguments[0]";
        browser.until(answer, &[json!(fit)]).await?;
    }
    visit.room("paused").await?;
    visit.buy().await?;
    visit.sign_in("carol").await?;
    browser
        .wait_for_text(".buy [role=status]", "in line")
        .await?;
    looks_right(browser, "storefront-queue").await?;
    browser.show_on(PHONE).await?;
    visit.room("open").await?;
    visit.ordered().await?;
    visit.pay().await?;
    visit.own_order_is("Paid").await?;
    // Views before the sign-in belong to the user.
    visit.open("").await?;
    browser.wait_for_text("#recent", "Witness dash cam").await?;
    browser.click("#forget").await?;
    visit.open("").await?;
    let is_empty = "return document.getElementById('recent').hidden";
    browser.until(is_empty, &[]).await.map(drop)
}

/// The first HTML block of the guide.
fn pasted() -> Result<String> {
    let guide = std::fs::read_to_string(workspace::root().join("docs/front-end.md"))?;
    let (_, rest) = guide.split_once("```html\n").context("no HTML block")?;
    let (block, _) = rest.split_once("```").context("the block has no end")?;
    Ok(block.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_the_front_end_guide_works_when_pasted() -> Result<()> {
    let stack = sandbox(STARTS_IN).await?;
    let page = pasted()?;
    let own = page.replace("http://127.0.0.1:10000", &stack.gateway_url());
    ensure!(own != page, "the page names another gateway");
    let client = std::fs::read_to_string(workspace::root().join("sdk/dist/weir.js"))?;
    let worker = std::fs::read_to_string(workspace::root().join("sdk/dist/weir-worker.js"))?;
    let respond =
        move |request: &hyper::Request<()>, _: hyper::body::Bytes| match request.uri().path() {
            "/" => response(200, "text/html", own.clone()),
            "/weir.js" => response(200, "text/javascript", client.clone()),
            "/weir-worker.js" => response(200, "text/javascript", worker.clone()),
            _ => response(404, "text/plain", ""),
        };
    let server = Server::start(0, Arc::new(respond)).await?;
    let dir = tempfile::tempdir()?;
    let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
    let browser = Browser::start(&tool, dir.path()).await?;
    browser
        .open(&format!("http://{}/", server.address()))
        .await?;
    browser.wait_for_text("#text", "Starts in").await?;
    browser.wait_for_text("#text", "running").await?;
    browser.click("#buy").await?;
    browser.wait_for_text("h1", "Pay for your order").await
}
