//! The public state of the sale at the gateway.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use anyhow::{Context, Result, ensure};
use std::time::Duration;
use weir_stack::http;

/// A sale as the gateway shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SaleSnapshot {
    /// Its state.
    pub(super) state: String,
    /// An approximate level of the remaining stock.
    pub(super) remaining: String,
    /// The time until the start by the gateway's clock; zero afterwards. Independent of the visitor's clock.
    pub(super) starts_in: Duration,
}

impl SaleSnapshot {
    /// Whether people may buy now.
    pub(super) fn has_free_units(&self) -> bool {
        self.state == "running" && !matches!(self.remaining.as_str(), "reserved" | "none")
    }

    /// Sends `GET /sales/{id}` to the gateway, over a new connection.
    pub(super) async fn ask(gateway: &str, sale: &str) -> Result<Self> {
        let answer = http::get(&format!("{gateway}/sales/{sale}")).await?;
        ensure!(
            answer.status == 200,
            "the gateway answers {}",
            answer.text()
        );
        let body = answer.json()?;
        let number = |name: &str| {
            body[name]
                .as_u64()
                .with_context(|| format!("no {name}: {body}"))
        };
        let word = |name: &str| body[name].as_str().unwrap_or("?").to_owned();
        let starts_in_ms = number("starts_at_ms")?.saturating_sub(number("now_ms")?);
        Ok(Self {
            state: word("state"),
            remaining: word("remaining"),
            starts_in: Duration::from_millis(starts_in_ms),
        })
    }
}
