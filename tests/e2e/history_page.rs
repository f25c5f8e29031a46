//! The page of products that were seen last, clicked through in Chromium, on a real origin with Redis and SQLite. The
//! browser sends what a gateway adds: the signed user.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde_json::json;
use weir_base::headers::{USER, USER_SIGNATURE};
use weir_base::id::UserId;
use weir_base::key::{KeyRing, SigningKey};
use weir_history::slot::Tags;
use weir_history::{DAY_MS, HOT_MS, Owner, Seen, Sku};
use weir_scripts::history::{Active, Change};
use weir_scripts::history_view;
use weir_scripts::keys::{HistoryKeys, history_active_of};
use weir_stack::http::{self, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::redis::RedisServer;
use weir_stack::report::Silent;
use weir_stack::{Secrets, origin, ports, tools};
use weir_tests::{Browser, Screen};

const SCREEN: Screen = Screen {
    width: 1_280,
    height: 860,
    is_dark: false,
    is_phone: false,
};

/// What would be markup, or a script, if the page did not take it for text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

fn now_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

fn alice() -> UserId {
    UserId::new("alice").expect("a good name")
}

/// The views of a user, as an origin notes them.
async fn view(redis: &RedisServer, views: &[Seen]) -> Result<()> {
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
async fn a_user_sees_deletes_and_clears_what_was_viewed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path();
    let tool = tools::Redis::find_or_get(&mut Silent)?;
    let log = path.join("redis.log");
    let redis = RedisServer::start(&tool, ports::free()?, &path.join("redis"), &log).await?;
    let secrets = Secrets::random()?;
    let options = OriginOptions {
        events_log: None,
        port: ports::free()?,
        admin_port: ports::free()?,
        database: path.join("weir.db"),
        redis_url: redis.url(),
        redis_ca: None,
        key_prefix: "weir".to_owned(),
        risk_rules: None,
        links: None,
        // Nobody pays here.
        provider_port: 9,
        flags: vec!["--history".to_owned()],
        secrets: secrets.clone(),
    };
    let site = format!("http://127.0.0.1:{}", options.port);
    let binary = origin::ensure_built()?;
    let origin = Origin::start(&binary, options, &path.join("origin.log")).await?;
    let bearer = format!("Bearer {}", secrets.admin_token);
    let products = json!({ "products": [
        { "sku": "2", "title": "A green hat", "spu": "hat" },
        { "sku": "3", "title": HOSTILE },
    ] });
    let url = format!("{}/products", origin.admin_url());
    let headers = [("authorization", bearer.as_str())];
    let put = http::send(Method::PUT, &url, &headers, products.to_string()).await?;
    ensure!(put.status == 204, "{}", put.text());
    let now = now_ms()?;
    let seen = |number: u64| Seen {
        sku: Sku::from(number),
        at_ms: now - number * 1_000,
    };
    view(&redis, &(1..=30).map(seen).collect::<Vec<_>>()).await?;

    let tool = tools::Chromium::find_or_get(&mut Silent)?;
    let browser = Browser::start(&tool, &path.join("browser")).await?;
    browser.show_on(SCREEN).await?;
    // Nobody has signed in.
    browser.open(&format!("{site}/history/page")).await?;
    browser.wait_for_text("#said", "Sign in").await?;

    let ring = KeyRing::new(vec![SigningKey::new("k1", secrets.claim.as_bytes())?])?;
    let sign_in = async |browser: &Browser| {
        let signed = weir_sale::identity::sign(&ring, &alice(), now_ms()?);
        let headers = [
            (USER, signed.value.as_str()),
            (USER_SIGNATURE, &signed.signature),
        ];
        browser.send_headers(&headers).await
    };
    sign_in(&browser).await?;
    browser.open(&format!("{site}/history/page")).await?;
    let count = async |browser: &Browser, wanted: u64| {
        let script = "return document.querySelectorAll('#items li').length === arguments[0]";
        browser.until(script, &[json!(wanted)]).await
    };
    count(&browser, 24).await?;
    browser.wait_for_text("#items", "A green hat").await?;
    // Text stays text.
    browser.wait_for_text("#items", HOSTILE).await?;
    sign_in(&browser).await?;
    browser.click("#more").await?;
    count(&browser, 30).await?;

    sign_in(&browser).await?;
    browser.click("li[data-sku='2'] .delete").await?;
    count(&browser, 29).await?;
    let gone = "return document.querySelector(\"li[data-sku='2']\") === null";
    browser.until(gone, &[]).await?;

    sign_in(&browser).await?;
    browser.click("#clear").await?;
    browser.click("#ask-yes").await?;
    count(&browser, 0).await?;
    browser.wait_for_text("#said", "not viewed any").await?;
    let url = format!("{}/history?user=alice", origin.admin_url());
    let list = http::send(Method::GET, &url, &headers, String::new()).await?;
    assert_eq!(list.json()?, json!({ "items": [], "complete": true }));
    // But for the refusal that was asked for, nothing went wrong behind the page's back.
    let complaints = browser.complaints().await?;
    let others = complaints.iter().filter(|line| !line.contains("401"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
    Ok(())
}
