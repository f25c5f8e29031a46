//! `envoy/snippets/cors.yaml` before the gate: pages of configured sites may read every answer, pages of other sites
//! none.

use anyhow::{Result, ensure};
use serde_json::json;
use weir_stack::Stack;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::http::{self, Method, Response};

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";
const ALLOWED: &str = "access-control-allow-origin";

/// A request as a browser sends it for a page of `site`.
async fn ask(
    stack: &Stack,
    method: Method,
    path: &str,
    site: &str,
    more: &[(&str, &str)],
) -> Result<Response> {
    let mut headers = vec![("origin", site)];
    headers.extend(more);
    let url = format!("{}{path}", stack.gateway_url());
    http::send(method, &url, &headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_site_page_reads_answers_and_preflight_costs_nothing() -> Result<()> {
    let stack = Stack::builder()
        .workers(1)
        .key_prefix("cors")
        .edit_config(EnvoyConfig::cors)
        .start()
        .await?;
    stack
        .open_sale_with("s", 1, 1, json!({ "listed": true, "title": "Shoes" }))
        .await?;
    let buy = "/sales/s/orders";
    let wants = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "idempotency-key"),
    ];
    for path in [
        buy,
        "/sales/s/checkout",
        "/public-sales",
        "/orders/x",
        "/my-orders",
        "/history/join",
        "/fitment/check",
    ] {
        let preflight = ask(&stack, Method::OPTIONS, path, SHOP, &wants).await?;
        assert_eq!(preflight.status, 200, "{path}: {preflight:?}");
        assert_eq!(preflight.header(ALLOWED), Some(SHOP), "{path}");
        let allowed = preflight.header("access-control-allow-headers");
        ensure!(allowed.is_some_and(|all| all.contains("idempotency-key")));
    }
    // The only unit is still available: an order, answered by the origin.
    let alice = [("x-user-id", "alice")];
    let bought = ask(&stack, Method::POST, buy, SHOP, &alice).await?;
    assert_eq!((bought.status, bought.header(ALLOWED)), (201, Some(SHOP)));
    // The filter's own answers, in the buyer's language.
    let german = [
        ("x-user-id", "alice"),
        ("accept-language", "de-AT,en;q=0.5"),
    ];
    let refused = ask(&stack, Method::POST, buy, SHOP, &german).await?;
    assert_eq!(
        (refused.status, refused.header(ALLOWED)),
        (409, Some(SHOP)),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("content-language"), Some("de"));
    let body = refused.json()?;
    assert_eq!(body["error"], "cap_reached");
    let message = "Sie haben die Höchstmenge pro Person bereits erreicht.";
    assert_eq!(body["message"], message);
    // Also at the checkout, which issues no token here.
    let checkout = "/sales/none/checkout";
    let unknown = ask(&stack, Method::POST, checkout, SHOP, &german).await?;
    assert_eq!((unknown.status, unknown.header(ALLOWED)), (404, Some(SHOP)));
    // An answer of the origin.
    let chinese = [("x-user-id", "bob"), ("accept-language", "zh-CN")];
    let unknown = ask(&stack, Method::GET, "/orders/none", SHOP, &chinese).await?;
    assert_eq!((unknown.status, unknown.header(ALLOWED)), (404, Some(SHOP)));
    let body = unknown.json()?;
    assert_eq!(
        (&body["error"], &body["message"]),
        (&json!("unknown_order"), &json!("您没有该订单"))
    );
    // A public resource.
    let list = ask(&stack, Method::GET, "/public-sales", SHOP, &[]).await?;
    assert_eq!((list.status, list.header(ALLOWED)), (200, Some(SHOP)));
    assert_eq!(list.json()?["sales"][0]["title"], "Shoes");

    // A site that is not configured is answered, but its pages may not read the answer.
    let preflight = ask(&stack, Method::OPTIONS, buy, OTHER, &wants).await?;
    assert_eq!(preflight.header(ALLOWED), None, "{preflight:?}");
    let list = ask(&stack, Method::GET, "/public-sales", OTHER, &[]).await?;
    assert_eq!((list.status, list.header(ALLOWED)), (200, None));
    Ok(())
}
