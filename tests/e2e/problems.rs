//! All refusals have one format, independent of their source: a problem (RFC 9457).

use anyhow::{Context, Result, ensure};
use weir_base::language::Language;
use weir_base::problem;
use weir_engine::page::{POLICY, Page};
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};
use weir_tests::buy;

/// Checks that the answer is a problem with this status and this error.
fn is_problem(answer: &Response, status: u16, error: &str) -> Result<()> {
    let media_type = answer.header("content-type");
    ensure!(media_type == Some(problem::MEDIA_TYPE), "{answer:?}");
    let body = answer.json()?;
    ensure!(
        answer.status == status && body["status"] == status,
        "{body}"
    );
    ensure!(body["error"] == error, "{body}");
    ensure!(body["type"] == format!("{}{error}", problem::TYPE_PREFIX));
    let message = body["message"].as_str().context("no message")?;
    ensure!(!message.is_empty(), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_envoy_and_origin_refuse_in_one_form() -> Result<()> {
    let mut stack = Stack::builder().key_prefix("problems").start().await?;
    stack.open_sale("problems", 2, 1).await?;

    // From the filter.
    is_problem(
        &buy(&stack, "unheard-of", "alice").await?,
        404,
        "unknown_sale",
    )?;
    // From the origin, on a route that the filter passes.
    let order = format!("{}/orders/none", stack.gateway_url());
    let headers = [("x-user-id", "alice")];
    let unknown = http::send(Method::GET, &order, &headers, "").await?;
    is_problem(&unknown, 404, "unknown_order")?;
    // From Envoy, for an unknown route.
    let nowhere = http::get(&format!("{}/nowhere", stack.gateway_url())).await?;
    is_problem(&nowhere, 404, "not_found")?;
    // From Envoy, when the origin is down.
    stack.origin.process().kill();
    is_problem(&buy(&stack, "problems", "bob").await?, 503, "unavailable")?;
    // Browsers get a page in their language.
    for (expected, language) in [
        ("de-AT,de;q=0.9", Language::German),
        ("zh-CN", Language::Chinese),
        ("fr", Language::English),
    ] {
        let headers = [
            ("x-user-id", "carol"),
            ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
            ("accept-language", expected),
        ];
        let order = format!("{}/sales/problems/orders", stack.gateway_url());
        let answer = http::send(Method::POST, &order, &headers, "").await?;
        is_page(&answer, 503, Page::Unavailable, language)?;
        ensure!(answer.header("x-weir-verdict") == Some("unavailable"));
    }
    Ok(())
}

/// Checks that the answer is this page with its headers.
fn is_page(answer: &Response, status: u16, page: Page, language: Language) -> Result<()> {
    ensure!(answer.status == status, "{answer:?}");
    ensure!(answer.text() == page.html(language), "{}", answer.text());
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-language", language.tag()),
        ("content-security-policy", POLICY),
        ("retry-after", "1"),
    ] {
        ensure!(answer.header(name) == Some(value), "{name}: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_shows_browsers_a_page_during_redis_outage() -> Result<()> {
    let mut stack = Stack::builder().key_prefix("pages").start().await?;
    stack.open_sale("pages", 2, 1).await?;
    ensure!(buy(&stack, "pages", "alice").await?.status == 201);
    stack.redis.server.as_mut().context("its own Redis")?.stop();
    let order = format!("{}/sales/pages/orders", stack.gateway_url());
    let headers = [
        ("x-user-id", "bob"),
        ("accept", "text/html,*/*;q=0.8"),
        ("accept-language", "de"),
    ];
    let answer = http::send(Method::POST, &order, &headers, "").await?;
    is_page(&answer, 503, Page::Unavailable, Language::German)?;
    is_problem(&buy(&stack, "pages", "carol").await?, 503, "unavailable")
}
