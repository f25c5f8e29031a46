//! What the demo asks of the origin's admin routes, and of the gateway before the storm.

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_stack::Stack;
use weir_stack::http::{self, Method};

/// The demo's sale is open this long: longer than any storm.
const OPEN_FOR_MS: u128 = 3_600_000;

/// Gateways poll the catalogue every 500 ms unless configured otherwise.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
const KNOWN_POLL: Duration = Duration::from_millis(50);

/// Every worker has a VM of its own that polls by itself, and one connection reaches one
/// worker. So many probes over new connections in a row must know the sale.
const KNOWN_IN_A_ROW: u32 = 20;

/// The admin of one origin.
#[derive(Debug)]
pub(super) struct Admin<'a> {
    url: &'a str,
    token: &'a str,
}

impl<'a> Admin<'a> {
    pub(super) fn of(stack: &'a Stack) -> Self {
        Self {
            url: &stack.origin_admin_url,
            token: &stack.admin_token,
        }
    }

    /// A sale that is open now.
    pub(super) async fn create_sale(&self, sale: &str, total: u32, shards: u32) -> Result<()> {
        let now = now_ms();
        let body = json!({
            "id": sale,
            "title": "Demo",
            "total": total,
            "shards": shards,
            "user_cap": 1,
            "starts_at_ms": now,
            "ends_at_ms": now + OPEN_FOR_MS,
        });
        self.post("/sales", body.to_string(), 201).await
    }

    /// Puts the stock of `sale` into Redis.
    pub(super) async fn warm(&self, sale: &str) -> Result<()> {
        self.post(&format!("/sales/{sale}/warm"), String::new(), 200)
            .await
    }

    async fn post(&self, path: &str, body: String, expected: u16) -> Result<()> {
        let url = format!("{}{path}", self.url);
        let token = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", token.as_str()),
            ("content-type", "application/json"),
        ];
        let answer = http::send(Method::POST, &url, &headers, body).await?;
        let (status, text) = (answer.status, answer.text());
        ensure!(
            status == expected,
            "the origin answered {status} to POST {path}: {text}"
        );
        Ok(())
    }
}

/// Waits until the gateway knows `sale`, by a request that takes no unit: the gate looks at
/// the sale first and then misses the user.
pub(super) async fn wait_until_known(gateway: &str, sale: &str) -> Result<()> {
    let url = format!("{gateway}/sales/{sale}/orders");
    let deadline = Instant::now() + KNOWN_LIMIT;
    let mut in_a_row = 0;
    while in_a_row < KNOWN_IN_A_ROW {
        let answer = http::send(Method::POST, &url, &[], "").await;
        let answer = answer.context("the gateway does not answer")?;
        let verdict = answer.header("x-weir-verdict").unwrap_or("none");
        if verdict == "invalid_user" {
            in_a_row += 1;
            continue;
        }
        in_a_row = 0;
        if Instant::now() >= deadline {
            bail!(
                "the gateway does not know the sale after {} s: it answers {} with the verdict \
                 {verdict}: {}",
                KNOWN_LIMIT.as_secs(),
                answer.status,
                answer.text()
            );
        }
        tokio::time::sleep(KNOWN_POLL).await;
    }
    Ok(())
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_millis()
}
