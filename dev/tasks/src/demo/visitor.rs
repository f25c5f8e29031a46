//! What anybody can ask the gateway: how the sale stands.

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
    /// Its state, in a word.
    pub(super) state: String,
    /// Roughly what is left, in a word.
    pub(super) remaining: String,
    /// From the gateway's now to the start; zero afterwards. The visitor's clock does not matter.
    pub(super) starts_in: Duration,
}

impl SaleSnapshot {
    /// Whether people may buy now.
    pub(super) fn has_free_units(&self) -> bool {
        self.state == "running" && !matches!(self.remaining.as_str(), "reserved" | "none")
    }

    /// `GET /sales/{id}` at the gateway, over a connection of its own.
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
