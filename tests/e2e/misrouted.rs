//! An operator's own route before that of orders.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::envoy::{EnvoyConfig, GATE};
use weir_stack::http::{self, Method};
use weir_tests::{buy, is_left_out_on_native, until};

/// Requests of an old app have a separate route.
fn own_route_first(config: EnvoyConfig) -> Result<EnvoyConfig> {
    let config = config.edit_filter(GATE, |json| {
        json["routes"][0]["envoy_route"] = json!("orders");
        Ok(())
    })?;
    config.edit_http(|manager| {
        let routes = "/route_config/virtual_hosts/0/routes";
        let routes = manager.pointer_mut(routes).and_then(Value::as_array_mut);
        let own = json!({
            "name": "shop",
            "match": {
                "prefix": "/sales/",
                "headers": [{ "name": "x-old-app", "present_match": true }]
            },
            "direct_response": { "status": 501 }
        });
        routes.context("no routes")?.insert(0, own);
        Ok(())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn request_on_another_route_takes_no_unit() -> Result<()> {
    if is_left_out_on_native("names of routes") {
        return Ok(());
    }
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("misrouted")
        .edit_config(own_route_first)
        .start()
        .await?;
    stack.open_sale("misrouted", 1, 1).await?;
    let order = format!("{}/sales/misrouted/orders", stack.gateway_url());
    let headers = [("x-user-id", "alice"), ("x-old-app", "1")];
    for _ in 0..3 {
        let answer = http::send(Method::POST, &order, &headers, String::new()).await?;
        ensure!(answer.status == 501, "{}", answer.status);
        ensure!(answer.header("x-weir-verdict").is_none());
    }
    // The only unit is still available.
    let answer = buy(&stack, "misrouted", "bob").await?;
    ensure!(answer.status == 201, "{} {}", answer.status, answer.text());

    let gateway = format!("{}/stats/prometheus", stack.envoy_admin_url());
    until("three are counted", async || {
        let text = http::get(&gateway).await.map(|answer| answer.text());
        text.is_ok_and(|text| text.contains("weir_seckill_gate_misrouted_total{} 3"))
    })
    .await?;
    let log = std::fs::read_to_string(stack.data_dir().join("envoy.log"))?;
    let message = "an order uses shop instead of the order route";
    ensure!(log.matches(message).count() == 1, "{log}");
    Ok(())
}
