//! The console's views of a running sale: orders, users, stock and end, and the platform's tenants.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::http::Method;
use weir_stack::report::SilentReporter;
use weir_stack::{Stack, tools};
use weir_tests::{Browser, buy, until};

use super::{HOSTILE, SCREEN, looks_right, nothing_to_complain};
use crate::whole_sale::{audited, order, pays};

/// A shop with its gateway, and a browser at the console.
struct Shop {
    browser: Browser,
    stack: Stack,
}

impl Shop {
    /// Opens the console with a key of this role.
    async fn open(prefix: &str, role: &str) -> Result<Self> {
        let stack = Stack::builder().key_prefix(prefix).start().await?;
        let tool = tools::Chromium::find_or_get(&mut SilentReporter)?;
        let browser = Browser::start(&tool, &stack.data_dir().join("browser")).await?;
        browser.show_on(SCREEN).await?;
        let shop = Self { browser, stack };
        shop.enter(role).await?;
        Ok(shop)
    }

    async fn enter(&self, role: &str) -> Result<()> {
        let new = json!({ "name": format!("Olga, {role}"), "role": role }).to_string();
        let response = self
            .stack
            .admin(Method::POST, "/access/keys", &new, 201)
            .await?;
        self.see("#/sales").await?;
        let key = response["key"].as_str().context("no key")?;
        self.browser.type_into("[name=key]", key).await?;
        self.browser.click("button[type=submit]").await?;
        self.browser.wait_for_text("h1", "Sales").await
    }

    async fn see(&self, view: &str) -> Result<()> {
        let url = format!("{}/ui{view}", self.stack.origin_admin_url());
        self.browser.open(&url).await
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.stack.admin(Method::GET, path, "", 200).await
    }

    async fn count(&self, selector: &str) -> Result<u64> {
        let script = "return document.querySelectorAll(arguments[0]).length";
        let count = self.browser.run(script, &[json!(selector)]).await?;
        count.as_u64().context("no count")
    }

    async fn choose(&self, selector: &str, value: &str) -> Result<()> {
        self.browser
            .click(&format!("{selector} option[value={value}]"))
            .await
    }

    /// Confirms the question.
    async fn yes(&self) -> Result<()> {
        self.browser.click("#ask-yes").await
    }
}

/// A paid order of Alice's, and unpaid ones of Bob's and Carol's. Returns Alice's.
async fn three_orders(stack: &Stack) -> Result<String> {
    let paid = order(stack, "s", "alice").await?;
    pays(stack, &paid, "alice").await?;
    order(stack, "s", "bob").await?;
    order(stack, "s", "carol").await?;
    let id = paid.strip_prefix("/orders/").context("no path")?;
    Ok(id.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_finds_cancels_and_refunds_orders() -> Result<()> {
    let shop = Shop::open("console-orders", "operator").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 8, 2).await?;
    let paid = three_orders(stack).await?;

    // The newest orders of the running sale, without a search.
    shop.see("#/orders").await?;
    browser.wait_for_text("#orders", "carol").await?;
    let clear = "document.querySelector('#search [name=sale]').value = ''";
    browser.run(clear, &[]).await?;
    browser.click("#search button[type=submit]").await?;
    browser
        .wait_for_text("#said", "Enter a sale, a user or an order number")
        .await?;
    shop.see("#/sales/id/s").await?;
    browser.click("#orders-of").await?;
    browser.wait_for_text("#orders", "carol").await?;
    assert_eq!(shop.count("#orders tbody tr").await?, 3);

    // One order: its details, and a refund.
    browser.click(&format!("[data-order='{paid}']")).await?;
    browser.wait_for_text("#order", "alice").await?;
    looks_right(browser, "console-orders").await?;
    browser.click("#refund").await?;
    shop.yes().await?;
    browser.wait_for_text("#order-said", "Refund: done").await?;
    browser.wait_for_text("#payments", "refund_due").await?;
    browser.type_into("[name=reference]", "bank 7").await?;
    browser.click(".give-back button").await?;
    browser.wait_for_text("#payments", "refunded").await?;
    let message = shop.get(&format!("/orders/{paid}")).await?;
    assert_eq!(message["status"], "cancelled", "{message}");
    assert_eq!(message["payments"][0]["reference"], "bank 7", "{message}");

    // One order by its ID; impossible actions are explained.
    let bobs = shop.get("/orders?sale=s&user=bob").await?;
    let bobs = bobs["orders"][0]["order"]
        .as_str()
        .context("no order")?
        .to_owned();
    shop.see("#/orders?sale=s").await?;
    browser.click("#search summary").await?;
    browser.type_into("#search [name=order]", &bobs).await?;
    browser.click("#search button[type=submit]").await?;
    browser.wait_for_text("#order", "bob").await?;
    pays(stack, &format!("/orders/{bobs}"), "bob").await?;
    browser.click("#cancel").await?;
    shop.yes().await?;
    browser
        .wait_for_text("#order-said [role=alert]", "paid; refund it instead")
        .await?;
    // Via the sale's page, because the current list may still be replaced when its boxes are ticked.
    shop.see("#/sales/id/s").await?;
    browser.click("#orders-of").await?;
    browser.wait_for_text("#orders", "carol").await?;

    // Many orders: all are selected, and each has its result.
    browser.click("#choose-all").await?;
    browser.wait_for_text(".selected", "3 selected").await?;
    browser.click("#cancel-chosen").await?;
    browser
        .wait_for_text("dialog .quiet", "Keep 3 orders")
        .await?;
    browser.wait_for_text("#ask-yes", "Cancel 3 orders").await?;
    shop.yes().await?;
    browser.wait_for_text("#toasts", "1 done").await?;
    browser
        .wait_for_text("#toasts", "1 paid; refund it instead")
        .await?;
    audited(stack, "s", 7, 1).await?;
    // The keyboard stays at the list.
    let focus = "return document.activeElement.id === 'choose-all'";
    browser.until(focus, &[]).await?;
    shop.choose("[name=status]", "unpaid").await?;
    browser.click("#search button[type=submit]").await?;
    browser
        .wait_for_text("#no-orders", "No orders match")
        .await?;
    let later = "document.querySelector('[name=from]').value = '2099-01-01T00:00'; document.querySelector('[name=status]').value = '';";
    browser.run(later, &[]).await?;
    browser.click("#search button[type=submit]").await?;
    // The previous search also found none: the address shows when this one is done.
    let is_done = "return location.hash.includes('from=2099')";
    browser.until(is_done, &[]).await?;
    browser
        .wait_for_text("#no-orders", "No orders match")
        .await?;

    // All orders as a table, with only the session.
    shop.see("#/orders?sale=s").await?;
    browser.wait_for_text("#orders", "carol").await?;
    let csv = "return fetch(document.getElementById('csv').href).then((answer) => answer.text())";
    let csv = browser.run(csv, &[]).await?;
    let csv = csv.as_str().context("no table")?;
    ensure!(csv.contains("alice") && csv.lines().count() == 4, "{csv}");
    nothing_to_complain(browser, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_blocks_and_unblocks_a_user_in_all_sales() -> Result<()> {
    let shop = Shop::open("console-users", "operator").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 4, 1).await?;
    shop.see("#/users").await?;
    browser
        .wait_for_text("#nobody", "No blocked users.")
        .await?;
    browser.click("#set-user button[type=submit]").await?;
    browser
        .wait_for_text("#set-said", "Please fix 2 fields")
        .await?;
    assert_eq!(shop.count("[aria-invalid=true]").await?, 2);
    browser
        .type_into("#set-user [name=user]", "mallory")
        .await?;
    browser
        .type_into("#set-user [name=reason]", HOSTILE)
        .await?;
    browser.click("#set-user button[type=submit]").await?;
    shop.yes().await?;
    browser.wait_for_text("#users", "mallory").await?;
    browser.wait_for_text("#users", HOSTILE).await?;
    assert_eq!(shop.count("main img").await?, 0);
    looks_right(browser, "console-users").await?;
    let refused = buy(stack, "s", "mallory").await?;
    assert_eq!(refused.status, 403, "{}", refused.text());

    browser.click("#users button").await?;
    shop.yes().await?;
    browser
        .wait_for_text("#nobody", "No blocked users.")
        .await?;
    browser.type_into("#look [name=looked]", "mallory").await?;
    browser.click("#look button").await?;
    browser.wait_for_text("#looked", "mallory: none").await?;
    browser.wait_for_text("#log", HOSTILE).await?;

    // In one sale only.
    shop.see("#/sales/id/s").await?;
    browser.click("#tab-stock").await?;
    browser
        .type_into("#block [name=blocked]", "mallory")
        .await?;
    browser.click("#block [type=submit]").await?;
    shop.yes().await?;
    browser.wait_for_text("#toasts", "cannot buy here").await?;
    let refused = buy(stack, "s", "mallory").await?;
    assert_eq!(refused.status, 403, "{}", refused.text());
    browser.click("#unblock").await?;
    browser.wait_for_text("#toasts", "can buy here").await?;
    until("mallory buys", async || {
        buy(stack, "s", "mallory")
            .await
            .is_ok_and(|answer| answer.status == 201)
    })
    .await?;
    nothing_to_complain(browser, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_adds_and_withdraws_units_and_ends_a_sale() -> Result<()> {
    let shop = Shop::open("console-stock", "operator").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 10, 2).await?;
    order(stack, "s", "alice").await?;
    shop.see("#/sales/id/s/stock").await?;
    browser.wait_for_text("#stock-sum", "10").await?;
    browser.click("#change-stock button").await?;
    browser
        .wait_for_text("#change-stock .wrong", "integer")
        .await?;
    browser.type_into("#change-stock [name=units]", "5").await?;
    browser.click("#change-stock button").await?;
    browser.wait_for_text("#toasts", "+5 units").await?;
    audited(stack, "s", 14, 1).await?;
    browser.click("#tab-balance").await?;
    browser.click("#read-books").await?;
    browser.wait_for_text("#books", "Balanced").await?;
    browser.click("#tab-stock").await?;
    // More than the remaining units: ordered units stay.
    browser
        .type_into("#change-stock [name=units]", "-100")
        .await?;
    browser.click("#change-stock button").await?;
    shop.yes().await?;
    browser
        .wait_for_text("#toasts", "-14 of -100 units")
        .await?;
    let balance = browser
        .run("return document.querySelector('#books').textContent", &[])
        .await?;
    assert_eq!(balance, json!(""), "they are of before");
    audited(stack, "s", 0, 1).await?;
    let stock = shop.get("/sales/s/stock").await?;
    assert_eq!(
        (&stock["initial"], &stock["total"]),
        (&json!(10), &json!(1))
    );
    browser.wait_for_text("#stock-sum", "10").await?;
    looks_right(browser, "console-stock").await?;

    let past =
        "const end = document.querySelector('#move-end input'); end.value = '2001-01-01T00:00';";
    browser.run(past, &[]).await?;
    browser.click("#move-end button").await?;
    shop.yes().await?;
    browser.wait_for_text("#toasts", "It ends").await?;
    browser.wait_for_text("#sale-status", "Over").await?;
    nothing_to_complain(browser, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn viewer_has_no_actions_and_challenge_requires_a_token() -> Result<()> {
    let shop = Shop::open("console-viewer", "viewer").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 10, 2).await?;
    order(stack, "s", "alice").await?;
    shop.see("#/orders?sale=s").await?;
    browser.wait_for_text("#orders", "alice").await?;
    browser.click("#orders a").await?;
    browser.wait_for_text("#order", "alice").await?;
    assert_eq!(shop.count("main button.danger").await?, 0);
    shop.see("#/users").await?;
    browser
        .wait_for_text("#nobody", "No blocked users.")
        .await?;
    assert_eq!(shop.count("#set-user").await?, 0);
    shop.see("#/sales/id/s").await?;
    browser.wait_for_text("#stock-sum", "10").await?;
    assert_eq!(shop.count("#change-stock, #move-end").await?, 0);
    assert_eq!(shop.count("#views a[href='#/tenants']").await?, 0);

    browser.click("#sign-out").await?;
    shop.enter("admin").await?;
    shop.see("#/sales/new").await?;
    browser.type_into("#make [name=title]", "Guarded").await?;
    browser.type_into("#make [name=id]", "guarded").await?;
    browser.type_into("#make [name=total]", "5").await?;
    shop.choose("[name=challenge]", "proof_of_work").await?;
    browser.click("#make button[type=submit]").await?;
    browser
        .wait_for_text("#make", "A challenge needs an order token")
        .await?;
    browser.click("#make summary").await?;
    browser
        .type_into("#make [name=group]", "acme--shoes")
        .await?;
    looks_right(browser, "console-new-sale-challenge").await?;
    browser.click("#make [name=token]").await?;
    browser.click("#make button[type=submit]").await?;
    // Errors that only the origin detects are shown, too.
    browser
        .wait_for_text("#make", "must belong to the sale's tenant")
        .await?;
    browser.type_into("#make [name=group]", "shoes").await?;
    browser.type_into("#make [name=sku]", HOSTILE).await?;
    browser.type_into("#make [name=price]", "49.905").await?;
    browser.click("#make button[type=submit]").await?;
    browser
        .wait_for_text("#make", "Must be an amount in that currency")
        .await?;
    browser.type_into("#make [name=price]", "49.9").await?;
    browser.click("#make button[type=submit]").await?;
    browser.wait_for_text("h1", "Guarded").await?;
    browser.click("#tab-settings").await?;
    browser
        .wait_for_text("main", "proof of work, 18 bits")
        .await?;
    browser.wait_for_text("main", "€49.90").await?;
    browser.wait_for_text("main", HOSTILE).await?;
    browser.click("#copy-sale").await?;
    browser.wait_for_text("h1", "Copy of guarded").await?;
    let copied = "return document.querySelector('[name=price]').value";
    assert_eq!(browser.run(copied, &[]).await?, json!("49.90"));
    let created = shop.get("/sales/guarded").await?;
    assert_eq!(
        created["challenge"],
        json!({ "proof_of_work": { "bits": 18 } })
    );
    assert_eq!(
        created["price"],
        json!({ "unit_amount": 4990, "currency": "EUR" })
    );

    shop.see("#/tenants").await?;
    browser.wait_for_text("#none", "No tenants").await?;
    browser.click("#set-tenant button[type=submit]").await?;
    browser
        .wait_for_text("#set-said", "Please fix 2 fields")
        .await?;
    browser.type_into("#set-tenant [name=name]", "acme").await?;
    browser
        .type_into("#set-tenant [name=title]", HOSTILE)
        .await?;
    browser.type_into("#set-tenant [name=sales]", "3").await?;
    browser
        .type_into("#set-tenant [name=requests_per_second]", "0")
        .await?;
    browser.click("#set-tenant button[type=submit]").await?;
    browser
        .wait_for_text("#set-tenant", "from 1 to 10,000")
        .await?;
    browser
        .type_into("#set-tenant [name=requests_per_second]", "9")
        .await?;
    browser.click("#set-tenant button[type=submit]").await?;
    browser.wait_for_text("#tenants", HOSTILE).await?;
    looks_right(browser, "console-tenants").await?;
    let tenant = shop.get("/tenants/acme").await?;
    assert_eq!(tenant["limits"]["sales"], 3, "{tenant}");
    browser.click("#tenants button.danger").await?;
    browser.type_into("[name=ask-typed]", "acme").await?;
    shop.yes().await?;
    browser.wait_for_text("#none", "No tenants").await?;
    // The expected refusal: another tenant's group.
    nothing_to_complain(browser, &["status of 422"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_sees_gateway_responses() -> Result<()> {
    let shop = Shop::open("console-verdicts", "viewer").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 10, 1).await?;
    shop.see("#/sales/id/s").await?;
    order(stack, "s", "alice").await?;
    order(stack, "s", "bob").await?;
    let refused = buy(stack, "s", "alice").await?;
    ensure!(refused.status == 409, "{}", refused.text());
    browser.wait_for_text("#verdicts", "Cap reached").await?;
    // Opening the sale sent requests without a user until the gateway had loaded it.
    let observed = "const rows = [...document.querySelectorAll('#verdicts tbody tr')];
        const texts = rows.map((row) => [...row.children].map((cell) => cell.textContent).join(' '));
        return texts.filter((text) => !text.startsWith('Invalid user')).join(' ') === arguments[0]";
    let expected = "Granted 2 0 Cap reached 1 0";
    browser.until(observed, &[json!(expected)]).await?;
    looks_right(browser, "console-verdicts").await?;
    nothing_to_complain(browser, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_listed_page_by_page() -> Result<()> {
    let shop = Shop::open("console-pages", "operator").await?;
    let (stack, browser) = (&shop.stack, &shop.browser);
    stack.open_sale("s", 60, 2).await?;
    for n in 0..53 {
        order(stack, "s", &format!("user-{n}")).await?;
    }
    shop.see("#/orders?sale=s").await?;
    browser.wait_for_text("#orders", "user-52").await?;
    assert_eq!(shop.count("#orders tbody tr").await?, 50);
    browser.click("#more").await?;
    browser.wait_for_text("#orders", "user-0").await?;
    assert_eq!(shop.count("#orders tbody tr").await?, 53);
    assert_eq!(shop.count("#more:not([hidden])").await?, 0);
    nothing_to_complain(browser, &[]).await
}
