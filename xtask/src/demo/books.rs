//! What is true at the end: SQL's orders and Redis' shards, read from both directly.

use anyhow::{Context, Result, ensure};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::path::Path;
use weir_core::id::SaleId;
use weir_core::ledger::Audit;
use weir_resp::Value;
use weir_scripts::audit;
use weir_scripts::keys::ShardKeys;
use weir_stack::Stack;

/// Both sides of the books of one sale.
#[derive(Debug, Clone)]
pub(super) struct Books {
    /// What SQL holds.
    pub(super) sql: Sql,
    /// What Redis holds, by shard.
    pub(super) shards: Vec<Audit>,
}

/// What SQL holds of one sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sql {
    /// Rows in `orders`.
    pub(super) orders: u64,
    /// Units in them.
    pub(super) units: u64,
    /// Units that `stock` still has.
    pub(super) remaining: u64,
}

impl Books {
    pub(super) async fn read(stack: &Stack, sale: &str, shards: u32) -> Result<Self> {
        Ok(Self {
            sql: Sql::read(&stack.database_path, sale).await?,
            shards: read_shards(stack, sale, shards).await?,
        })
    }

    /// Units left in Redis.
    pub(super) fn stock(&self) -> i64 {
        self.shards.iter().filter_map(|shard| shard.stock).sum()
    }

    /// Units in claims that are not orders yet.
    pub(super) fn held(&self) -> u64 {
        self.shards.iter().map(|shard| shard.held).sum()
    }

    /// Units that Redis knows to be ordered.
    pub(super) fn bought(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bought).sum()
    }

    /// The invariant: whatever is not in stock or held was ordered.
    pub(super) fn balanced(&self, total: u64) -> bool {
        let taken = self.held() + self.sql.units;
        self.stock().checked_add_unsigned(taken) == i64::try_from(total).ok()
    }

    /// Units ordered that were never there.
    pub(super) fn oversold(&self, total: u64) -> u64 {
        self.sql.units.saturating_sub(total)
    }

    /// Units that were there, that someone came for, and that were not ordered.
    pub(super) fn unsold(&self, total: u64, users: u64) -> u64 {
        total.min(users).saturating_sub(self.sql.units)
    }
}

impl Sql {
    async fn read(database: &Path, sale: &str) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(database)
            .read_only(true);
        let mut connection = options
            .connect()
            .await
            .with_context(|| format!("cannot open {}", database.display()))?;
        let (orders, units): (i64, i64) = sqlx::query_as(
            "SELECT COUNT(*), COALESCE(SUM(quantity), 0) FROM orders WHERE sale_id = ?",
        )
        .bind(sale)
        .fetch_one(&mut connection)
        .await
        .context("cannot count the orders")?;
        let remaining = remaining(&mut connection, sale).await?;
        connection.close().await?;
        Ok(Self {
            orders: u64::try_from(orders)?,
            units: u64::try_from(units)?,
            remaining: u64::try_from(remaining)?,
        })
    }
}

async fn remaining(connection: &mut SqliteConnection, sale: &str) -> Result<i64> {
    sqlx::query_scalar("SELECT remaining FROM stock WHERE sale_id = ?")
        .bind(sale)
        .fetch_one(connection)
        .await
        .context("cannot read the stock")
}

async fn read_shards(stack: &Stack, sale: &str, shards: u32) -> Result<Vec<Audit>> {
    let id = SaleId::new(sale)
        .ok()
        .with_context(|| format!("{sale} is no sale's name"))?;
    let mut connection = weir_stack::redis::connect(&stack.redis_url).await?;
    let mut audits = Vec::new();
    for shard in 0..shards {
        let call = audit::call(&ShardKeys::new(&stack.key_prefix, &id, shard));
        let mut command = redis::cmd("EVAL");
        command.arg(call.script.source).arg(call.keys.len());
        for argument in call.keys.iter().chain(&call.args) {
            command.arg(argument.as_slice());
        }
        let reply: redis::Value = command
            .query_async(&mut connection)
            .await
            .with_context(|| format!("cannot audit shard {shard}"))?;
        let audit = audit::parse(&as_resp(reply)?);
        audits.push(audit.map_err(|error| anyhow::anyhow!("shard {shard}: {error}"))?);
    }
    ensure!(audits.len() == shards as usize, "not every shard was read");
    Ok(audits)
}

/// The redis crate's idea of a reply as ours, for the kinds that scripts answer with.
fn as_resp(value: redis::Value) -> Result<Value> {
    Ok(match value {
        redis::Value::Nil => Value::Null,
        redis::Value::Int(number) => Value::Integer(number),
        redis::Value::BulkString(bytes) => Value::Bulk(bytes),
        redis::Value::SimpleString(text) => Value::Simple(text.into_bytes()),
        redis::Value::Okay => Value::Simple(b"OK".to_vec()),
        redis::Value::Array(values) => {
            Value::Array(values.into_iter().map(as_resp).collect::<Result<_>>()?)
        }
        other => anyhow::bail!("a script answered {other:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books(units: u64, stock: i64, held: u64) -> Books {
        let sql = Sql {
            orders: units,
            units,
            remaining: 0,
        };
        let audit = Audit {
            stock: Some(stock),
            held,
            bought: units,
            ..Audit::default()
        };
        Books {
            sql,
            shards: vec![audit],
        }
    }

    #[test]
    fn oversold_and_unsold_are_counted_from_orders() {
        assert_eq!(books(501, 0, 0).oversold(500), 1);
        assert_eq!(books(500, 0, 0).oversold(500), 0);
        assert_eq!(books(490, 10, 0).unsold(500, 20_000), 10);
        // Fewer buyers than units: nobody came for the rest.
        assert_eq!(books(300, 200, 0).unsold(500, 300), 0);
    }

    #[test]
    fn the_books_balance_or_do_not() {
        assert!(books(490, 7, 3).balanced(500));
        assert!(!books(490, 7, 2).balanced(500));
    }
}
