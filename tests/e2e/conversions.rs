//! A click on a link becomes an order: its ID passes from one gateway through the shop's page to the other.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_base::headers;
use weir_stack::http::{self, Connection, Method};
use weir_stack::{Stack, ports};
use weir_tests::until;

use crate::whole_sale::pays;

/// The host in requests to gateways and origin.
const HOST: &str = "127.0.0.1";

const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux)");

/// The target of a click, and the click's ID.
async fn click(links: &str, code: &str) -> Result<(String, String)> {
    let authority = links.trim_start_matches("http://");
    let mut connection = Connection::open(authority).await?;
    let path = format!("/{code}");
    let led = connection.send(Method::GET, &path, &[BROWSER], "").await?;
    ensure!(
        led.header("cache-control") == Some("no-store"),
        "{}",
        led.status
    );
    ensure!(led.status == 302, "{}: {}", led.status, led.text());
    let location = led.header("location").context("no redirect")?.to_owned();
    let (page, name) = location.split_once("weir_click=").context("no name")?;
    Ok((page.to_owned(), name.to_owned()))
}

/// Buys like a page that received this click ID. Returns the order.
async fn buy(stack: &Stack, user: &str, name: &str) -> Result<Value> {
    let url = format!("{}/sales/s/orders", stack.gateway_url());
    let asks = [("x-user-id", user), (headers::CLICK, name)];
    let response = http::send(Method::POST, &url, &asks, "").await?;
    ensure!(response.status == 201, "{}", response.text());
    response.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn order_counts_as_conversion_of_the_clicked_link() -> Result<()> {
    let domains = json!({ "domains": [{ "id": "s", "hosts": [HOST] }] });
    let builder = Stack::builder().links(domains.to_string());
    let mut stack = builder.start().await?;
    let links = stack.start_link_gateway(ports::free()?).await?;
    let price = json!({ "unit_amount": 4990, "currency": "EUR" });
    stack
        .open_sale_with("s", 8, 2, json!({ "price": price, "user_cap": 2 }))
        .await?;
    let link = json!({
        "target": "https://shop.example/shoes?size=42#top", "code": "spring", "conversion": true,
    });
    stack
        .admin(Method::POST, "/links", &link.to_string(), 201)
        .await?;

    let (page, one) = click(&links, "spring").await?;
    assert_eq!(page, "https://shop.example/shoes?size=42&");
    let one = one.strip_suffix("#top").context("no fragment")?.to_owned();
    let (_, other) = click(&links, "spring").await?;
    assert_ne!(one, other.trim_end_matches("#top"));

    let reply = buy(&stack, "alice", &one).await?;
    buy(&stack, "alice", &one).await?;
    // An unsigned or malformed click ID does not prevent an order.
    let forged = format!("{}0", &one[..one.len() - 1]);
    let forged = if forged == one {
        format!("{}1", &one[..one.len() - 1])
    } else {
        forged
    };
    buy(&stack, "bob", &forged).await?;
    buy(&stack, "carol", "spring").await?;
    let order = reply["order"].as_str().context("no order")?;
    pays(&stack, &format!("/orders/{order}"), "alice").await?;

    let answer = stack
        .admin(Method::GET, &format!("/orders/{order}"), "", 200)
        .await?;
    assert_eq!(answer["link"], "s/spring", "{answer}");
    let path = "/links/spring/conversions";
    let counted = stack.admin(Method::GET, path, "", 200).await?;
    let expected = [
        ("clicks", 1),
        ("orders", 2),
        ("units", 2),
        ("paid_orders", 1),
    ];
    for (name, count) in expected {
        assert_eq!(counted[name], count, "{counted}");
    }
    assert_eq!(counted["revenue"], json!({ "EUR": 4990 }));
    until("the clicks are counted", async || {
        let stats = stack
            .admin(Method::GET, "/links/spring/stats", "", 200)
            .await;
        stats.is_ok_and(|stats| stats["clicks"] == 2)
    })
    .await?;

    // An app that was installed after the click requests the click's target.
    let url = format!("{}/clicks/{one}", stack.origin_url());
    let response = http::send(Method::GET, &url, &[], "").await?;
    let response = response.json()?;
    assert_eq!(
        (&response["code"], &response["target"]),
        (&json!("spring"), &link["target"])
    );
    let url = format!("{}/clicks/{forged}", stack.origin_url());
    assert_eq!(http::send(Method::GET, &url, &[], "").await?.status, 404);

    // Without Redis' record, the origin redirects and assigns the click ID.
    let looked = http::send(
        Method::GET,
        &format!("{}/l/spring", stack.origin_url()),
        &[BROWSER],
        "",
    )
    .await?;
    let location = looked.header("location").context("no redirect")?;
    ensure!(location.contains("&weir_click=1.s.spring."), "{location}");
    Ok(())
}
