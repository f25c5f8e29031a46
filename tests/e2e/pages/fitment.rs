//! The page of vehicle fitment.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};
use weir_stack::http::{self, Method};

use super::{ConsoleFixture, HOSTILE};

impl ConsoleFixture {
    async fn with_fitment() -> Result<Self> {
        let desk = Self::open(|options, path| {
            options.fitment = Some(path.join("imports"));
            Ok(())
        })
        .await?;
        desk.put(
            "vehicles/1000001",
            &json!({"make": "VW", "model": HOSTILE, "year": 2015}),
        )
        .await?;
        desk.put("vehicles/1000002", &json!({"make": "VW", "model": "Polo"}))
            .await?;
        for sku in ["S1", "S2"] {
            let product = json!({"spu": "P1", "type": "tyre", "merchant": "m1"});
            desk.put(&format!("products/{sku}"), &product).await?;
        }
        let front = json!({"year_from": 2012, "year_to": 2015, "position": "front"});
        desk.put("relations/S1/1000001", &front).await?;
        desk.put("relations/S2/1000001", &json!({})).await?;
        Ok(desk)
    }

    async fn put(&self, path: &str, body: &Value) -> Result<()> {
        let put = self
            .api(Method::PUT, &format!("/fitment/{path}"), body)
            .await?;
        ensure!(put.status < 300, "{path}: {}", put.text());
        Ok(())
    }

    /// Uploads a file of relations.
    async fn upload(&self, text: &str) -> Result<u64> {
        let url = format!("{}/fitment/imports?kind=relations", self.origin.admin_url());
        let bearer = format!("Bearer {}", self.secrets.admin_token);
        let headers = [("authorization", bearer.as_str())];
        let answer = http::send(Method::POST, &url, &headers, text.to_owned()).await?;
        ensure!(answer.status == 202, "{}", answer.text());
        Ok(answer.json()?["id"].as_u64().unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_sees_fitments_and_import_results() -> Result<()> {
    let desk = ConsoleFixture::with_fitment().await?;
    let browser = &desk.browser;
    let page = format!("{}/fitment/ui", desk.origin.admin_url());
    browser.open(&page).await?;
    browser
        .type_into("[name=key]", "no token of anyone's, ever")
        .await?;
    browser.click("button[type=submit]").await?;
    browser
        .wait_for_text("[role=alert]", "This key isn’t valid")
        .await?;
    browser
        .type_into("[name=key]", &desk.secrets.admin_token)
        .await?;
    browser.click("button[type=submit]").await?;

    // A vehicle by its make, and its fitting parts.
    browser.type_into("[name=make]", "VW").await?;
    browser.click("#search button[type=submit]").await?;
    browser.wait_for_text("#sum", "2 vehicles").await?;
    browser.wait_for_text("table", HOSTILE).await?;
    desk.looks_right("fitment-vehicles").await?;
    browser.click("a[href='#/fitment/vehicle/1000001']").await?;
    browser.wait_for_text("#parts", "S2").await?;
    desk.looks_right("fitment-vehicle").await?;

    // A part, and its vehicles.
    browser.click("a[href='#/fitment/part/S1']").await?;
    browser.wait_for_text("h3", "Fits 1 vehicle").await?;
    browser.wait_for_text("table", "2012–2015, front").await?;
    desk.looks_right("fitment-part").await?;
    browser.click("a[href='#/fitment/parts']").await?;
    browser.type_into("[name=sku]", "S9").await?;
    browser.click("#find-part button[type=submit]").await?;
    browser.wait_for_text("#said", "SKU not found.").await?;

    // Imports: a finished one, one with an error, one with a lost file.
    let done = desk.upload("sku,vehicle\nS1,1000002\n").await?;
    let broken = desk.upload("sku,vehicle\nS1,1000002\nS1,100000x\n").await?;
    browser.click("a[href='#/fitment/imports']").await?;
    let row = |id: u64, text: &str| json!([format!("{id}"), text]);
    let shows = "return [...document.querySelectorAll('tbody tr')].some((row) => \
                 row.cells[0].innerText === arguments[0][0] && row.innerText.includes(arguments[0][1]))";
    browser.until(shows, &[row(done, "done")]).await?;
    browser.until(shows, &[row(broken, "failed")]).await?;
    desk.looks_right("fitment-imports").await?;
    browser
        .click(&format!("a[href='#/fitment/errors/{broken}']"))
        .await?;
    browser.wait_for_text("h2", "1 error").await?;
    browser.wait_for_text("table", "vehicle").await?;
    Ok(())
}

/// The file of an import is in the folder of an origin that is permanently gone.
#[tokio::test(flavor = "multi_thread")]
async fn operator_aborts_an_import() -> Result<()> {
    let desk = ConsoleFixture::with_fitment().await?;
    let url = format!("sqlite://{}", desk.origin.database().display());
    let insert = "INSERT INTO fitment_imports (kind, format, mode, file, state, size, position, line, records, errors, message, \
                  created_at_ms, holder, lease_until_ms) \
                  VALUES ('relations', 'csv', 'merge', 'lost', 'waiting', 1, 0, 0, 0, 0, '', 1, '', 0)";
    let mut sql = SqliteConnection::connect(&url).await?;
    sqlx::query(insert).execute(&mut sql).await?;
    let browser = &desk.browser;
    browser
        .open(&format!("{}/fitment/ui#/imports", desk.origin.admin_url()))
        .await?;
    browser
        .type_into("[name=key]", &desk.secrets.admin_token)
        .await?;
    browser.click("button[type=submit]").await?;
    browser.wait_for_text("table", "waiting").await?;
    browser.click("td button").await?;
    browser.click("#ask-yes").await?;
    browser.wait_for_text("table", "cancelled").await?;
    desk.nothing_to_complain(&[]).await
}
