//! The views of events for sellers: trends, a funnel, the profile of a customer, segments.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::Method;

use super::{ConsoleFixture, HOSTILE};

impl ConsoleFixture {
    async fn see_events(&self, tab: &str) -> Result<()> {
        let url = format!("{}/ui#/events/{tab}", self.origin.admin_url());
        self.browser.open(&url).await
    }

    async fn choose_option(&self, control: &str, value: &str) -> Result<()> {
        let option = format!("[name={control}] option[value='{value}']");
        self.browser.click(&option).await
    }

    /// Waits until the origin's answer has this value at this member.
    async fn until_answer(&self, path: &str, member: &str, value: &Value) -> Result<()> {
        let deadline = tokio::time::Instant::now() + weir_tests::PATIENCE;
        loop {
            let answer = self.admin_json(Method::GET, path, &Value::Null).await?;
            if answer[member] == *value {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "never: {answer}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seller_reads_trends_funnel_profile_and_segment() -> Result<()> {
    let desk = ConsoleFixture::with_events().await?;
    let browser = &desk.browser;
    for name in ["view", "cart", "order"] {
        let path = format!("/events/types/{name}");
        desk.admin_json(Method::PUT, &path, &json!({})).await?;
    }
    let event = |id: &str, name: &str, customer: &str| json!({"id": id, "type": name, "customer": customer, "attributes": {"text": HOSTILE}});
    let sent = json!([
        event("a1", "view", "alice"),
        event("a2", "cart", "alice"),
        event("a3", "order", "alice"),
        event("b1", "view", "bob"),
        event("b2", "cart", "bob"),
    ]);
    desk.admin_json(Method::POST, "/events", &sent).await?;
    desk.until_answer("/customers/bob/profile", "events", &json!(2))
        .await?;

    // Trends, and a funnel over three of the types.
    desk.see_events("trends").await?;
    browser
        .type_into("[name=key]", &desk.secrets.admin_token)
        .await?;
    browser.click("button[type=submit]").await?;
    browser.wait_for_text("#trend-types", "view").await?;
    browser.wait_for_text("#trends", "Events per hour").await?;
    for (step, name) in [("step-1", "view"), ("step-2", "cart"), ("step-3", "order")] {
        desk.choose_option(step, name).await?;
    }
    browser.click("#count-funnel").await?;
    browser
        .wait_for_text("#funnel", "50 % of 2 customers complete all steps")
        .await?;
    desk.looks_right("event-trends").await?;

    // The profile of a customer.
    desk.see_events("customers").await?;
    browser
        .type_into("#look-customer [name=customer]", "alice")
        .await?;
    browser.click("#look-customer button[type=submit]").await?;
    browser.wait_for_text("#profile", "First event").await?;
    browser.wait_for_text("#profile-segments", "none").await?;
    browser.wait_for_text("#customer-events", "cart").await?;
    desk.looks_right("customer-profile").await?;

    // A segment: created, listed, exported, deleted.
    desk.see_events("segments").await?;
    browser
        .wait_for_text("#no-segments", "No segments yet.")
        .await?;
    browser.click("#segment-form button[type=submit]").await?;
    browser
        .wait_for_text("#segment-said", "Please fix one field.")
        .await?;
    browser
        .type_into("#segment-form [name=segment]", "buyers")
        .await?;
    desk.choose_option("type-1", "order").await?;
    browser.click("#segment-form button[type=submit]").await?;
    browser
        .wait_for_text("#toasts", "Segment buyers is saved.")
        .await?;
    desk.until_answer("/events/segments/buyers", "members", &json!(1))
        .await?;
    browser.click("#refresh-segments").await?;
    browser
        .wait_for_text("#segment-list", "at least 1 × order in 30 days")
        .await?;
    browser.click(".show-members").await?;
    browser.wait_for_text("#members", "alice").await?;
    desk.looks_right("segments").await?;
    let csv =
        "return fetch(document.getElementById('members-csv').href).then((answer) => answer.text())";
    let csv = browser.run(csv, &[]).await?;
    let csv = csv.as_str().context("no table")?;
    ensure!(csv.contains("alice") && csv.lines().count() == 2, "{csv}");
    browser.click(".remove").await?;
    browser
        .wait_for_text("dialog .quiet", "Keep segment")
        .await?;
    browser.click("#ask-yes").await?;
    browser
        .wait_for_text("#no-segments", "No segments yet.")
        .await?;
    desk.nothing_to_complain(&[]).await
}
