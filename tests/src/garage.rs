//! A user's garage, used through a gateway.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_stack::Stack;
use weir_stack::http::{self, Method, Response};

use crate::until;

const ALICE: &str = "alice";
const VEHICLE: &str = "1000001";

/// Adds, reads and removes a vehicle through `gateway`. The stack's origin must have fitment enabled.
///
/// # Errors
/// The gateway or the origin answers differently than documented.
pub async fn use_garage(stack: &Stack, gateway: &str) -> Result<()> {
    let vehicle = json!({ "make": "Make", "model": "Model", "year": 2020, "engine": "" });
    let path = format!("/fitment/vehicles/{VEHICLE}");
    stack
        .admin(Method::PUT, &path, &vehicle.to_string(), 204)
        .await?;
    let garage = format!("{gateway}/fitment/garage");
    let one = format!("{garage}/{VEHICLE}");
    let ask =
        async |method, url: &str, user| http::send(method, url, &[("x-user-id", user)], "").await;
    // A gateway that has just started requests a retry.
    until("the gateway passes a garage on", async || {
        let answer = ask(Method::GET, &garage, ALICE).await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await?;
    expect(&ask(Method::PUT, &one, ALICE).await?, 204)?;
    let response = ask(Method::GET, &garage, ALICE).await?.json()?;
    ensure!(response["vehicles"][0]["vehicle"] == VEHICLE, "{response}");
    ensure!(response["vehicles"][0]["is_default"] == true, "{response}");
    let other = ask(Method::GET, &garage, "bob").await?.json()?;
    ensure!(other["vehicles"] == Value::Array(Vec::new()), "{other}");
    expect(&http::get(&garage).await?, 401)?;
    let forged = [("x-weir-user", ALICE), ("x-weir-user-signature", "k1.0.0")];
    expect(&http::send(Method::GET, &garage, &forged, "").await?, 401)?;
    expect(&ask(Method::DELETE, &one, ALICE).await?, 204)?;
    expect(&ask(Method::DELETE, &one, ALICE).await?, 404)?;
    // The origin, not the gateway, refuses an unsigned product change.
    let url = format!("{gateway}/product-changes");
    let refused = ask(Method::POST, &url, ALICE).await?.json()?;
    ensure!(refused["error"] == "products_not_configured", "{refused}");
    Ok(())
}

fn expect(answer: &Response, status: u16) -> Result<()> {
    ensure!(answer.status == status, "{status}: {answer:?}");
    Ok(())
}
