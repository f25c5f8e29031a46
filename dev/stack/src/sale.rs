//! Sales on a running stack: created and warmed through the origin's admin routes, and loaded by every worker before
//! buyers arrive.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use crate::Stack;
use crate::http::{self, Method, Response};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The duration of sales: longer than any storm or test.
const OPEN_FOR_MS: u128 = 3_600_000;

/// By default, gateways poll the catalogue every 500 ms.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const KNOWN_POLL: Duration = Duration::from_millis(50);

/// Already exists: the data folder is from an earlier run.
const CONFLICT: u16 = 409;
/// The origin was started without this area.
const NOT_FOUND: u16 = 404;

/// Every worker has its own VM that polls separately, and a connection reaches one worker. This many consecutive probes
/// over new connections must find the sale.
const KNOWN_IN_A_ROW: u32 = 20;

/// The gate's verdict in a response; empty if the response is not the gate's.
pub fn verdict(answer: &Response) -> &str {
    answer.header("x-weir-verdict").unwrap_or_default()
}

/// The body for `POST /sales`: a sale of `total` units over `shards`, open now and for an hour, one unit per user.
pub fn sale_json(sale: &str, total: u64, shards: u32) -> Result<Value> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    Ok(json!({
        "id": sale,
        "title": sale,
        "total": total,
        "shards": shards,
        "user_cap": 1,
        "starts_at_ms": now,
        "ends_at_ms": now + OPEN_FOR_MS,
        // Warmed manually: tests check what warming does.
        "warm_before_ms": null,
    }))
}

impl Stack {
    /// Creates a sale of `total` units over `shards` that is open now, one unit per user. Puts its stock into Redis,
    /// and waits until every worker of every gateway has loaded it.
    pub async fn open_sale(&self, sale: &str, total: u64, shards: u32) -> Result<()> {
        self.make_sale(sale, total, shards).await?;
        self.wait_until_known(sale).await
    }

    /// Like [`Stack::open_sale`], with `more` fields for `POST /sales`, an object.
    pub async fn open_sale_with(
        &self,
        sale: &str,
        total: u64,
        shards: u32,
        more: Value,
    ) -> Result<()> {
        let mut body = sale_json(sale, total, shards)?;
        for (name, value) in more.as_object().context("not an object")? {
            body[name] = value.clone();
        }
        self.create_sale(&body).await?;
        self.warm_sale(sale).await?;
        self.wait_until_known(sale).await
    }

    /// Like [`Stack::open_sale`], without waiting.
    pub async fn make_sale(&self, sale: &str, total: u64, shards: u32) -> Result<()> {
        self.create_sale(&sale_json(sale, total, shards)?).await?;
        self.warm_sale(sale).await
    }

    /// Creates a sale from `body`, the body of `POST /sales`.
    pub async fn create_sale(&self, body: &Value) -> Result<()> {
        self.admin(Method::POST, "/sales", &body.to_string(), 201)
            .await?;
        Ok(())
    }

    /// Puts a sale's stock and users into Redis.
    pub async fn warm_sale(&self, sale: &str) -> Result<()> {
        let warm = format!("/sales/{sale}/warm");
        self.admin(Method::POST, &warm, "", 200).await?;
        Ok(())
    }

    /// Waits until every worker of every gateway has loaded `sale`.
    pub async fn wait_until_known(&self, sale: &str) -> Result<()> {
        for gateway in self.gateway_urls() {
            known_at(&gateway, sale).await?;
        }
        Ok(())
    }

    /// Sends one request to the origin's admin port. Returns the response's JSON, null for an empty body. A status
    /// other than `expected` is an error.
    pub async fn admin(
        &self,
        method: Method,
        path: &str,
        body: &str,
        expected: u16,
    ) -> Result<Value> {
        let token = format!("Bearer {}", self.admin_token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.origin_admin_url());
        let answer = http::send(method, &url, &headers, body.to_owned()).await?;
        let (status, text) = (answer.status, answer.text());
        ensure!(
            status == expected,
            "the origin answered {status} to {path}: {text}"
        );
        match status {
            204 => Ok(Value::Null),
            _ => answer.json(),
        }
    }

    /// Creates or replaces an object through the origin's admin port, unless an earlier run on the same data created it.
    /// An origin without that area changes nothing.
    ///
    /// # Errors
    /// The origin refuses it.
    pub async fn ensure(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        let token = format!("Bearer {}", self.admin_token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.origin_admin_url());
        let answer = http::send(method, &url, &headers, body.to_string()).await?;
        let is_there = matches!(answer.status, 200..300 | CONFLICT | NOT_FOUND);
        ensure!(
            is_there,
            "the origin answered {} to {path}: {}",
            answer.status,
            answer.text()
        );
        Ok(())
    }

    /// Adds `units` to a running sale, or withdraws them if negative. The same `key` identifies the same change.
    pub async fn change_stock(&self, sale: &str, key: &str, units: i64) -> Result<Response> {
        let token = format!("Bearer {}", self.admin_token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", key),
        ];
        let url = format!("{}/sales/{sale}/stock", self.origin_admin_url());
        let body = json!({ "units": units }).to_string();
        http::send(Method::POST, &url, &headers, body).await
    }

    /// The URL for buying from `sale`.
    pub fn buy_url(&self, sale: &str) -> String {
        format!("{}/sales/{sale}/orders", self.gateway_url())
    }
}

/// Waits until a gateway has loaded a sale, and its stock if it has started.
///
/// Sends requests that take no unit: the gate checks the sale first, and then reports the missing user.
///
/// # Errors
/// The gateway does not respond, or does not load the sale in time.
pub async fn known_at(gateway: &str, sale: &str) -> Result<()> {
    let url = format!("{gateway}/sales/{sale}/orders");
    let deadline = Instant::now() + KNOWN_LIMIT;
    let mut in_a_row = 0;
    while in_a_row < KNOWN_IN_A_ROW {
        let answer = http::send(Method::POST, &url, &[], "").await;
        let answer = answer.context("the gateway does not answer")?;
        if verdict(&answer) == "invalid_user" && !is_cold_at(gateway, sale).await? {
            in_a_row += 1;
            continue;
        }
        in_a_row = 0;
        ensure!(
            Instant::now() < deadline,
            "the gateway does not know the sale after {} s and answers {}: {}",
            KNOWN_LIMIT.as_secs(),
            answer.status,
            answer.text()
        );
        tokio::time::sleep(KNOWN_POLL).await;
    }
    Ok(())
}

/// Whether a gateway shows a started sale as not started, because its stock is not in Redis yet.
async fn is_cold_at(gateway: &str, sale: &str) -> Result<bool> {
    let status = http::get(&format!("{gateway}/sales/{sale}")).await?;
    if status.status != 200 {
        return Ok(false);
    }
    let status = status.json()?;
    let has_started = status["now_ms"].as_u64() >= status["starts_at_ms"].as_u64();
    Ok(has_started && status["state"] == "scheduled")
}
