//! `envoy/snippets/history-limits.yaml` before the gate: history is limited by method, by caller and by user.

use anyhow::Result;
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::envoy::{EnvoyConfig, LIMITER};
use weir_stack::http::{self, Method, Response};
use weir_tests::until;

/// A limit with an hour as period, so that nothing recovers during a test.
fn at_most(count: u64) -> Value {
    json!({ "rate": 1, "per": "1h", "burst": count })
}

/// The shipped rules with low limits: of reads, changes, and requests per caller and per user.
fn limited(limits: [u64; 4]) -> impl Fn(EnvoyConfig) -> Result<EnvoyConfig> {
    move |config| {
        config.history_limits()?.edit_filter(LIMITER, |json| {
            json["redis"]["key_prefix"] = "history_limits".into();
            json["redis"]["deadline_ms"] = 5_000.into();
            for (n, count) in limits.into_iter().enumerate() {
                json["rules"][n]["limit"] = at_most(count);
            }
            Ok(())
        })
    }
}

async fn ask(stack: &Stack, method: Method, user: &str, caller: &str) -> Result<Response> {
    let headers = [("x-user-id", user), ("x-caller", caller)];
    let path = if method == Method::GET {
        "/history"
    } else {
        "/history/7"
    };
    http::send(
        method,
        &format!("{}{path}", stack.gateway_url()),
        &headers,
        "",
    )
    .await
}

/// Requests an unknown sale.
async fn ask_for_a_sale(stack: &Stack) -> Result<Response> {
    let url = format!("{}/sales/none", stack.gateway_url());
    http::send(Method::GET, &url, &[("x-user-id", "alice")], "").await
}

/// The number of requests that pass; all others get 429.
async fn passed(
    stack: &Stack,
    method: Method,
    count: u64,
    user: &str,
    caller: &str,
) -> Result<u64> {
    let mut passed = 0;
    for _ in 0..count {
        let answer = ask(stack, method.clone(), user, caller).await?;
        match answer.status {
            200 | 204 => passed += 1,
            status => assert_eq!(status, 429, "{}", answer.text()),
        }
    }
    Ok(passed)
}

async fn start(limits: [u64; 4]) -> Result<Stack> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("history_limits")
        .events()
        .edit_config(limited(limits))
        .start()
        .await?;
    let url = format!("{}/healthz", stack.origin_url());
    until("the origin is there", async || http::is_ok(&url).await).await?;
    // Until the gate has read the catalogue, it answers that it cannot decide.
    until(
        "the gate has read the catalogue",
        async || matches!(ask_for_a_sale(&stack).await, Ok(answer) if answer.status == 404),
    )
    .await?;
    Ok(stack)
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_limited_by_method_by_caller_and_by_user() -> Result<()> {
    let stack = start([9, 3, 7, 5]).await?;
    // Five per user, for all callers together.
    assert_eq!(passed(&stack, Method::GET, 4, "alice", "app").await?, 4);
    assert_eq!(passed(&stack, Method::GET, 3, "alice", "web").await?, 1);
    // Seven per caller, for all users together. Alice's refused requests were not charged.
    assert_eq!(passed(&stack, Method::GET, 2, "bob", "app").await?, 2);
    assert_eq!(passed(&stack, Method::DELETE, 2, "carol", "app").await?, 1);
    // Nine reads in total; changes have a separate limit of three.
    assert_eq!(passed(&stack, Method::GET, 4, "dave", "web").await?, 2);
    assert_eq!(passed(&stack, Method::DELETE, 4, "erin", "web").await?, 2);
    // Other paths are not limited.
    let other = ask_for_a_sale(&stack).await?;
    assert_eq!(other.status, 404, "{}", other.text());
    Ok(())
}
