//! The page in Chromium.
//!
//! `WEIR_SCREENSHOTS=<folder>` stores screenshots.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_stack::report::SilentReporter;
use weir_stack::tools;
use weir_tests::{Browser, Person, RoomSetup, Screen, until};

use super::come;

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

/// Stores screenshots if requested.
async fn pictures(browser: &Browser, name: &str) -> Result<()> {
    let Some(folder) = std::env::var_os("WEIR_SCREENSHOTS").map(PathBuf::from) else {
        return Ok(());
    };
    std::fs::create_dir_all(&folder)?;
    for (screen, size) in [(SCREEN, "screen"), (PHONE, "phone")] {
        for (is_dark, light) in [(false, "light"), (true, "dark")] {
            browser.show_on(Screen { is_dark, ..screen }).await?;
            let file = folder.join(format!("{name}-{size}-{light}.png"));
            std::fs::write(file, browser.screenshot().await?)?;
        }
    }
    browser.show_on(SCREEN).await
}

#[tokio::test(flavor = "multi_thread")]
async fn visitor_sees_queue_progress_and_enters_at_the_right_time() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 1,
        room: r##", "active_max": 2, "session": "10s", "claim": "5s",
            "page": { "brand": "Ticket <Office>", "accent": "#0b6e4f" } "##,
    };
    let rooms = setup.start().await?;
    let (_, entered) = come(&rooms, 5).await?;
    ensure!(entered == [0, 1], "{entered:?}");
    let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
    let browser = Browser::start(&tool, &rooms.data.path.join("browser")).await?;
    browser.show_on(SCREEN).await?;
    browser
        .open(&format!("{}/shop", rooms.envoys[0].url()))
        .await?;
    browser.wait_for_text("h1", "You are in line").await?;
    browser.wait_for_text("header", "Ticket <Office>").await?;
    browser.wait_for_text("[data-room=position]", "4").await?;
    pictures(&browser, "waiting-room").await?;
    // The position survives a reload.
    browser
        .open(&format!("{}/shop", rooms.envoys[0].url()))
        .await?;
    browser.wait_for_text("[data-room=position]", "4").await?;
    // The others do not return. The position decreases without a reload, and then the person enters.
    let is_same_page = "window.seen ??= true; return document.querySelector('[data-room=position]')?.innerText === '3' || \
                        document.querySelector('[data-room=position]')?.innerText === '2'";
    browser.until(is_same_page, &[]).await?;
    ensure!(
        browser.run("return window.seen", &[]).await? == json!(true),
        "it was not loaded again"
    );
    browser
        .until("return document.querySelector('#room') === null", &[])
        .await?;
    let mut complaints = browser.complaints().await?;
    // The page's status 503 and the shop's missing icon are expected.
    complaints.retain(|line| !line.contains("503") && !line.contains("favicon"));
    ensure!(complaints.is_empty(), "{complaints:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_javascript_reloads_automatically() -> Result<()> {
    let setup = RoomSetup {
        gateways: 1,
        workers: 1,
        room: r#", "mode": "paused" "#,
    };
    let rooms = setup.start().await?;
    let person = Person::default();
    let page = rooms.ask(0, &person, "/shop", "text/html").await?;
    let html = page.text();
    let refresh = html
        .split("<noscript>")
        .nth(1)
        .context("nothing without JavaScript")?;
    let refresh = refresh.split("</noscript>").next().unwrap_or_default();
    ensure!(
        refresh == r#"<meta http-equiv="refresh" content="1">"#,
        "{refresh}"
    );
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-robots-tag", "noindex"),
        ("retry-after", "1"),
    ] {
        ensure!(page.header(name) == Some(value), "{name}: {page:?}");
    }
    ensure!(
        page.header("content-security-policy")
            .is_some_and(|policy| !policy.contains("unsafe"))
    );
    until("the script is there", async || {
        let script = rooms.get(0, "/.weir/room/room.js", &[]).await;
        script
            .is_ok_and(|script| script.status == 200 && script.text().contains("location.replace"))
    })
    .await
}
