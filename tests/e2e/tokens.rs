//! Order tokens from checkout to order.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};
use weir_tests::{stock_balance, verdict};

async fn buy(stack: &Stack, user: &str, token: &str) -> Result<Response> {
    let headers = [("x-user-id", user), ("x-weir-order-token", token)];
    http::send(Method::POST, &stack.buy_url("tokens"), &headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn token_sale_is_sold_to_holders_of_tokens() -> Result<()> {
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("tokens")
        .start()
        .await?;
    stack
        .open_sale_with("tokens", 5, 2, json!({ "token": true }))
        .await?;

    let url = format!("{}/sales/tokens/checkout", stack.gateway_url());
    let minted = http::send(Method::POST, &url, &[("x-user-id", "alice")], "").await?;
    assert_eq!((minted.status, verdict(&minted)), (200, "token_minted"));
    let minted = minted.json()?;
    let token = minted["token"].as_str().context("no token")?;
    let number = |name: &str| minted[name].as_u64().context("no number");
    let wait_ms = number("usable_at_ms")? - number("now_ms")?;
    assert_eq!(wait_ms, 1_000);

    for (user, token, word) in [
        ("alice", "", "invalid_token"),
        ("alice", "forged", "invalid_token"),
        ("alice", token, "token_too_young"),
        ("bob", token, "invalid_token"),
    ] {
        let refused = buy(&stack, user, token).await?;
        assert_eq!((refused.status, verdict(&refused)), (403, word));
        let retry_after = refused.header("retry-after");
        assert_eq!(retry_after.is_some(), word == "token_too_young");
    }
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    let bought = buy(&stack, "alice", token).await?;
    assert_eq!((bought.status, verdict(&bought)), (201, "granted"));
    assert_eq!(stock_balance(&stack, "tokens").await?.orders, 1);

    let stats = format!("{}/stats/prometheus", stack.envoy_admin_url());
    let stats = http::get(&stats).await?.text();
    for reason in ["missing", "malformed", "too_young", "foreign_user"] {
        let line = format!(r#"weir_seckill_gate_tokens_refused_total{{reason="{reason}"}} 1"#);
        assert!(stats.contains(&line), "no {line}");
    }
    Ok(())
}
