//! A browser for tests: headless Chromium, driven by [`fantoccini`].

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};
use weir_stack::http::{self, Method};
use weir_stack::process::Process;
use weir_stack::{ports, tools};

use crate::PATIENCE;

/// A browser starts within seconds, or longer on a machine that compiles.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The polling interval for a page.
const POLL: Duration = Duration::from_millis(50);

/// The maximum number of retries for an element that the page replaces meanwhile.
const STALE_MAX: u32 = 20;

/// Runs axe-core and reports violations of WCAG 2.2 AA.
const EXAMINE: &str = "
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
    return axe.run(document, { runOnly: tags, resultTypes: ['violations'] }).then((found) =>
        found.violations.flatMap((rule) => rule.nodes.map((node) => ({
            rule: rule.id, at: node.target.join(' '), html: node.html, why: node.failureSummary,
        }))));";

/// A running browser with one page.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    // Dropped in this order: the driver disconnects before the browser ends.
    driver: Process,
    browser: Process,
}

/// The screen that shows the page.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// The width in CSS pixels.
    pub width: u32,
    /// The height in CSS pixels.
    pub height: u32,
    /// Whether the system prefers dark pages.
    pub is_dark: bool,
    /// Whether it is a phone's screen.
    pub is_phone: bool,
}

/// A chromedriver command beyond WebDriver: its path within the session, and its parameters.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _url: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.parameters.to_string()))
    }
}

impl Browser {
    /// Starts a browser with its profile and logs in `dir`, which it must not share.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(tool: &tools::Chromium, dir: &Path) -> Result<Self> {
        let debug_port = ports::free()?;
        let (binary, profile) = (tool.browser.clone(), dir.join("profile"));
        let make = move || browser_command(&binary, &profile, debug_port);
        let mut browser = Process::start("chromium", &dir.join("chromium.log"), make)?;
        let debugger = format!("http://127.0.0.1:{debug_port}/json/version");
        let is_ready = || http::is_ok(&debugger);
        browser.wait_ready(READY_LIMIT, is_ready).await?;
        let (driver, url) = start_driver(&tool.driver, dir).await?;
        let capabilities = capabilities(debug_port)?;
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&url).await?;
        Ok(Self {
            client,
            driver,
            browser,
        })
    }

    /// Checks that the browser and its driver are running.
    ///
    /// # Errors
    /// One of them ended.
    pub fn check(&mut self) -> Result<()> {
        self.browser.check()?;
        Ok(self.driver.check()?)
    }

    /// Opens `url` and waits until it has loaded.
    ///
    /// # Errors
    /// It does not load.
    pub async fn open(&self, url: &str) -> Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// The current address.
    ///
    /// # Errors
    /// The browser does not respond.
    pub async fn url(&self) -> Result<String> {
        Ok(self.client.current_url().await?.into())
    }

    /// Runs `script`, the body of a JavaScript function, with `arguments`. Returns its result, or the value of a
    /// returned promise.
    ///
    /// # Errors
    /// The script throws.
    pub async fn run(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        Ok(self.client.execute(script, arguments.to_vec()).await?)
    }

    /// Waits until `script` returns a truthy value, and returns that.
    ///
    /// # Errors
    /// The script throws, or returns no truthy value within [`PATIENCE`].
    pub async fn until(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let value = self.run(script, arguments).await?;
            let is_false = matches!(value, Value::Null | Value::Bool(false));
            if !is_false && value != json!("") && value != json!(0) {
                return Ok(value);
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "not within {PATIENCE:?}: {script} with {arguments:?}; the page says:\n{}",
                self.page_text().await.unwrap_or_default()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// All visible text of the page.
    ///
    /// # Errors
    /// The browser does not respond.
    pub async fn page_text(&self) -> Result<String> {
        let text = self.run("return document.body.innerText", &[]).await?;
        Ok(text.as_str().context("the page has no text")?.to_owned())
    }

    /// Waits for the element at `selector` (CSS), and returns its visible text.
    ///
    /// # Errors
    /// It does not appear within [`PATIENCE`].
    pub async fn text(&self, selector: &str) -> Result<String> {
        let text = self.act_on(selector, async |element| element.text().await);
        text.await.with_context(|| format!("no {selector}"))
    }

    /// Waits until the element at `selector` shows `expected`.
    ///
    /// # Errors
    /// It does not within [`PATIENCE`].
    pub async fn wait_for_text(&self, selector: &str, expected: &str) -> Result<()> {
        let script =
            "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])";
        self.until(script, &[json!(selector), json!(expected)])
            .await
            .map(drop)
    }

    /// Clicks the element at `selector` once it exists, like a person: it must be visible and not covered.
    ///
    /// # Errors
    /// The click fails.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let clicked = self.act_on(selector, async |element| element.click().await);
        clicked
            .await
            .with_context(|| format!("cannot click {selector}"))
    }

    /// Replaces the text of a field.
    ///
    /// # Errors
    /// The field is missing or not editable.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let typed = self.act_on(selector, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        });
        typed
            .await
            .with_context(|| format!("cannot type into {selector}"))
    }

    /// Selects a file.
    ///
    /// # Errors
    /// The control is missing, or is not a file input.
    pub async fn choose_file(&self, selector: &str, file: &Path) -> Result<()> {
        let path = file.display().to_string();
        let chosen = self.act_on(selector, async |element| element.send_keys(&path).await);
        chosen
            .await
            .with_context(|| format!("cannot choose a file in {selector}"))
    }

    /// Performs an action on the element at `selector` once it exists. Retries if the page was redrawn in between, so
    /// that the element was replaced.
    async fn act_on<T>(
        &self,
        selector: &str,
        act: impl AsyncFn(Element) -> Result<T, CmdError>,
    ) -> Result<T, CmdError> {
        for _ in 1..STALE_MAX {
            let done = match self.find(selector).await {
                Ok(element) => act(element).await,
                Err(error) => Err(error),
            };
            match done {
                Err(error) if error.is_stale_element_reference() => {}
                done => return done,
            }
        }
        act(self.find(selector).await?).await
    }

    async fn find(&self, selector: &str) -> Result<Element, CmdError> {
        let wait = self.client.wait().at_most(PATIENCE).every(POLL);
        wait.for_element(Locator::Css(selector)).await
    }

    /// Changes the screen.
    ///
    /// # Errors
    /// The browser fails.
    pub async fn show_on(&self, screen: Screen) -> Result<()> {
        let metrics = json!({
            "width": screen.width, "height": screen.height,
            "deviceScaleFactor": 1, "mobile": screen.is_phone,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await?;
        let scheme = if screen.is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// A PNG of the whole page.
    ///
    /// # Errors
    /// The browser fails.
    pub async fn screenshot(&self) -> Result<Vec<u8>> {
        let body = json!({ "format": "png", "captureBeyondViewport": true });
        let response = self.devtools("Page.captureScreenshot", body).await?;
        let data = response["data"].as_str().context("no picture")?;
        let picture = STANDARD.decode(data);
        picture.map_err(|error| anyhow!("the picture is not base64: {error}"))
    }

    /// The errors and warnings that the page has caused so far, such as requests blocked by its policy.
    ///
    /// # Errors
    /// The browser does not respond.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let logged = self
            .extension("se/log", json!({ "type": "browser" }))
            .await?;
        let entries = logged.as_array().context("the log is no list")?;
        Ok(entries.iter().map(ToString::to_string).collect())
    }

    /// The violations of WCAG 2.2 AA in the page, with their locations. `axe` is the source of axe-core.
    ///
    /// # Errors
    /// The browser does not respond.
    pub async fn faults(&self, axe: &str) -> Result<Vec<String>> {
        let is_there = self.run("return 'axe' in window", &[]).await?;
        if is_there != json!(true) {
            self.run(axe, &[]).await?;
        }
        let found = self.run(EXAMINE, &[]).await?;
        let found = found.as_array().context("axe-core has told no list")?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    /// Adds these headers to all further requests, as a gateway before the origin would.
    ///
    /// # Errors
    /// The browser fails.
    pub async fn send_headers(&self, headers: &[(&str, &str)]) -> Result<()> {
        let headers: serde_json::Map<String, Value> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        self.devtools("Network.enable", json!({})).await?;
        let headers = json!({ "headers": headers });
        self.devtools("Network.setExtraHTTPHeaders", headers)
            .await?;
        Ok(())
    }

    /// Sends a command of the Chrome DevTools protocol.
    async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": parameters });
        self.extension("goog/cdp/execute", body).await
    }

    async fn extension(&self, path: &'static str, parameters: Value) -> Result<Value> {
        let command = Extension { path, parameters };
        Ok(self.client.issue_cmd(command).await?)
    }
}

fn browser_command(binary: &Path, profile: &Path, debug_port: u16) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["--headless=new", "--disable-gpu", "--no-first-run"])
        // Containers have little shared memory.
        .arg("--disable-dev-shm-usage")
        .args(["--disable-background-networking", "--disable-sync"])
        .arg(format!("--remote-debugging-port={debug_port}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("about:blank");
    if rustix::process::getuid().is_root() {
        // Chromium's sandbox does not work for root, and without this flag it refuses to start.
        command.arg("--no-sandbox");
    }
    command
}

/// Starts chromedriver; also returns its URL.
async fn start_driver(binary: &Path, dir: &Path) -> Result<(Process, String)> {
    let port = ports::free()?;
    let binary = binary.to_path_buf();
    let make = move || {
        let mut command = Command::new(&binary);
        command.arg(format!("--port={port}"));
        command
    };
    let mut driver = Process::start("chromedriver", &dir.join("chromedriver.log"), make)?;
    let url = format!("http://127.0.0.1:{port}");
    let status = format!("{url}/status");
    let is_ready = || http::is_ok(&status);
    driver.wait_ready(READY_LIMIT, is_ready).await?;
    Ok((driver, url))
}

/// Connects the driver to the running browser.
fn capabilities(debug_port: u16) -> Result<Capabilities> {
    let body = json!({
        "goog:chromeOptions": { "debuggerAddress": format!("127.0.0.1:{debug_port}") },
        "goog:loggingPrefs": { "browser": "WARNING" },
    });
    let Value::Object(body) = body else {
        return Err(anyhow!("capabilities are an object"));
    };
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_stack::report::SilentReporter;

    #[tokio::test]
    async fn browser_types_clicks_and_takes_a_screenshot() {
        let temp = tempfile::tempdir().unwrap();
        let tool = tools::Chromium::find_or_get(&mut SilentReporter).unwrap();
        let mut browser = Browser::start(&tool, temp.path()).await.unwrap();
        let page = "data:text/html,<input id=name value=x><button>Go</button><p></p><script>\
                    document.querySelector('button').onclick = () => setTimeout(() => {\
                    document.querySelector('p').textContent = 'Hello ' + document.querySelector('input').value\
                    }, 200)</script>";
        browser.open(page).await.unwrap();
        browser.type_into("#name", "Ada").await.unwrap();
        browser.click("button").await.unwrap();
        browser.wait_for_text("p", "Hello Ada").await.unwrap();
        let screen = Screen {
            width: 390,
            height: 844,
            is_dark: true,
            is_phone: true,
        };
        browser.show_on(screen).await.unwrap();
        let is_dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
        assert_eq!(browser.run(is_dark, &[]).await.unwrap(), json!(true));
        let picture = browser.screenshot().await.unwrap();
        assert!(picture.starts_with(b"\x89PNG"));
        browser
            .open("data:text/html,<script>nothing()</script>")
            .await
            .unwrap();
        let complaints = browser.complaints().await.unwrap();
        assert!(
            complaints.concat().contains("nothing is not defined"),
            "{complaints:?}"
        );
        browser.check().unwrap();
    }
}
