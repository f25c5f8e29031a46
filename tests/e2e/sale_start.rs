//! A sale at its gateway from its creation to its first order.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::envoy::GATE;
use weir_stack::http::{self, Method, Response};
use weir_stack::sale::sale_json;
use weir_tests::{buy, until, verdict};

async fn stack(prefix: &str) -> Result<Stack> {
    Stack::builder().workers(1).key_prefix(prefix).start().await
}

async fn status(stack: &Stack, sale: &str) -> Result<Value> {
    let answer = http::get(&format!("{}/sales/{sale}", stack.gateway_url())).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    answer.json()
}

fn retry_after_s(answer: &Response) -> Result<u64> {
    let seconds = answer.header("retry-after").context("no Retry-After")?;
    Ok(seconds.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_sees_a_sale_before_it_is_warm() -> Result<()> {
    const STARTS_IN_S: u64 = 4;
    let stack = stack("early").await?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let mut sale = sale_json("early", 1, 1)?;
    sale["starts_at_ms"] = json!(now_ms + u128::from(STARTS_IN_S) * 1_000);
    stack.create_sale(&sale).await?;
    until("the gateway knows the sale", async || {
        status(&stack, "early").await.is_ok()
    })
    .await?;
    assert_eq!(status(&stack, "early").await?["state"], "scheduled");
    let early = buy(&stack, "early", "alice").await?;
    assert_eq!((early.status, verdict(&early)), (403, "not_started"));
    assert!((1..=STARTS_IN_S).contains(&retry_after_s(&early)?));

    until("its time has come, and it is not warm", async || {
        let answer = buy(&stack, "early", "alice").await;
        answer.is_ok_and(|answer| (answer.status, verdict(&answer)) == (503, "unavailable"))
    })
    .await?;
    stack.warm_sale("early").await?;
    let order = buy(&stack, "early", "alice").await?;
    assert_eq!((order.status, verdict(&order)), (201, "granted"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn order_right_after_the_warm_up_is_granted() -> Result<()> {
    let stack = stack("pasted").await?;
    // The time since the last poll of a gateway is random.
    for sale in ["pasted-1", "pasted-2", "pasted-3", "pasted-4"] {
        stack.make_sale(sale, 1, 1).await?;
        let order = buy(&stack, sale, "alice").await?;
        assert_eq!((order.status, verdict(&order)), (201, "granted"), "{sale}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fully_reserved_sale_returns_no_server_error() -> Result<()> {
    let stack = stack("reserved").await?;
    let hold = json!({ "payment": { "hold": { "pay_within_ms": 600_000 } } });
    stack.open_sale_with("reserved", 1, 1, hold).await?;
    let order = buy(&stack, "reserved", "alice").await?;
    assert_eq!(order.status, 201);
    until("the status says that all is reserved", async || {
        let answer = buy(&stack, "reserved", "bob").await;
        let is_refused = answer.is_ok_and(|answer| {
            (answer.status, verdict(&answer)) == (409, "all_reserved")
                && retry_after_s(&answer).is_ok()
        });
        let status = status(&stack, "reserved").await;
        is_refused
            && status.is_ok_and(|status| {
                (&status["state"], &status["remaining"]) == (&json!("running"), &json!("reserved"))
            })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn regular_order_of_a_sale_item_is_sent_to_the_sale() -> Result<()> {
    let routes = json!([{ "path": "/cart", "sku": { "query": "sku" } }]);
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("sku")
        .edit_config(move |config| {
            config.edit_filter(GATE, |json| {
                json["sku_routes"] = routes;
                Ok(())
            })
        })
        .start()
        .await?;
    stack
        .open_sale_with("hats", 1, 1, json!({ "sku": "hat" }))
        .await?;
    let order = async |sku: &str| {
        let url = format!("{}/cart?sku={sku}", stack.gateway_url());
        http::send(Method::POST, &url, &[("x-user-id", "alice")], "").await
    };
    until("the gateway knows what the sale sells", async || {
        order("hat").await.is_ok_and(|answer| answer.status == 409)
    })
    .await?;
    let refused = order("hat").await?.json()?;
    assert_eq!(
        (&refused["error"], &refused["orders"]),
        (&json!("sku_in_sale"), &json!("/sales/hats/orders"))
    );
    assert_eq!(order("scarf").await?.status, 404, "no route of this shop");
    Ok(())
}
