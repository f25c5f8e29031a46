//! An order's life cycle and its notifications: bought at the gateway, paid, refunded by an operator, bought by another
//! user.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use weir_stack::Stack;
use weir_stack::http::Method;
use weir_tests::{buy, until, verdict};

use crate::whole_sale::{audited, buys_at_last, order, pays};

/// Notifications that a shop's system received.
type Notifications = Arc<Mutex<Vec<Value>>>;

/// Accepts notifications until the test ends. Returns its URL.
async fn receiver(notifications: Notifications) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/orders", listener.local_addr()?);
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let notifications = notifications.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| take(notifications.clone(), request));
                let connection = hyper::server::conn::http1::Builder::new();
                connection
                    .serve_connection(TokioIo::new(client), service)
                    .await
                    .ok();
            });
        }
    });
    Ok(url)
}

async fn take(
    notifications: Notifications,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>> {
    ensure!(request.headers().contains_key("webhook-signature"));
    let body = request.into_body().collect().await?.to_bytes();
    let mut notifications = notifications.lock().unwrap_or_else(PoisonError::into_inner);
    notifications.push(serde_json::from_slice(&body)?);
    Ok(Response::new(Empty::new()))
}

/// The kinds of changes of this order, in order of arrival.
fn kinds(notifications: &Notifications, order: &str) -> Vec<String> {
    let notifications = notifications.lock().unwrap_or_else(PoisonError::into_inner);
    let of = notifications
        .iter()
        .filter(|one| one["order"]["order"] == order);
    of.filter_map(|one| one["type"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn refunded_unit_is_sold_again_and_shop_is_notified() -> Result<()> {
    let notifications = Notifications::default();
    let url = receiver(notifications.clone()).await?;
    let stack = Stack::builder()
        .workers(2)
        .key_prefix("desk")
        .origin_flags(["--orders-webhook-url", &url])
        .start()
        .await?;
    stack.open_sale_with("desk", 2, 1, json!({})).await?;
    let path = order(&stack, "desk", "alice").await?;
    pays(&stack, &path, "alice").await?;
    let body = json!({ "status": "blocked", "reason": "resells", "operator": "olga" });
    let body = body.to_string();
    stack
        .admin(Method::PUT, "/user-list/mallory", &body, 200)
        .await?;
    let answer = buy(&stack, "desk", "mallory").await?;
    assert_eq!((answer.status, verdict(&answer)), (403, "blocked"));
    order(&stack, "desk", "bob").await?;
    audited(&stack, "desk", 0, 2).await?;

    let refund = format!("{path}/refund");
    let refund = stack.admin(Method::POST, &refund, "", 200).await?;
    ensure!(refund["payment"]["state"] == "refund_due", "{refund}");
    let payment = refund["payment"]["payment"].as_str();
    let payment = payment.context("no payment")?.to_owned();
    let meanwhile = ["sold_out", "all_reserved"];
    buys_at_last(&stack, "desk", "carol", &meanwhile).await?;
    audited(&stack, "desk", 0, 2).await?;
    let message = format!("/payments/{payment}/refunded");
    let message = stack.admin(Method::POST, &message, "", 200).await?;
    ensure!(message["state"] == "refunded", "{message}");
    let id = path.trim_start_matches("/orders/");
    let expected = [
        "order.created",
        "order.paid",
        "order.cancelled",
        "order.refund_due",
        "order.refunded",
    ];
    until("the shop is told", async || {
        kinds(&notifications, id) == expected
    })
    .await?;
    Ok(())
}
