//! The console: sign-in with a key, a sale, a waiting room, keys, the audit trail.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::Method;
use weir_tests::{RedisPath, Setup};

use super::{ConsoleFixture, HOSTILE};

impl ConsoleFixture {
    fn console(&self, view: &str) -> String {
        format!("{}/ui{view}", self.origin.admin_url())
    }

    /// Creates a key with this role.
    async fn key(&self, role: &str) -> Result<String> {
        let new = json!({ "name": format!("the {role}"), "role": role });
        let created = self.api(Method::POST, "/access/keys", &new).await?;
        ensure!(created.status == 201, "{}", created.text());
        let key = created.json()?["key"].as_str().map(ToOwned::to_owned);
        key.context("no key")
    }

    async fn enter(&self, key: &str) -> Result<()> {
        self.browser.type_into("[name=key]", key).await?;
        self.browser.click("button[type=submit]").await
    }

    async fn count(&self, selector: &str) -> Result<Value> {
        let script = "return document.querySelectorAll(arguments[0]).length";
        self.browser.run(script, &[json!(selector)]).await
    }

    /// The sale's page changes each second, but not what has the focus; the link to the content changes no address.
    async fn live_data_keeps_the_focus(&self) -> Result<()> {
        let browser = &self.browser;
        let after_two_changes = "const summary = document.querySelector('#shards summary'); summary.focus(); \
            return new Promise((done) => setTimeout(() => done(document.activeElement === summary), 2500))";
        assert_eq!(browser.run(after_two_changes, &[]).await?, json!(true));
        let before = browser.url().await?;
        let skip = "document.getElementById('skip').click(); return document.activeElement.id";
        assert_eq!(browser.run(skip, &[]).await?, json!("content"));
        assert_eq!(browser.url().await?, before);
        Ok(())
    }

    /// The overview names a sale that has started and cannot sell.
    async fn overview_names_problems(&self) -> Result<()> {
        let browser = &self.browser;
        browser.open(&self.console("#/overview")).await?;
        browser
            .wait_for_text("#attention", "Everything is fine")
            .await?;
        let cold = weir_stack::sale::sale_json("cold", 5, 1)?;
        let made = self.api(Method::POST, "/sales", &cold).await?;
        ensure!(made.status == 201, "{}", made.text());
        browser
            .wait_for_text("#attention", "has started but is not warm")
            .await?;
        browser.wait_for_text("#now", "Not warm").await?;
        self.looks_right("console-overview").await
    }

    /// Switches the open sale, after the question.
    async fn switch_to(&self, state: &str) -> Result<()> {
        let option = format!("#switch [value={state}]");
        self.browser.click(&option).await?;
        self.browser.click("#ask-yes").await
    }

    /// Closes the sale elsewhere, then changes a fallback here: the sale stays closed.
    async fn switch_keeps_what_others_changed(&self) -> Result<()> {
        let browser = &self.browser;
        self.switch_to("drain").await?;
        browser.wait_for_text("#sale-status", "Drain").await?;
        browser
            .wait_for_text("#toasts", "is switched to Drain")
            .await?;
        let closed = json!({ "state": "closed" });
        self.api(Method::PUT, "/sales/autumn/switch", &closed)
            .await?;
        browser.wait_for_text("#sale-status", "Closed").await?;
        browser.click("#tab-settings").await?;
        browser.click("#fallbacks [name=static_page]").await?;
        browser.click("#fallbacks button[type=submit]").await?;
        browser
            .wait_for_text("#toasts", "Serve static page: on")
            .await?;
        let sale = self.api(Method::GET, "/sales/autumn", &Value::Null).await?;
        let sale = sale.json()?;
        assert_eq!(
            (&sale["state"], &sale["degrade"]["static_page"]),
            (&json!("closed"), &json!(true))
        );
        Ok(())
    }

    /// A room that no one has set has empty fields, not limits of zero.
    async fn unknown_room_gets_no_zeros(&self) -> Result<()> {
        let browser = &self.browser;
        browser.type_into("#find-room [name=room]", "none").await?;
        browser.click("#find-room button").await?;
        browser
            .wait_for_text("[data-room=none]", "as configured")
            .await?;
        browser
            .click("[data-room=none] button[type=submit]")
            .await?;
        browser
            .wait_for_text("[data-room=none]", "Please fix 3 fields")
            .await?;
        let room = self.api(Method::GET, "/rooms/none", &Value::Null).await?;
        assert_eq!(room.status, 404);
        // And a setting can be taken back.
        browser
            .click("[data-room=shop] .back-to-configuration")
            .await?;
        browser.click("#ask-yes").await?;
        browser
            .wait_for_text("[data-room=shop]", "as configured")
            .await?;
        let rooms = self.api(Method::GET, "/rooms", &Value::Null).await?;
        assert_eq!(rooms.json()?, json!({ "rooms": [] }));
        Ok(())
    }

    async fn choose(&self, selector: &str, value: &str) -> Result<()> {
        let option = format!("{selector} option[value={value}]");
        self.browser.click(&option).await
    }
}

/// One session, so that the browser starts only once.
#[tokio::test(flavor = "multi_thread")]
async fn operator_runs_a_sale_and_a_room_with_a_full_audit_trail() -> Result<()> {
    let mut desk = ConsoleFixture::open(|_, _| Ok(())).await?;
    let (operator, viewer) = (desk.key("operator").await?, desk.key("viewer").await?);
    let browser = &desk.browser;
    browser.open(&desk.console("#/sales")).await?;
    desk.enter("no key").await?;
    browser
        .wait_for_text("[role=alert]", "This key isn’t valid")
        .await?;
    desk.looks_right("console-sign-in").await?;
    desk.enter(&operator).await?;
    browser.wait_for_text("#none", "No sales yet").await?;
    // Scripts cannot read the session cookie.
    let observed = "return document.cookie.length + sessionStorage.length + localStorage.length";
    assert_eq!(browser.run(observed, &[]).await?, json!(0));

    // All errors are shown at once.
    browser.open(&desk.console("#/sales/new")).await?;
    browser.click("#make button[type=submit]").await?;
    browser.wait_for_text("#said", "3 fields").await?;
    assert_eq!(desk.count("[aria-invalid=true]").await?, json!(3));
    desk.looks_right("console-new-sale").await?;
    browser.type_into("#make [name=title]", HOSTILE).await?;
    browser.type_into("#make [name=id]", "autumn").await?;
    browser.type_into("#make [name=total]", "500").await?;
    browser.click("#make button[type=submit]").await?;

    // Warms the sale, and shows it without a reload.
    browser.wait_for_text("#sale-status", "Not warm").await?;
    browser.wait_for_text("h1", HOSTILE).await?;
    assert_eq!(desk.count("main img").await?, json!(0));
    browser.click("#warm").await?;
    browser.wait_for_text("#live-stock", "500").await?;
    browser.wait_for_text("#sale-status", "Ready").await?;
    browser.wait_for_text("#no-verdicts", "No data yet").await?;
    desk.live_data_keeps_the_focus().await?;
    browser.click("#tab-balance").await?;
    browser.click("#read-books").await?;
    browser.wait_for_text("#books", "Balanced").await?;
    desk.switch_keeps_what_others_changed().await?;
    browser.click("#tab-live").await?;
    desk.looks_right("console-sale").await?;
    let sale = desk.api(Method::GET, "/sales/autumn", &Value::Null).await?;
    assert_eq!(sale.json()?["state"], "closed");

    // A waiting room with a setting.
    let open = json!({ "mode": "open", "per_minute": 60 });
    desk.api(Method::PUT, "/rooms/shop", &open).await?;
    browser.open(&desk.console("#/rooms")).await?;
    desk.choose("[data-room=shop] [name=mode]", "paused")
        .await?;
    browser
        .type_into("[data-room=shop] [name=per_minute]", "600")
        .await?;
    browser
        .click("[data-room=shop] button[type=submit]")
        .await?;
    // A paused room lets no visitor in: the console asks first.
    browser.click("#ask-yes").await?;
    browser
        .wait_for_text("#toasts", "Saved as version 2")
        .await?;
    let room = desk.api(Method::GET, "/rooms/shop", &Value::Null).await?;
    let setting = room.json()?["setting"].clone();
    assert_eq!(
        (&setting["mode"], &setting["per_minute"]),
        (&json!("paused"), &json!(600))
    );
    desk.looks_right("console-rooms").await?;
    let has_pace = "return document.querySelector('[data-room=shop] [name=pace]').value > 0";
    browser.until(has_pace, &[]).await?;
    desk.unknown_room_gets_no_zeros().await?;
    browser.open(&desk.console("#/limits")).await?;
    browser
        .wait_for_text("#no-rules", "No rules in Redis")
        .await?;

    // The former address of events leads to the console.
    let page = format!("{}/events/page", desk.origin.admin_url());
    browser.open(&page).await?;
    browser.wait_for_text("main", "no events").await?;
    assert!(browser.url().await?.ends_with("/ui#/events"));

    // An operator can read keys, but not create them.
    browser.open(&desk.console("#/keys")).await?;
    browser.wait_for_text("#keys", "the viewer").await?;
    assert_eq!(desk.count("#make-key").await?, json!(0));
    browser.open(&desk.console("#/audit")).await?;
    for sentence in [
        "the operator created a sale autumn",
        "the operator switched sale autumn",
        "state: open → drain",
        "the operator changed waiting room shop",
    ] {
        browser.wait_for_text("#trail", sentence).await?;
    }
    desk.looks_right("console-audit").await?;
    desk.overview_names_problems().await?;
    // Expected refusals: a wrong key, an unknown room, and events that this origin does not have.
    let existing = ["/access/session", "/groups", "/events/", "/rooms/none"];
    desk.nothing_to_complain(&existing).await?;

    // A viewer has no controls; after signing out there is no data.
    browser.click("#sign-out").await?;
    desk.enter(&viewer).await?;
    browser.open(&desk.console("#/sales/id/autumn")).await?;
    browser.wait_for_text("#sale-status", "Closed").await?;
    assert_eq!(desk.count("#actions button").await?, json!(0));
    assert_eq!(
        desk.count("#switch :is(input, select, button):enabled")
            .await?,
        json!(0)
    );
    assert_eq!(desk.count("#views a[href='#/audit']").await?, json!(0));
    browser.click("#sign-out").await?;
    browser.text("[name=key]").await?;
    assert!(!browser.page_text().await?.contains("autumn"));
    desk.browser.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn console_shows_why_redis_refuses() -> Result<()> {
    let desk = ConsoleFixture::open(|_, _| Ok(())).await?;
    let viewer = desk.key("viewer").await?;
    let browser = &desk.browser;
    browser.open(&desk.console("#/sales")).await?;
    desk.enter(&viewer).await?;
    browser.wait_for_text("#none", "No sales yet").await?;
    assert_eq!(desk.count("#health *").await?, json!(0));
    let mut redis = weir_stack::redis::connect(&desk.redis.url()).await?;
    let _: () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1"])
        .query_async(&mut redis)
        .await?;
    browser.open(&desk.console("#/rooms")).await?;
    browser
        .wait_for_text("#health [role=alert]", "Redis is full")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_become_sales_with_a_shared_limit() -> Result<()> {
    let desk = ConsoleFixture::open(|_, _| Ok(())).await?;
    let operator = desk.key("operator").await?;
    let browser = &desk.browser;
    browser.open(&desk.console("#/sales/new")).await?;
    desk.enter(&operator).await?;
    browser.type_into("#make [name=title]", "Runner").await?;
    browser
        .type_into("#make [name=sizes]", "S, 3\nM, many")
        .await?;
    browser.click("#make button[type=submit]").await?;
    browser
        .wait_for_text("#make", "one size on each line")
        .await?;
    browser
        .type_into("#make [name=sizes]", "S, 3\nM, 4")
        .await?;
    desk.looks_right("console-new-sale-sizes").await?;
    browser.click("#make button[type=submit]").await?;
    browser
        .wait_for_text("#toasts", "2 sales are created")
        .await?;
    browser.wait_for_text("#sales", "Runner, M").await?;
    let sale = desk
        .api(Method::GET, "/sales/runner-m", &Value::Null)
        .await?
        .json()?;
    let shared = json!({ "id": "runner", "user_cap": 1 });
    assert_eq!((&sale["total"], &sale["group"]), (&json!(4), &shared));
    desk.nothing_to_complain(&[]).await
}

/// A tenant's pages show neither global data nor other tenants' data.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_operator_sees_only_own_sales() -> Result<()> {
    let desk = ConsoleFixture::open(|_, _| Ok(())).await?;
    let tenant = json!({ "title": "Acme" });
    desk.api(Method::PUT, "/tenants/acme", &tenant).await?;
    let new = json!({ "name": "Ada", "role": "operator", "tenant": "acme" });
    let created = desk.api(Method::POST, "/access/keys", &new).await?;
    let key = created.json()?["key"]
        .as_str()
        .context("no key")?
        .to_owned();
    for id in ["acme--tee", "other"] {
        let sale = weir_stack::sale::sale_json(id, 5, 1)?;
        let created = desk.api(Method::POST, "/sales", &sale).await?;
        ensure!(created.status == 201, "{}", created.text());
    }
    let browser = &desk.browser;
    browser.open(&desk.console("#/sales")).await?;
    desk.enter(&key).await?;
    browser.wait_for_text("#sales", "acme--tee").await?;
    browser
        .wait_for_text("body", "Ada (acme, operator)")
        .await?;
    assert_eq!(desk.count("#sales tbody tr").await?, json!(1));
    assert_eq!(desk.count("#global").await?, json!(0));
    assert_eq!(desk.count("[href='#/limits']").await?, json!(0));
    browser.open(&desk.console("#/sales/new")).await?;
    browser.wait_for_text("h1", "New sale").await?;
    let id = browser
        .run("return document.querySelector('[name=id]').value", &[])
        .await?;
    assert_eq!(id, json!("acme--"));
    browser.open(&desk.console("#/sales/id/acme--tee")).await?;
    browser.wait_for_text("#sale-status", "Not warm").await?;
    desk.nothing_to_complain(&[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_sees_refusing_rules_and_refused_keys() -> Result<()> {
    let rules = r#"{ "user_header": "x-user-id", "redis": { "deadline_ms": 5000 }, "report": true, "rules": [
        { "name": "hourly", "key": ["user"], "limit": { "rate": 3, "per": "1h" } },
        { "name": "trial", "key": [{ "header": "x-api-key" }], "mode": "shadow", "limit": { "rate": 5, "per": "1h" } },
        { "name": "never", "key": ["user"], "deny": [["eve"]], "limit": { "rate": 9, "per": "1s" } }] }"#;
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::Straight,
        config: rules,
    };
    let mut limiters = setup.start().await?;
    let redis_url = limiters.redis()?.url();
    let desk = ConsoleFixture::open(|options, _| {
        options.redis_url = redis_url;
        Ok(())
    })
    .await?;
    let browser = &desk.browser;
    let viewer = desk.key("viewer").await?;
    browser.open(&desk.console("#/limits")).await?;
    desk.enter(&viewer).await?;
    browser
        .wait_for_text("#no-refusals", "No requests were refused")
        .await?;
    let burst = limiters.burst("/", "alice", 8).await?;
    assert_eq!((burst.passed.len(), burst.limited.len()), (3, 5));
    let burst = limiters.burst("/", HOSTILE, 5).await?;
    assert_eq!((burst.passed.len(), burst.limited.len()), (3, 2));
    let headers = [("x-user-id", "eve")];
    assert_eq!(limiters.ask("/", &headers).await?.status, 403);

    let observed = "const cells = [...document.querySelectorAll(arguments[0])];
        return cells.map((cell) => cell.textContent).join(' ') === arguments[1]";
    let by_rule = "hourly 7 0 0 never 0 0 1 trial 0 1 0";
    let rows = |table: &str| json!(format!("{table} tbody :is(th, td)"));
    let arguments = [rows("#refusals"), json!(by_rule)];
    browser.until(observed, &arguments).await?;
    // A key from a header is shown as a dash.
    let by_key = format!("alice hourly 5 0 {HOSTILE} hourly 2 0 \u{2013} trial 0 1");
    let arguments = [rows("#refused-keys"), json!(by_key)];
    browser.until(observed, &arguments).await?;
    assert_eq!(desk.count("main img").await?, json!(0));
    // The gateway reports its rules.
    browser.open(&desk.console("#/gateways")).await?;
    browser.wait_for_text("#gateways", "ratelimit").await?;
    browser
        .wait_for_text("#no-differences", "All gateways run the same")
        .await?;
    desk.looks_right("console-gateways").await?;
    browser.open(&desk.console("#/limits")).await?;
    browser.wait_for_text("#gateway-rules", "3 per").await?;
    browser
        .wait_for_text("#gateway-rules", "shadow mode")
        .await?;
    desk.looks_right("console-limits").await?;
    desk.nothing_to_complain(&[]).await?;
    limiters.check()
}
