//! The pages, used in Chromium, with a real origin, Redis, SQLite and files.
//!
//! `WEIR_SCREENSHOTS=<folder>` stores screenshots.

mod console;
mod desk;
mod fitment;
mod groups;
mod history;
mod links;
mod password;
mod sellers;
mod storefront;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use weir_stack::http::{self, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{Secrets, origin, ports, tools};
use weir_tests::{Browser, Screen};

const SCREEN: Screen = Screen {
    width: 1_280,
    height: 860,
    is_dark: false,
    is_phone: false,
};

const PHONE: Screen = Screen {
    width: 390,
    height: 844,
    is_dark: false,
    is_phone: true,
};

/// Text that would be markup or a script if the page did not escape it.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// An origin with its dependencies, and a browser.
struct ConsoleFixture {
    browser: Browser,
    origin: Origin,
    redis: RedisServer,
    secrets: Secrets,
    dir: TempDir,
}

impl ConsoleFixture {
    /// `configure` may enable more of the origin; the folder is for its files.
    async fn open(configure: impl FnOnce(&mut OriginOptions, &Path) -> Result<()>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let path = dir.path();
        let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
        let log = path.join("redis.log");
        let redis = RedisServer::start(&tool, ports::free()?, &path.join("redis"), &log).await?;
        let secrets = Secrets::random()?;
        let mut options = OriginOptions {
            events_log: None,
            fitment: None,
            edge_secret: None,
            port: ports::free()?,
            admin_port: ports::free()?,
            database: path.join("weir.db"),
            redis_url: redis.url(),
            redis_ca: None,
            key_prefix: "weir".to_owned(),
            risk_rules: None,
            links: None,
            // No payments occur.
            provider_port: 9,
            flags: vec![],
            secrets: secrets.clone(),
        };
        configure(&mut options, path)?;
        let binary = origin::ensure_built()?;
        let origin = Origin::start(&binary, options, &path.join("origin.log")).await?;
        let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
        let browser = Browser::start(&tool, &path.join("browser")).await?;
        browser.show_on(SCREEN).await?;
        Ok(Self {
            browser,
            origin,
            redis,
            secrets,
            dir,
        })
    }

    /// The origin's answer on the admin port.
    async fn api(&self, method: Method, path: &str, body: &Value) -> Result<http::Response> {
        let bearer = format!("Bearer {}", self.secrets.admin_token);
        let url = format!("{}{path}", self.origin.admin_url());
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        http::send(method, &url, &headers, body.to_string()).await
    }

    async fn looks_right(&self, name: &str) -> Result<()> {
        looks_right(&self.browser, name).await
    }

    async fn nothing_to_complain(&self, but: &[&str]) -> Result<()> {
        nothing_to_complain(&self.browser, but).await
    }
}

/// Checks accessibility as far as a program can: WCAG 2.2 AA with axe-core, in light mode and on a dark phone. Stores
/// screenshots if requested.
async fn looks_right(browser: &Browser, name: &str) -> Result<()> {
    match tools::Axe::find_or_get(&mut SilentReporter) {
        Ok(axe) => is_accessible(browser, &axe, name).await?,
        Err(error) => eprintln!("left out: axe-core looks at {name}: {error:#}"),
    }
    fits_a_narrow_phone(browser, name).await?;
    let Some(folder) = std::env::var_os("WEIR_SCREENSHOTS").map(PathBuf::from) else {
        return browser.show_on(SCREEN).await;
    };
    std::fs::create_dir_all(&folder)?;
    for (screen, size) in [(SCREEN, "screen"), (PHONE, "phone")] {
        for (is_dark, light) in [(false, "light"), (true, "dark")] {
            show(browser, Screen { is_dark, ..screen }).await?;
            let file = folder.join(format!("{name}-{size}-{light}.png"));
            std::fs::write(file, browser.screenshot().await?)?;
        }
    }
    browser.show_on(SCREEN).await
}

async fn is_accessible(browser: &Browser, axe: &tools::Axe, name: &str) -> Result<()> {
    let script = std::fs::read_to_string(&axe.0)?;
    let dark_phone = Screen {
        is_dark: true,
        ..PHONE
    };
    for (screen, subject) in [(SCREEN, "light"), (dark_phone, "on a dark phone")] {
        show(browser, screen).await?;
        let faults = browser.faults(&script).await?;
        ensure!(faults.is_empty(), "{name}, {subject}: {faults:#?}");
    }
    Ok(())
}

/// Checks that the page fits the narrowest phones without horizontal scrolling.
async fn fits_a_narrow_phone(browser: &Browser, name: &str) -> Result<()> {
    let narrow = Screen {
        width: 360,
        ..PHONE
    };
    show(browser, narrow).await?;
    let width = "return document.documentElement.scrollWidth";
    let width = browser.run(width, &[]).await?;
    let fits = width.as_u64().is_some_and(|width| width <= 360);
    ensure!(fits, "{name} is {width} pixels wide on a phone of 360");
    Ok(())
}

/// Charts are redrawn when the screen size changes.
async fn show(browser: &Browser, screen: Screen) -> Result<()> {
    browser.show_on(screen).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    Ok(())
}

/// Checks that the browser logged no errors, such as a script blocked by the page's policy. `but`: expected errors.
async fn nothing_to_complain(browser: &Browser, but: &[&str]) -> Result<()> {
    let mut complaints = browser.complaints().await?;
    complaints.retain(|line| !but.iter().any(|existing| line.contains(existing)));
    ensure!(complaints.is_empty(), "{complaints:#?}");
    Ok(())
}
