//! A browser that a test clicks through: Chromium without a window, driven by the WebDriver protocol
//! (<https://www.w3.org/TR/webdriver2/>), which is JSON over HTTP.

use crate::http::{self, Method};
use crate::process::Process;
use crate::{ports, tools};
use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A browser starts within seconds; a machine that compiles meanwhile gets much more.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// How long something may take to appear on a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at a page.
const POLL: Duration = Duration::from_millis(50);

/// How often something is done to an element that the page has replaced meanwhile.
const STALE_MAX: u32 = 20;

/// The name of an element's reference in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A running browser with one page.
#[derive(Debug)]
pub struct Browser {
    // Dropped in this order: the driver lets go of the browser before that ends.
    driver: Process,
    browser: Process,
    session_url: String,
}

/// What the page is shown on.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// In CSS pixels.
    pub width: u32,
    /// In CSS pixels.
    pub height: u32,
    /// Whether the system prefers dark pages.
    pub is_dark: bool,
    /// Whether it is a phone's.
    pub is_phone: bool,
}

impl Browser {
    /// Starts one with its profile and logs in `dir`, which must be its alone.
    pub async fn start(tool: &tools::Chromium, dir: &Path) -> Result<Self> {
        let debug_port = ports::free()?;
        let binary = tool.browser.clone();
        let profile = dir.join("profile");
        let make = move || browser_command(&binary, &profile, debug_port);
        let mut browser = Process::start("chromium", &dir.join("chromium.log"), make)?;
        let debugger = format!("http://127.0.0.1:{debug_port}/json/version");
        browser
            .wait_ready(READY_LIMIT, || http::is_ok(&debugger))
            .await?;
        let port = ports::free()?;
        let binary = tool.driver.clone();
        let make = move || {
            let mut command = Command::new(&binary);
            command.arg(format!("--port={port}"));
            command
        };
        let mut driver = Process::start("chromedriver", &dir.join("chromedriver.log"), make)?;
        let driver_url = format!("http://127.0.0.1:{port}");
        let status = format!("{driver_url}/status");
        driver
            .wait_ready(READY_LIMIT, || http::is_ok(&status))
            .await?;
        let session_url = new_session(&driver_url, debug_port).await?;
        Ok(Self {
            driver,
            browser,
            session_url,
        })
    }

    /// An error if the browser or its driver ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.browser.check()?;
        Ok(self.driver.check()?)
    }

    /// Goes to `url` and waits until it has loaded.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).await.map(drop)
    }

    /// The address that is shown.
    pub async fn url(&self) -> Result<String> {
        text(call(Method::GET, &format!("{}/url", self.session_url), "").await?)
    }

    /// What JavaScript's `script`, a function's body, returns for `arguments`. If that is a promise, what comes
    /// of it.
    pub async fn run(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        let body = json!({ "script": script, "args": arguments });
        self.post("/execute/sync", &body).await
    }

    /// Waits until `script` returns something that JavaScript takes for true, and tells what.
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

    /// All text that the page shows.
    pub async fn page_text(&self) -> Result<String> {
        text(self.run("return document.body.innerText", &[]).await?)
    }

    /// Waits for what `selector` (CSS) names, and tells its text as it is shown.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let read = async |element: &str| {
            let url = format!("{}/element/{element}/text", self.session_url);
            text(call(Method::GET, &url, "").await?)
        };
        self.act_on(selector, read).await
    }

    /// Waits until the page shows `wanted` where `selector` points.
    pub async fn wait_for_text(&self, selector: &str, wanted: &str) -> Result<()> {
        let script =
            "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])";
        self.until(script, &[json!(selector), json!(wanted)])
            .await
            .map(drop)
    }

    /// Clicks what `selector` names, once it is there, as a person does: it must be visible and nothing
    /// may cover it.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let click = async |element: &str| {
            self.post(&format!("/element/{element}/click"), &json!({}))
                .await
                .map(drop)
        };
        self.act_on(selector, click)
            .await
            .with_context(|| format!("cannot click {selector}"))
    }

    /// Types `text` into a field in place of what it holds.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let typing = json!({ "text": text });
        let enter = async |element: &str| {
            self.post(&format!("/element/{element}/clear"), &json!({}))
                .await?;
            self.post(&format!("/element/{element}/value"), &typing)
                .await
                .map(drop)
        };
        self.act_on(selector, enter)
            .await
            .with_context(|| format!("cannot type into {selector}"))
    }

    /// Does something to what `selector` names, once it is there; again, if the page was drawn anew in
    /// between, so that it was another element.
    async fn act_on<T>(&self, selector: &str, act: impl AsyncFn(&str) -> Result<T>) -> Result<T> {
        const STALE: &str = "stale element reference";
        for _ in 1..STALE_MAX {
            let done = match self.wait_for(selector).await {
                Ok(element) => act(&element).await,
                Err(error) => Err(error),
            };
            match done {
                Err(error) if format!("{error:#}").contains(STALE) => {}
                done => return done,
            }
        }
        act(&self.wait_for(selector).await?).await
    }

    /// Waits for an element; tells its reference.
    async fn wait_for(&self, selector: &str) -> Result<String> {
        let script = "return document.querySelector(arguments[0])";
        let found = self.until(script, &[json!(selector)]).await?;
        text(found[ELEMENT].clone())
    }

    /// Shows the page as on this screen from now on.
    pub async fn show_on(&self, screen: Screen) -> Result<()> {
        let metrics = json!({
            "width": screen.width, "height": screen.height,
            "deviceScaleFactor": 1, "mobile": screen.is_phone,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics)
            .await?;
        let scheme = if screen.is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &media).await?;
        Ok(())
    }

    /// The whole page as a PNG, from its top to its end.
    pub async fn screenshot(&self) -> Result<Vec<u8>> {
        let asked = json!({ "format": "png", "captureBeyondViewport": true });
        let taken = self.devtools("Page.captureScreenshot", &asked).await?;
        let data = text(taken["data"].clone())?;
        let picture = STANDARD.decode(data);
        picture.map_err(|error| anyhow!("the picture is not base64: {error}"))
    }

    /// Errors and warnings that the page has caused so far, such as what its policy has blocked.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let logged = self.post("/se/log", &json!({ "type": "browser" })).await?;
        let entries = logged.as_array().context("the log is no list")?;
        Ok(entries.iter().map(ToString::to_string).collect())
    }

    /// A command of Chromium's own protocol.
    async fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": parameters });
        self.post("/goog/cdp/execute", &body).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.session_url);
        call(Method::POST, &url, &body.to_string()).await
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
        // Root has none to give up to, and it refuses to start otherwise.
        command.arg("--no-sandbox");
    }
    command
}

/// Lets the driver take over the browser.
async fn new_session(driver_url: &str, debug_port: u16) -> Result<String> {
    let wanted = json!({ "capabilities": { "alwaysMatch": {
        "goog:chromeOptions": { "debuggerAddress": format!("127.0.0.1:{debug_port}") },
        "goog:loggingPrefs": { "browser": "WARNING" },
    } } });
    let url = format!("{driver_url}/session");
    let session = call(Method::POST, &url, &wanted.to_string()).await?;
    let id = session["sessionId"].as_str().context("no session")?;
    Ok(format!("{url}/{id}"))
}

/// The `value` of the driver's answer.
async fn call(method: Method, url: &str, body: &str) -> Result<Value> {
    let json = [("content-type", "application/json")];
    let answer = http::send(method, url, &json, body.to_owned()).await?;
    let mut said = answer.json()?;
    if answer.status != 200 {
        let error = &said["value"];
        bail!("{}: {}", error["error"], error["message"]);
    }
    Ok(said["value"].take())
}

fn text(value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        other => bail!("not a text: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Silent;

    #[tokio::test]
    async fn a_page_is_clicked_through_and_shown() {
        let temp = tempfile::tempdir().unwrap();
        let tool = tools::Chromium::find_or_get(&mut Silent).unwrap();
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
