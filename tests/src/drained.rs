//! The end of every fault test: after the rush, exactly the stock has been sold.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sqlx::{Connection, Row};
use tokio::time::{Instant, sleep};
use weir_stack::envoy::{GATE, set};
use weir_stack::http::Method;
use weir_stack::{Builder, Stack};

use crate::{Crowd, StockBalance, stock_balance, users};

/// The lifetime of a claim in a fault test, so that claims of a broken gateway expire within the test.
pub const CLAIM_TTL: Duration = Duration::from_millis(3_000);

/// Claims orphaned by a fault live for [`CLAIM_TTL`]; then the origin's reconciler must find them.
const DRAIN_LIMIT: Duration = Duration::from_secs(45);

const LATE_USERS: usize = 64;
const LATE_CONNECTIONS: usize = 8;

/// A stack with claims that live for [`CLAIM_TTL`], and with much shorter timeouts for orders, as `envoy/weir.yaml`
/// requires.
pub fn faulty(prefix: &str) -> Builder {
    Stack::builder()
        .workers(2)
        .key_prefix(prefix)
        .edit_config(|config| {
            let ttl_ms = CLAIM_TTL.as_millis() as u64;
            config
                .edit_filter(GATE, |json| set(json, "/claim/ttl_ms", ttl_ms))?
                .route_timeouts("1s")
        })
}

/// Sends requests of late users until the sale is sold out, and audits it.
///
/// # Errors
/// There are more orders than stock, or a user has two; or a unit is unsold, held, in transit or permanently lost.
pub async fn sold_out_exactly(stack: &Stack, sale: &str) -> Result<StockBalance> {
    let deadline = Instant::now() + DRAIN_LIMIT;
    let mut late = 0..LATE_USERS;
    loop {
        let audit = audit(stack, sale).await?;
        if is_sold_out(&audit)? {
            let stock_balance = stock_balance(stack, sale).await?;
            if stock_balance.balance() {
                orders_of_different_users(stack, sale, stock_balance.orders).await?;
                return Ok(stock_balance);
            }
            // SQL has ordered a claim that a restored Redis still holds. That must end, too.
            ensure!(
                Instant::now() < deadline,
                "the books do not balance: {stock_balance:?}"
            );
        }
        ensure!(Instant::now() < deadline, "not sold out: {audit}");
        let names = users(late.clone())
            .into_iter()
            .map(|user| format!("late-{user}"));
        let crowd = Crowd::start(stack, sale, names.collect(), LATE_CONNECTIONS);
        crowd.finish().await?;
        late = late.end..late.end + LATE_USERS;
        sleep(Duration::from_millis(100)).await;
    }
}

async fn audit(stack: &Stack, sale: &str) -> Result<Value> {
    let path = format!("/sales/{sale}/audit");
    stack.admin(Method::GET, &path, "", 200).await
}

/// Whether all units are ordered and none are elsewhere, by an audit of one instant.
fn is_sold_out(audit: &Value) -> Result<bool> {
    let terms = &audit["terms"];
    let (orders, total) = (terms["orders"].as_u64(), terms["total"].as_u64());
    // The audit has no terms while a shard is cold.
    if terms.is_null() {
        return Ok(false);
    }
    ensure!(orders <= total, "oversold: {audit}");
    let is_zero = |name: &str| terms[name].as_i64() == Some(0);
    Ok(audit["exact"] == true
        && audit["balanced"] == true
        && ["stock", "transfers", "claims"].into_iter().all(is_zero)
        && orders == total)
}

/// Checks that there are `expected` orders, each of a different user with one unit.
async fn orders_of_different_users(stack: &Stack, sale: &str, expected: u64) -> Result<()> {
    let url = format!("sqlite://{}?mode=ro", stack.database_path().display());
    let mut sql = sqlx::SqliteConnection::connect(&url)
        .await
        .context("cannot read the origin's database")?;
    let row = sqlx::query("SELECT COUNT(DISTINCT user_id) FROM orders WHERE sale_id = ?")
        .bind(sale)
        .fetch_one(&mut sql)
        .await?;
    let users: i64 = row.get(0);
    ensure!(
        u64::try_from(users) == Ok(expected),
        "{expected} orders of {users} users"
    );
    Ok(())
}
