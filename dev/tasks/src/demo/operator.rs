//! The operator's actions at the origin's admin port.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::cast::Shares;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_stack::Stack;
use weir_stack::http::Method;

/// The initial start is this far ahead, because the duration of reservations depends on the machine. [`set_start`] sets
/// the real one.
const FAR_AHEAD_MS: u64 = 3_600_000;
const OPEN_FOR_MS: u64 = 3_600_000;

/// The time until the start, once it is set: the scheduled job warms the sale in this time, and there is a countdown.
const LEAD_MS: u64 = 5_000;

/// How long before its start the job warms a sale.
const WARM_BEFORE_MS: u64 = 60_000;

/// How long an unpaid order holds its units. Enough for a buyer who pays immediately, even on a busy machine.
pub(super) const PAY_WITHIN: Duration = Duration::from_secs(3);

/// Creates the sale with reservations, order tokens and a hold.
pub(super) async fn make(stack: &Stack, sale: &str, shares: &Shares, plan: Plan) -> Result<()> {
    let now = now_ms()?;
    let starts = now + FAR_AHEAD_MS;
    let body = json!({
        "id": sale,
        "title": format!("{} units for {} people", plan.stock, shares.people),
        "total": plan.stock,
        "shards": plan.shards,
        "user_cap": 1,
        "starts_at_ms": starts,
        "ends_at_ms": starts + OPEN_FOR_MS,
        "token": true,
        "reservation": { "from_ms": now, "until_ms": starts },
        "payment": { "hold": { "pay_within_ms": PAY_WITHIN.as_millis() as u64 } },
        "warm_before_ms": WARM_BEFORE_MS,
    });
    let body = body.to_string();
    stack.admin(Method::POST, "/sales", &body, 201).await?;
    Ok(())
}

/// The sale's stock and shards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) stock: u32,
    pub(super) shards: u32,
}

/// Ends the reservations and sets the start, near enough that the origin's job warms the sale. Returns the start, in
/// milliseconds since the Unix epoch.
pub(super) async fn set_start(stack: &Stack, sale: &str) -> Result<u64> {
    let path = format!("/sales/{sale}");
    let response = stack.admin(Method::GET, &path, "", 200).await?;
    let now = now_ms()?;
    let starts_at_ms = now + LEAD_MS;
    let changes = json!({
        "starts_at_ms": starts_at_ms,
        "reservation": { "from_ms": response["reservation"]["from_ms"], "until_ms": now },
    });
    let changes = changes.to_string();
    stack.admin(Method::PATCH, &path, &changes, 200).await?;
    Ok(starts_at_ms)
}

/// A sale's stock balance from the origin: each term in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Audit {
    pub(super) stock: i64,
    pub(super) transfers: u64,
    pub(super) claims: u64,
    pub(super) orders: u64,
    pub(super) total: u64,
    /// Whether `stock + transfers + claims + orders = total`.
    pub(super) balanced: bool,
    /// Whether all terms were read at the same instant.
    pub(super) exact: bool,
    /// The sum of all shards' epochs, which increase each time units return to a shard.
    pub(super) epoch: i64,
}

impl Audit {
    /// `GET /sales/{id}/audit`.
    pub(super) async fn read(stack: &Stack, sale: &str) -> Result<Self> {
        let path = format!("/sales/{sale}/audit");
        Self::parse(&stack.admin(Method::GET, &path, "", 200).await?)
    }

    fn parse(audit: &Value) -> Result<Self> {
        let terms = &audit["terms"];
        ensure!(!terms.is_null(), "a shard has lost its stock: {audit}");
        let number = |name: &str| terms[name].as_u64().with_context(|| missing(name, audit));
        let shards = audit["shards"].as_array();
        let shards = shards.with_context(|| missing("shards", audit))?;
        Ok(Self {
            stock: terms["stock"]
                .as_i64()
                .with_context(|| missing("stock", audit))?,
            transfers: number("transfers")?,
            claims: number("claims")?,
            orders: number("orders")?,
            total: number("total")?,
            balanced: audit["balanced"] == true,
            exact: audit["exact"] == true,
            epoch: shards
                .iter()
                .filter_map(|shard| shard["epoch"].as_i64())
                .sum(),
        })
    }

    /// Whether no units are in transit.
    pub(super) fn is_at_rest(&self) -> bool {
        self.exact && self.claims == 0 && self.transfers == 0
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "stock": self.stock, "transfers": self.transfers, "claims": self.claims,
            "orders": self.orders, "total": self.total, "balanced": self.balanced,
            "exact": self.exact, "epoch": self.epoch,
        })
    }
}

fn missing(name: &str, audit: &Value) -> String {
    format!("the audit has no {name}: {audit}")
}

pub(super) fn now_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_millis())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_of_the_origin_is_parsed() {
        let audit = json!({
            "id": "s", "exact": true, "balanced": false,
            "terms": { "stock": -1, "transfers": 2, "claims": 0, "orders": 4, "total": 5, "drift": 0 },
            "shards": [{ "epoch": 3 }, { "epoch": 4 }],
        });
        let read = Audit::parse(&audit).unwrap();
        assert_eq!((read.stock, read.transfers, read.orders), (-1, 2, 4));
        assert_eq!((read.total, read.epoch), (5, 7));
        assert!(read.exact && !read.balanced && !read.is_at_rest());
        let lost = json!({ "terms": null, "shards": [] });
        assert!(Audit::parse(&lost).is_err());
    }
}
