//! Chromium and its driver, for tests of the origin's page.

use super::apt;
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Binary names of the browser across distributions.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// A browser and its driver.
#[derive(Debug, Clone)]
pub struct Chromium {
    /// The browser's binary.
    pub browser: PathBuf,
    /// `chromedriver`, of the same version as the browser.
    pub driver: PathBuf,
}

impl Chromium {
    /// Finds Chromium or Chrome and `chromedriver` on `PATH`, else Debian's.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let _lock = super::lock()?;
        let found = match found() {
            Some(found) => found,
            None => get(reporter).context(
                "chromium or chromedriver is not on PATH: install both (Debian: apt-get install chromium chromium-driver; macOS: brew install chromium chromedriver)",
            )?,
        };
        reporter.line("chromium", &found.browser.display().to_string());
        Ok(found)
    }
}

fn found() -> Option<Chromium> {
    Some(Chromium {
        browser: BROWSERS.into_iter().find_map(command::on_path)?,
        driver: command::on_path("chromedriver")?,
    })
}

fn get(reporter: &mut dyn Reporter) -> Result<Chromium> {
    reporter.line(
        "chromium",
        "installing Debian's chromium and chromium-driver…",
    );
    apt::install(&["chromium", "chromium-driver"])?;
    found().context(
        "the packages chromium and chromium-driver do not contain chromium and chromedriver",
    )
}
