//! A panic in the module affects one request, and never Envoy.

use anyhow::Result;
use weir_stack::Stack;
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_tests::{buy, rush, stock_balance, until, users};

#[tokio::test(flavor = "multi_thread")]
async fn panic_returns_503_and_is_counted_and_envoy_survives() -> Result<()> {
    let builder = Stack::builder().host(Host::NativePanicking).workers(2);
    let mut stack = builder.key_prefix("panics").start().await?;
    stack.open_sale("panics", 50, 2).await?;
    rush(&stack, "panics", users(0..10), 4).await?;
    let pid = stack.envoy.process().pid();
    for n in 0..20 {
        let headers = [("x-user-id", "mallory"), ("x-weir-test-panic", "1")];
        let url = stack.buy_url("panics");
        let answer = http::send(Method::POST, &url, &headers, "").await?;
        assert_eq!(answer.status, 503, "{n}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()?["error"], "unavailable");
    }
    until("all are counted", async || {
        let stat = "wasmcustom.weir_native_panics_total";
        stack.envoy.stat(stat).await.is_ok_and(|count| count == 20)
    })
    .await?;
    until("others are served", async || {
        buy(&stack, "panics", "user-10")
            .await
            .is_ok_and(|answer| matches!(answer.status, 201 | 409))
    })
    .await?;
    rush(&stack, "panics", users(0..200), 16).await?;
    let after = stock_balance(&stack, "panics").await?;
    assert_eq!((after.orders, after.held, after.stock), (50, 0, 0));
    assert_eq!(stack.envoy.process().pid(), pid, "the same Envoy");
    let log = stack.envoy.process().tail(2_000);
    assert!(log.contains("weir: panicked: "), "it says where:\n{log}");
    Ok(stack.check_children()?)
}

/// The shipped library ignores a request to panic.
#[tokio::test(flavor = "multi_thread")]
async fn shipped_library_ignores_the_test_panic_header() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(1);
    let stack = builder.key_prefix("no-panics").start().await?;
    stack.open_sale("no-panics", 1, 1).await?;
    until("it is served", async || {
        let headers = [("x-user-id", "mallory"), ("x-weir-test-panic", "1")];
        let answer = http::send(Method::POST, &stack.buy_url("no-panics"), &headers, "").await;
        answer.is_ok_and(|answer| matches!(answer.status, 201 | 200))
    })
    .await
}
