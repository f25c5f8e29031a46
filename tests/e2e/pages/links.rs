//! The page of links.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_link::agent::{Agent, Language, agent_hash};
use weir_link::click::{BatchId, MINUTE_MS, Row, encode};
use weir_link::redis::keys;
use weir_stack::http::{self, Method};
use weir_tests::Browser;

use super::{ConsoleFixture, HOSTILE};

impl ConsoleFixture {
    async fn with_links() -> Result<Self> {
        Self::open(|options, path| {
            options.links = Some(domains(path)?);
            Ok(())
        })
        .await
    }

    fn page(&self) -> String {
        format!("{}/ui#/links", self.origin.admin_url())
    }

    async fn sign_in(&self) -> Result<()> {
        self.browser.open(&self.page()).await?;
        self.browser
            .type_into("[name=key]", &self.secrets.admin_token)
            .await?;
        self.browser.click("button[type=submit]").await?;
        self.browser.text("#links").await.map(drop)
    }

    async fn make(&self, link: &Value) -> Result<()> {
        let created = self.api(Method::POST, "/links", link).await?;
        ensure!(created.status == 201, "{}", created.text());
        Ok(())
    }

    /// Clicks of three visitors, as a gateway reports them.
    async fn click(&self, name: &str, clicks: u32) -> Result<()> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
        let agent = b"Mozilla/5.0 (Linux; Android 14) Chrome/126.0.0.0 Mobile Safari/537.36";
        let row = |n: u8, at_ms: u64, clicks: u32, referrer: &str| Row {
            link: name.parse().unwrap(),
            minute_ms: at_ms - at_ms % MINUTE_MS,
            last_ms: at_ms,
            clicks,
            address: Some([203, 0, 113, n].into()),
            agent_hash: agent_hash(agent),
            agent: Agent::read(agent),
            referrer: referrer.to_owned(),
            language: Language::new(b"zh").unwrap_or_default(),
        };
        let rows = [
            row(1, now_ms, clicks - 3, "news.example"),
            row(2, now_ms, 2, ""),
            row(3, now_ms, 1, "news.example"),
        ];
        let id = BatchId {
            counter: 7,
            sequence: u64::from(clicks),
        };
        let mut add = redis::cmd("XADD");
        add.arg(keys::link_clicks("weir")).arg("*");
        add.arg(keys::BATCH_ID).arg(id.to_string());
        add.arg(keys::BATCH_ROWS).arg(encode(&rows));
        let mut connection = self.redis.connection().await?;
        let _: String = add.query_async(&mut connection).await?;
        Ok(())
    }
}

fn domains(dir: &Path) -> Result<PathBuf> {
    let file = dir.join("links.json");
    let domains = json!({ "domains": [{ "id": "s", "hosts": ["s.example.com"] }] });
    std::fs::write(&file, domains.to_string())?;
    Ok(file)
}

#[tokio::test(flavor = "multi_thread")]
async fn link_is_created_edited_disabled_and_deleted() -> Result<()> {
    let mut desk = ConsoleFixture::with_links().await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    browser.wait_for_text("#none", "No links yet").await?;

    // Creates a link.
    browser
        .type_into("#make [name=target]", "https://shop.example/autumn?a=1&b=2")
        .await?;
    browser.click("#make summary").await?;
    browser.type_into("#make [name=code]", "autumn").await?;
    browser
        .type_into("#make [name=tags]", &format!("poster, {HOSTILE}"))
        .await?;
    browser
        .type_into("#make [name=password]", "open sesame")
        .await?;
    browser.click("#make button[type=submit]").await?;
    assert_eq!(browser.text("#url").await?, "https://s.example.com/autumn");
    browser
        .wait_for_text(".members", "password required")
        .await?;
    assert_eq!(
        browser.text("#target").await?,
        "https://shop.example/autumn?a=1&b=2"
    );
    browser.wait_for_text(".tags", HOSTILE).await?;
    assert!(browser.url().await?.ends_with("/ui#/links/l/s/autumn"));
    browser.click("#tab-qr").await?;
    let loaded = "const qr = document.querySelector('#qr'); return qr?.complete && qr.naturalWidth";
    browser.until(loaded, &[]).await?;

    // Clicks appear in the statistics.
    desk.click("s/autumn", 60).await?;
    let counted = async || {
        let stats = desk
            .api(Method::GET, "/links/autumn/stats", &Value::Null)
            .await;
        stats.is_ok_and(|stats| stats.json().is_ok_and(|stats| stats["clicks"] == 60))
    };
    weir_tests::until("the clicks are counted", counted).await?;
    browser.click("#tab-stats").await?;
    // Since yesterday, because it may just be midnight.
    browser.click("[name=range] option[value='2d']").await?;
    browser.click("#reload").await?;
    browser.wait_for_text("#total-clicks", "60").await?;
    assert_eq!(browser.text("#total-visitors").await?, "3");
    browser.wait_for_text(".breakdowns", "news.example").await?;
    browser.wait_for_text(".breakdowns", "Chinese").await?;
    browser
        .until(
            "return document.querySelectorAll('.chart .slot').length === 48",
            &[],
        )
        .await?;
    desk.looks_right("link").await?;

    // Edits it.
    browser.click("#tab-edit").await?;
    browser
        .type_into("#edit [name=target]", "https://shop.example/winter")
        .await?;
    browser.click("#edit [name=no-password]").await?;
    browser.click("#edit button[type=submit]").await?;
    browser
        .wait_for_text("#target", "https://shop.example/winter")
        .await?;
    browser.click("#tab-history").await?;
    browser.wait_for_text(".past", "Edited").await?;
    browser.wait_for_text(".past", "Created").await?;

    // Disables it, and enables it again.
    browser.click("#toggle").await?;
    browser.click("#ask-yes").await?;
    browser.wait_for_text(".head .state", "Disabled").await?;
    browser.wait_for_text("#toggle", "Enable").await?;
    let link = desk
        .api(Method::GET, "/links/autumn", &Value::Null)
        .await?
        .json()?;
    assert_eq!(
        (&link["disabled"], &link["version"], &link["protected"]),
        (&json!(true), &json!(3), &json!(false))
    );
    browser.click("#toggle").await?;
    browser.wait_for_text(".head .state", "Active").await?;

    // Cancels the deletion, then deletes it.
    browser.click("#delete").await?;
    browser.click("dialog .quiet").await?;
    browser
        .until("return !document.querySelector('dialog')", &[])
        .await?;
    browser.click("#delete").await?;
    browser.click("#ask-yes").await?;
    browser.wait_for_text("#none", "No links yet").await?;
    let link = desk.api(Method::GET, "/links/autumn", &Value::Null).await?;
    assert_eq!(link.status, 404);
    desk.nothing_to_complain(&[]).await?;
    desk.browser.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_listed_by_page_and_tag_with_details() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    for n in 0..30 {
        let link =
            json!({ "target": format!("https://a.example/{n}"), "tags": [format!("t{}", n % 3)] });
        desk.make(&link).await?;
    }
    let hostile = "https://a.example/?q=%3Cimg%3E";
    desk.make(&json!({ "target": hostile, "code": "hostile", "tags": [HOSTILE] }))
        .await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    let rows = "return document.querySelectorAll('#links tbody tr').length";
    assert_eq!(browser.run(rows, &[]).await?, json!(25));
    desk.looks_right("list").await?;
    browser.click("#more").await?;
    browser
        .until(
            "return document.querySelectorAll('#links tbody tr').length === 31",
            &[],
        )
        .await?;
    browser.wait_for_text("#links", HOSTILE).await?;
    let images = "return document.querySelectorAll('main img').length";
    assert_eq!(browser.run(images, &[]).await?, json!(0));

    browser.type_into("[name=tag]", "t1\u{e007}").await?;
    browser
        .until(
            "return document.querySelectorAll('#links tbody tr').length === 10",
            &[],
        )
        .await?;
    // An address opens its view; unknown ones show an error.
    browser
        .open(&format!("{}/l/s/hostile", desk.page()))
        .await?;
    assert_eq!(browser.text("#target").await?, hostile);
    browser
        .open(&format!("{}/l/s/nothing", desk.page()))
        .await?;
    browser.wait_for_text("main", "Link not found.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_nothing_without_a_token() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    desk.make(&json!({ "target": "https://a.example/", "code": "secret" }))
        .await?;
    let browser = &desk.browser;
    browser
        .open(&format!("{}/links/ui#/l/s/secret", desk.origin.admin_url()))
        .await?;
    browser.type_into("[name=key]", "not-the-token").await?;
    browser.click("button[type=submit]").await?;
    browser
        .wait_for_text("[role=alert]", "This key isn’t valid")
        .await?;
    assert!(!browser.page_text().await?.contains("a.example"));
    desk.looks_right("sign-in").await?;
    // With the key, the view of a link's former address opens; signing out removes it.
    browser
        .type_into("[name=key]", &desk.secrets.admin_token)
        .await?;
    browser.click("button[type=submit]").await?;
    assert_eq!(browser.text("#target").await?, "https://a.example/");
    browser.click("#sign-out").await?;
    browser.text("[name=key]").await?;
    assert!(!browser.page_text().await?.contains("a.example"));
    let retained = browser
        .run("return sessionStorage.length + localStorage.length", &[])
        .await?;
    assert_eq!(retained, json!(0));
    // The origin's error message for a refused target is shown.
    desk.sign_in().await?;
    browser
        .type_into("#make [name=target]", "https://user:pass@evil.example/")
        .await?;
    browser.click("#make button[type=submit]").await?;
    let response = browser
        .text("#make [role=alert]")
        .await
        .context("no complaint")?;
    assert!(response.contains("has a user name"), "{response}");
    assert!(desk.dir.path().exists());
    Ok(())
}

/// Selects or enters `value` in the control at `selector`, like people do in system dialogs.
async fn set(browser: &Browser, selector: &str, value: &str) -> Result<()> {
    let script = "const control = document.querySelector(arguments[0]); control.value = arguments[1]; \
                  return control.value === arguments[1]";
    let arguments = [json!(selector), json!(value)];
    ensure!(
        browser.run(script, &arguments).await? == json!(true),
        "{selector}"
    );
    Ok(())
}

/// The value of a control.
async fn control_value(browser: &Browser, selector: &str) -> Result<Value> {
    let script = "const control = document.querySelector(arguments[0]); \
                  return control.type === 'checkbox' ? control.checked : control.value";
    browser.run(script, &[json!(selector)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_link_fields_are_shown_and_edited() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    let end_ms: u64 = 1_893_553_440_000; // 2030-01-02 03:04 UTC
    let link = json!({
        "code": "whole", "target": "https://a.example/", "status": 307, "pass_query": true,
        "life_days": 30, "max_clicks": 10, "expires_at_ms": end_ms, "language": "en", "tags": ["one"],
        "apps": [{ "platform": "ios", "url": "https://app.example/x", "fallback": "https://b.example/" }],
        "rules": [{ "platforms": ["android", "wechat"], "languages": ["zh-TW"], "target": "https://c.example/" }],
    });
    desk.make(&link).await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    let page = format!("{}/l/s/whole?edit", desk.page());
    browser.open(&page).await?;
    browser
        .wait_for_text(".members", "10 of 10 clicks left")
        .await?;
    // In one named time zone.
    browser
        .wait_for_text(".members", "expires Jan 2, 2030, 03:04 UTC at the latest")
        .await?;
    for (control, value) in [
        ("[name=target]", json!("https://a.example/")),
        ("[name=days]", json!("30")),
        ("[name=clicks]", json!("10")),
        ("[name=end]", json!("2030-01-02T03:04")),
        ("[name=status]", json!("307")),
        ("[name=query]", json!("true")),
        ("[name=language]", json!("en")),
        ("[name=tags]", json!("one")),
        ("[name=app-platform]", json!("ios")),
        ("[name=app-url]", json!("https://app.example/x")),
        ("[name=app-fallback]", json!("https://b.example/")),
        ("[name=rule-languages]", json!("zh-TW")),
        ("[name=rule-target]", json!("https://c.example/")),
        ("[name=rule-platform][value=wechat]", json!(true)),
        ("[name=rule-platform][value=ios]", json!(false)),
    ] {
        let control = format!("#edit {control}");
        assert_eq!(control_value(browser, &control).await?, value, "{control}");
    }
    desk.looks_right("whole").await?;

    // Cleared values are removed, added values are stored, and the rest is unchanged.
    for control in ["days", "clicks", "language"] {
        set(browser, &format!("#edit [name={control}]"), "").await?;
    }
    set(browser, "#edit [name=end]", "2031-05-06T07:08").await?;
    set(browser, "#edit [name=status]", "301").await?;
    set(browser, "#edit [name=query]", "false").await?;
    browser.click("#apps-list .danger").await?;
    browser.click("[name=add-rules]").await?;
    let second = "#rules-list li:nth-child(2)";
    browser
        .type_into(
            &format!("{second} [name=rule-target]"),
            "https://d.example/",
        )
        .await?;
    browser.click(&format!("{second} .quiet")).await?;
    browser.click("#edit button[type=submit]").await?;
    browser.wait_for_text(".members", "2031").await?;
    let link = desk
        .api(Method::GET, "/links/whole", &Value::Null)
        .await?
        .json()?;
    let expected = json!({
        "target": "https://a.example/", "status": 301, "pass_query": false, "life_ms": 0,
        "max_clicks": null, "language": null, "ends_at_ms": 1_935_817_680_000_u64, "tags": ["one"], "apps": [],
        "rules": [{ "target": "https://d.example/" },
            { "platforms": ["android", "wechat"], "languages": ["zh-TW"], "target": "https://c.example/" }],
    });
    for (name, value) in expected.as_object().context("an object")? {
        assert_eq!(&link[name], value, "{name}");
    }
    desk.nothing_to_complain(&[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_link_shows_the_reason() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    for (code, more) in [
        ("used", json!({ "max_clicks": 1 })),
        ("brief", json!({ "life_ms": 1_000 })),
        ("sound", json!({})),
    ] {
        let mut link = json!({ "code": code, "target": "https://a.example/" });
        let fields = link.as_object_mut().context("an object")?;
        fields.extend(more.as_object().context("an object")?.clone());
        desk.make(&link).await?;
    }
    // As a gateway requests it for a click.
    let click = "/link-records/s/used?for=click&click=00000000000000ab-1";
    let url = format!("{}{click}", desk.origin.url());
    assert_eq!(http::get(&url).await?.status, 200);
    let has_ended = async || {
        let link = desk.api(Method::GET, "/links/brief", &Value::Null).await;
        link.is_ok_and(|link| link.json().is_ok_and(|link| link["state"] == "ended"))
    };
    weir_tests::until("the brief link has ended", has_ended).await?;
    desk.sign_in().await?;
    for (code, state) in [("used", "Used up"), ("brief", "Ended"), ("sound", "Active")] {
        let row = format!("#links tr:has(a[href='#/links/l/s/{code}'])");
        desk.browser.wait_for_text(&row, state).await?;
    }
    desk.make(&json!({ "code": "odd", "target": "https://pаypal.com/" }))
        .await?;
    desk.looks_right("states").await?;
    desk.browser
        .open(&format!("{}/l/s/used", desk.page()))
        .await?;
    desk.browser
        .wait_for_text(".head .state", "Used up")
        .await?;
    // Warnings about a link are shown at each view.
    desk.browser
        .open(&format!("{}/l/s/odd", desk.page()))
        .await?;
    desk.browser.wait_for_text(".head", "mixes alphabets").await
}

#[tokio::test(flavor = "multi_thread")]
async fn domains_are_created_edited_and_deleted() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    browser.click("#views a[href='#/domains']").await?;
    browser.wait_for_text("#domains", "s.example.com").await?;
    browser.click("#domains a[href='#/domains/s']").await?;
    let page = format!("<h1>{HOSTILE}</h1>");
    browser.type_into("#domain [name=gone_page]", &page).await?;
    browser
        .type_into("#domain [name=home]", "https://home.example/")
        .await?;
    browser
        .type_into("#domain [name=denied_hosts]", "evil.example, bad.example")
        .await?;
    browser
        .type_into("#domain [name=assetlinks]", "[{\"relation\": []}]")
        .await?;
    set(browser, "#domain [name=status]", "308").await?;
    desk.looks_right("domain").await?;
    browser.click("#domain button[type=submit]").await?;
    browser.wait_for_text("#domains", "s.example.com").await?;
    let domain = async |id: &str| {
        let path = format!("/link-domains/{id}");
        desk.api(Method::GET, &path, &Value::Null).await
    };
    let body = domain("s").await?.json()?;
    for (name, value) in [
        ("gone_page", json!(page)),
        ("home", json!("https://home.example/")),
        ("denied_hosts", json!(["evil.example", "bad.example"])),
        ("assetlinks", json!([{ "relation": [] }])),
        ("status", json!(308)),
        ("length", json!(7)),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    // Cleared values are removed; text is not interpreted as markup.
    browser.click("#domains a[href='#/domains/s']").await?;
    browser.text("#domain").await?;
    assert_eq!(
        control_value(browser, "#domain [name=gone_page]").await?,
        json!(page)
    );
    set(browser, "#domain [name=gone_page]", "").await?;
    browser.click("#domain button[type=submit]").await?;
    browser.text("#domains").await?;
    assert_eq!(domain("s").await?.json()?["gone_page"], Value::Null);

    browser.click("#new-domain").await?;
    browser.type_into("#domain [name=id]", "t").await?;
    browser
        .type_into("#domain [name=hosts]", "S.example.com")
        .await?;
    browser.click("#domain button[type=submit]").await?;
    browser
        .wait_for_text("#domain [role=alert]", "hosts")
        .await?;
    browser
        .type_into("#domain [name=hosts]", "t.example.com")
        .await?;
    browser.click("#domain button[type=submit]").await?;
    browser.wait_for_text("#domains", "t.example.com").await?;
    browser.click("#domains a[href='#/domains/t']").await?;
    browser.click("#delete-domain").await?;
    browser.type_into("[name=ask-typed]", "t").await?;
    browser.click("#ask-yes").await?;
    browser
        .until(
            "return document.querySelectorAll('#domains tbody tr').length === 1",
            &[],
        )
        .await?;
    assert_eq!(domain("t").await?.status, 404);
    Ok(())
}

/// An image of one pixel.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\x0dIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82";

#[tokio::test(flavor = "multi_thread")]
async fn stats_use_local_days_and_code_has_a_qr_picture() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    browser
        .type_into("#make [name=target]", "https://shop.example/?a=1#top")
        .await?;
    browser.click("#make summary").await?;
    browser.type_into("#make [name=code]", "spring").await?;
    browser
        .type_into("[name=utm-source]", "news letter")
        .await?;
    browser.type_into("[name=utm-campaign]", HOSTILE).await?;
    desk.looks_right("links-new").await?;
    browser.click("#make button[type=submit]").await?;
    let target = "https://shop.example/?a=1&utm_source=news%20letter&utm_campaign=%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E#top";
    browser.wait_for_text("#target", target).await?;
    let displayed = "return document.querySelector('#edit [name=utm-campaign]').value";
    assert_eq!(browser.run(displayed, &[]).await?, json!(HOSTILE));

    // In any time zone; an invalid one is reported.
    desk.click("s/spring", 60).await?;
    let counted = async || {
        let path = "/links/spring/stats";
        let stats = desk.api(Method::GET, path, &Value::Null).await;
        stats.is_ok_and(|stats| stats.json().is_ok_and(|stats| stats["clicks"] == 60))
    };
    weir_tests::until("the clicks are counted", counted).await?;
    browser.click("[name=range] option[value='7d']").await?;
    let set_zone = "const zone = document.querySelector('[name=zone]'); zone.value = arguments[0]; \
        zone.dispatchEvent(new Event('change'))";
    browser.run(set_zone, &[json!("Atlantis")]).await?;
    browser.wait_for_text("#stats", "Unknown time zone").await?;
    browser.run(set_zone, &[json!("Asia/Kolkata")]).await?;
    browser.wait_for_text("#total-clicks", "60").await?;
    let days = "return document.querySelectorAll('#stats > figure .slot').length === 7";
    browser.until(days, &[]).await?;

    // By several criteria.
    browser.click("#filters summary").await?;
    browser
        .click("[name=filter-referrer] option[value='news.example']")
        .await?;
    browser
        .wait_for_text("#crosstab", "58 matching clicks")
        .await?;
    browser
        .wait_for_text("[name=filter-device]", "Phone (58)")
        .await?;
    desk.looks_right("link-filtered").await?;

    // A logo in the code, on the screen and in the file.
    let file = desk.dir.path().join("logo.png");
    std::fs::write(&file, PNG)?;
    let before = browser
        .run("return document.getElementById('qr').src", &[])
        .await?;
    browser.click("#tab-qr").await?;
    browser.click("#panel-qr details summary").await?;
    browser.choose_file("[name=logo]", &file).await?;
    let is_new = "return document.getElementById('qr')?.src !== arguments[0] \
        && document.getElementById('qr')?.naturalWidth > 0";
    browser.until(is_new, &[before]).await?;
    desk.nothing_to_complain(&[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn import_of_another_shortener_shows_its_progress() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    browser.click("a[href='#/links/import']").await?;
    // Three parts; a title has a line break, and one row fails.
    let mut file = String::from("domain,code,target,tags\n");
    for n in 0..1_200 {
        file.push_str(&format!(
            "s,code-{n},https://t.example/{n},\"[\"\"a\"\"]\"\n"
        ));
    }
    file.push_str("s,x,https://t.example/short,\n");
    let path = desk.dir.path().join("links.csv");
    std::fs::write(&path, &file)?;
    browser.choose_file("[name=file]", &path).await?;
    browser.type_into("#import [name=tag]", "moved").await?;
    desk.looks_right("links-import").await?;
    let exports =
        "return [...document.querySelectorAll('#export a')].map((a) => new URL(a.href).pathname)";
    let exports = browser.run(exports, &[]).await?;
    assert_eq!(exports, json!(["/links.csv", "/links.ndjson"]));
    browser.click("#import button[type=submit]").await?;
    browser
        .wait_for_text(
            "#report",
            "1,201 rows: 1,200 would be created, 0 already exist, 1 refused. Checked; nothing was created yet.",
        )
        .await?;
    browser.wait_for_text("#refused", "Line 1202, x").await?;
    browser.click("[name=dry]").await?;
    for expected in [
        "1,200 created, 0 already exist",
        "0 created, 1,200 already exist",
    ] {
        browser.click("#import button[type=submit]").await?;
        browser.wait_for_text("#report", expected).await?;
        browser.wait_for_text("#report", "Done.").await?;
    }
    desk.looks_right("links-imported").await?;
    let body = desk
        .api(Method::GET, "/links/code-1199", &Value::Null)
        .await?
        .json()?;
    assert_eq!(body["tags"], json!(["a", "moved"]));
    // An unsupported file.
    browser.click("[name=format] option[value=bitly]").await?;
    browser.click("#import button[type=submit]").await?;
    browser
        .wait_for_text("#import .notice", "check the format")
        .await?;
    desk.nothing_to_complain(&["status of 422"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_statistics_are_shown_and_shared_without_a_key() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    let link = |code: &str, folder: &str| json!({ "target": "https://shop.example/", "code": code, "title": HOSTILE, "folder": folder });
    desk.make(&link("spring", "Spring")).await?;
    desk.make(&link("winter", "Winter")).await?;
    desk.click("s/spring", 60).await?;
    let counted = async || {
        let stats = desk.api(Method::GET, "/link-stats", &Value::Null).await;
        stats.is_ok_and(|stats| stats.json().is_ok_and(|stats| stats["clicks"] == 60))
    };
    weir_tests::until("the clicks are counted", counted).await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    browser.wait_for_text("#links", HOSTILE).await?;
    let stats = format!("{}/ui#/links/stats?folder=Spring", desk.origin.admin_url());
    browser.open(&stats).await?;
    browser.wait_for_text("#total-clicks", "60").await?;
    browser.wait_for_text("#top-links", HOSTILE).await?;
    browser.wait_for_text(".breakdowns", "Phone").await?;
    desk.looks_right("link-statistics").await?;

    browser
        .type_into("[name=report-title]", "For the agency")
        .await?;
    browser.click("#share-form button[type=submit]").await?;
    let path = browser.text("#report-path").await?;
    browser.wait_for_text("#reports", "For the agency").await?;
    let report = format!("{}{path}", desk.origin.url());
    browser.open(&report).await?;
    browser.wait_for_text("main", "For the agency").await?;
    browser.wait_for_text("main", HOSTILE).await?;
    ensure!(browser.complaints().await?.is_empty());

    browser.open(&stats).await?;
    browser.click("#reports [data-report]").await?;
    browser.click("#ask-yes").await?;
    browser
        .wait_for_text("#no-reports", "No shared reports")
        .await?;
    browser.open(&report).await?;
    ensure!(browser.page_text().await?.contains("unknown_report"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn utm_template_fills_the_form_of_a_new_link() -> Result<()> {
    let desk = ConsoleFixture::with_links().await?;
    desk.sign_in().await?;
    let browser = &desk.browser;
    let templates = format!("{}/ui#/links/templates", desk.origin.admin_url());
    browser.open(&templates).await?;
    browser
        .type_into("#template [name=name]", "Newsletter")
        .await?;
    browser.type_into("#template [name=source]", "mail").await?;
    browser.click("#template button[type=submit]").await?;
    browser.wait_for_text("#templates", "Newsletter").await?;
    desk.looks_right("utm-templates").await?;
    browser.open(&desk.page()).await?;
    browser
        .type_into("#make [name=target]", "https://shop.example/")
        .await?;
    browser.click("#make summary").await?;
    browser
        .click("[name=utm-template] option[value=Newsletter]")
        .await?;
    browser.click("#make button[type=submit]").await?;
    assert_eq!(
        browser.text("#target").await?,
        "https://shop.example/?utm_source=mail"
    );
    Ok(())
}
