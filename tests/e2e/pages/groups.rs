//! The page of groups, collectors and dead letters.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::Method;
use weir_stack::ports;

use super::{ConsoleFixture, HOSTILE};

impl ConsoleFixture {
    /// With an unreachable webhook and a failing collector.
    pub(super) async fn with_events() -> Result<Self> {
        Self::open(|options, path| {
            options.events_log = Some(path.join("events"));
            let pulls = path.join("pulls.json");
            let unreachable = format!(
                "http://127.0.0.1:{}/events?after={{cursor}}",
                ports::free()?
            );
            let pull = json!({"pulls": [{"name": "erp", "url": unreachable, "every": "1s"}]});
            std::fs::write(&pulls, pull.to_string())?;
            options.flags = vec!["--events-pulls".to_owned(), pulls.display().to_string()];
            Ok(())
        })
        .await
    }

    pub(super) async fn admin_json(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value> {
        let answer = self.api(method, path, body).await?;
        ensure!(answer.status < 300, "{}", answer.text());
        answer.json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_sees_and_moves_groups_and_repairs_refused_events() -> Result<()> {
    let desk = ConsoleFixture::with_events().await?;
    let browser = &desk.browser;
    let sku = json!({"schema": {"type": "object", "required": ["sku"]}});
    desk.admin_json(Method::PUT, "/events/types/view", &sku)
        .await?;
    let view =
        |id: &str| json!({"id": id, "type": "view", "customer": "alice", "attributes": {"sku": 1}});
    let broken =
        json!({"id": "broken", "type": "view", "customer": "bob", "attributes": {"text": HOSTILE}});
    let sent = json!([view("a"), view("b"), view("c"), broken]);
    desk.admin_json(Method::POST, "/events", &sent).await?;

    browser
        .open(&format!("{}/events/page", desk.origin.admin_url()))
        .await?;
    browser
        .type_into("[name=key]", "not the token, at all")
        .await?;
    browser.click("button[type=submit]").await?;
    browser
        .wait_for_text("main", "This key isn’t valid.")
        .await?;
    browser
        .type_into("[name=key]", &desk.secrets.admin_token)
        .await?;
    browser.click("button[type=submit]").await?;

    browser.wait_for_text("#group-store", "running").await?;
    browser.wait_for_text("#group-history", "running").await?;
    browser.wait_for_text("#pull-erp", "failing").await?;
    desk.looks_right("groups").await?;

    // Three events and the rejected one would be delivered again.
    browser.click("#group-history > details summary").await?;
    browser.click("#group-history .dry-run").await?;
    browser
        .wait_for_text("#toasts", "4 records would be replayed, 0 skipped.")
        .await?;
    // The question has the numbers of a dry run, too.
    browser.click("#group-history .move").await?;
    browser
        .wait_for_text("dialog", "4 records would be replayed")
        .await?;
    browser.click("#ask-yes").await?;
    browser
        .wait_for_text("#toasts", "The group resumes there.")
        .await?;

    browser.click("#group-store .run").await?;
    browser.click("#ask-yes").await?;
    browser.wait_for_text("#group-store", "paused").await?;
    browser.click("#group-store .run").await?;
    browser.wait_for_text("#group-store", "running").await?;

    // A rejected event is corrected and sent again.
    browser
        .wait_for_text("#refused-on-arrival", "refused on arrival")
        .await?;
    browser.click("#tab-dead-letters").await?;
    browser.click("#letters button[type=submit]").await?;
    browser.wait_for_text("#letters", "schema").await?;
    browser.click(".letter summary").await?;
    desk.looks_right("letters").await?;
    let body =
        json!({"id": "mended", "type": "view", "customer": "alice", "attributes": {"sku": 2}});
    browser
        .type_into(".letter textarea", &body.to_string())
        .await?;
    browser.click(".letter .save").await?;
    browser.wait_for_text("#toasts", "Saved.").await?;
    browser.click(".letter .resend").await?;
    browser.wait_for_text("#letters", "No dead letters").await?;
    let deadline = tokio::time::Instant::now() + weir_tests::PATIENCE;
    loop {
        let stored = desk
            .admin_json(Method::GET, "/customers/alice/events", &Value::Null)
            .await?;
        let mut events = stored["events"].as_array().into_iter().flatten();
        if events.any(|event| event["id"] == "mended") {
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "never: {stored}");
    }

    // A signed-out tab shows no data.
    browser.click("#sign-out").await?;
    browser.wait_for_text("main", "Sign in").await?;
    desk.nothing_to_complain(&["401"]).await
}
