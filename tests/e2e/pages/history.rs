//! The page of recently viewed products. The browser sends the signed user header that a gateway adds.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_base::headers::{USER, USER_SIGNATURE};
use weir_base::id::UserId;
use weir_base::key::{KeyRing, SigningKey};
use weir_history::redis::history::{Active, Change};
use weir_history::redis::history_view;
use weir_history::redis::keys::{HistoryKeys, history_active_of};
use weir_history::slot::Tags;
use weir_history::{DAY_MS, HOT_MS, Owner, Sku, ViewedProduct};
use weir_stack::http::Method;
use weir_stack::redis::RedisServer;
use weir_tests::Browser;

use super::{ConsoleFixture, HOSTILE};

fn now_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

fn alice() -> UserId {
    UserId::new("alice").expect("a good name")
}

/// Stores a user's views as an origin does.
async fn view(redis: &RedisServer, views: &[ViewedProduct]) -> Result<()> {
    let owner = Owner::user(&alice());
    let key = history_active_of("weir", &Tags::new(), now_ms()? / DAY_MS, &owner);
    let (key, life_ms) = (key.as_slice(), HOT_MS);
    let change = Change {
        owner: &owner,
        max: 200,
        life_ms,
    };
    let active = Active { key, life_ms };
    let keys = HistoryKeys::new("weir", &owner);
    let call = history_view::call(&keys, &active, &change, views);
    let mut eval = redis::cmd("EVAL");
    eval.arg(call.script.source).arg(call.keys.len());
    call.words().for_each(|word| {
        eval.arg(word);
    });
    let mut connection = redis.connection().await?;
    let _: redis::Value = eval.query_async(&mut connection).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn user_sees_deletes_and_clears_viewed_products() -> Result<()> {
    let desk = ConsoleFixture::open(|options, _| {
        options.flags = vec!["--history".to_owned()];
        Ok(())
    })
    .await?;
    let (browser, site) = (&desk.browser, desk.origin.url());
    let products = json!({ "products": [
        { "sku": "2", "title": "A green hat", "spu": "hat" },
        { "sku": "3", "title": HOSTILE },
    ] });
    let put = desk.api(Method::PUT, "/products", &products).await?;
    ensure!(put.status == 204, "{}", put.text());
    let now = now_ms()?;
    let observed = |number: u64| ViewedProduct {
        sku: Sku::from(number),
        at_ms: now - number * 1_000,
    };
    view(&desk.redis, &(1..=30).map(observed).collect::<Vec<_>>()).await?;

    // Without a signed-in user.
    browser.open(&format!("{site}/history/page")).await?;
    browser.wait_for_text("#said", "Sign in").await?;

    let ring = KeyRing::new(vec![SigningKey::new("k1", desk.secrets.claim.as_bytes())?])?;
    let sign_in = async |browser: &Browser| {
        let signed = weir_sale::identity::sign(&ring, &alice(), now_ms()?);
        let headers = [
            (USER, signed.value.as_str()),
            (USER_SIGNATURE, &signed.signature),
        ];
        browser.send_headers(&headers).await
    };
    sign_in(browser).await?;
    browser.open(&format!("{site}/history/page")).await?;
    let count = async |browser: &Browser, expected: u64| {
        let script = "return document.querySelectorAll('#items li').length === arguments[0]";
        browser.until(script, &[json!(expected)]).await
    };
    count(browser, 24).await?;
    browser.wait_for_text("#items", "A green hat").await?;
    // Text is not interpreted as markup.
    browser.wait_for_text("#items", HOSTILE).await?;
    sign_in(browser).await?;
    browser.click("#more").await?;
    count(browser, 30).await?;

    sign_in(browser).await?;
    browser.click("li[data-sku='2'] .delete").await?;
    count(browser, 29).await?;
    let removed = "return document.querySelector(\"li[data-sku='2']\") === null";
    browser.until(removed, &[]).await?;

    sign_in(browser).await?;
    browser.click("#clear").await?;
    browser.click("#ask-yes").await?;
    count(browser, 0).await?;
    browser.wait_for_text("#said", "not viewed any").await?;
    let list = desk
        .api(Method::GET, "/history?user=alice", &Value::Null)
        .await?;
    assert_eq!(list.json()?, json!({ "items": [], "complete": true }));
    // Except for the expected refusal.
    desk.nothing_to_complain(&["401"]).await
}
