//! Fills a sale with many buyers, without individual purchases.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use weir_base::id::UserId;
use weir_sale::shard::home_shard;
use weir_stack::{Stack, redis};

use crate::stock_balance;

/// For a sale with a million buyers.
const REBUILD_LIMIT: Duration = Duration::from_secs(300);

/// Rows per statement.
const PAGE_LEN: usize = 20_000;

/// The SQL rows of an order, for the users, shards and generations in `?`; `?2` is the sale.
const ROWS: [&str; 5] = [
    "INSERT INTO claim_outcomes (claim_id, sale_id, user_id, outcome, at_ms)
     SELECT format('%s.%d.%d', ?2, value ->> 1, value ->> 2), ?2, value ->> 0, 'ordered', value ->> 3
     FROM json_each(?1)",
    "INSERT INTO orders
        (id, sale_id, shard, generation, user_id, quantity, status, deducted, created_at_ms)
     SELECT format('%s.%d.%d', ?2, value ->> 1, value ->> 2), ?2, value ->> 1, value ->> 2, value ->> 0, 1,
        'unpaid', 1, value ->> 3
     FROM json_each(?1)",
    "INSERT INTO buyers (sale_id, user_id, units) SELECT ?2, value ->> 0, 1 FROM json_each(?1)",
    "INSERT INTO change_log (sale_id, order_id, units, reason, at_ms)
     SELECT ?2, format('%s.%d.%d', ?2, value ->> 1, value ->> 2), -1, 'order', value ->> 3
     FROM json_each(?1)",
    "UPDATE stock SET remaining = remaining - (SELECT COUNT(*) FROM json_each(?1)) WHERE sale_id = ?2",
];

/// The same counts as in the migration that introduced them.
const COUNTS: &str = "
    INSERT INTO order_counts
        (sale_id, shard, unpaid, paid, cancelled, expired, units_deducted, units_deferred, checksum)
    SELECT sale_id, shard, COUNT(*), 0, 0, 0, COUNT(*), 0,
        SUM(generation % 2147483647) % 2147483647
    FROM orders WHERE sale_id = ? GROUP BY sale_id, shard";

/// Writes an order of one unit for each of `users` into SQL while the origin is down, and makes the origin rebuild an
/// empty Redis. `sale` must have no orders yet, and `stack` must have its own Redis.
///
/// # Errors
/// SQL, Redis or the origin fails, or Redis is not rebuilt in time.
pub async fn fill(stack: &mut Stack, sale: &str, shards: u32, users: &[String]) -> Result<()> {
    stack.origin.process().stop();
    write_orders(stack, sale, shards, users)
        .await
        .context("cannot write orders into the origin's database")?;
    let mut connection = redis::connect(stack.redis_url()).await?;
    let () = ::redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await?;
    stack.origin.start_again().await?;
    let orders = users.len() as u64;
    let deadline = Instant::now() + REBUILD_LIMIT;
    while !stock_balance(stack, sale).await.is_ok_and(|stock_balance| {
        stock_balance.orders == orders
            && stock_balance.stock == stock_balance.remaining
            && stock_balance.stock > 0
    }) {
        ensure!(
            Instant::now() < deadline,
            "Redis does not have the units of {sale} after {REBUILD_LIMIT:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn write_orders(stack: &Stack, sale: &str, shards: u32, users: &[String]) -> Result<()> {
    let url = format!("sqlite://{}", stack.database_path().display());
    let mut sql = SqliteConnection::connect(&url).await?;
    let mut tx = sql.begin().await?;
    let now_ms = std::time::UNIX_EPOCH.elapsed()?.as_millis();
    // A generation is a time in microseconds: no claim uses those of an hour ago.
    let first = now_ms * 1_000 - 3_600_000_000;
    let orders: Vec<_> = (first..)
        .zip(users)
        .map(|(generation, user)| {
            let shard = home_shard(&UserId::new(user)?, shards);
            Ok(json!([
                user,
                shard,
                u64::try_from(generation)?,
                u64::try_from(now_ms)?
            ]))
        })
        .collect::<Result<_>>()?;
    for page in orders.chunks(PAGE_LEN) {
        let page = serde_json::to_string(page)?;
        for statement in ROWS {
            let rows = sqlx::query(statement).bind(&page).bind(sale);
            rows.execute(&mut *tx).await?;
        }
    }
    sqlx::query(COUNTS).bind(sale).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}
