//! The final state: SQL's orders and Redis' shards, read directly.

use super::sql::Sql;
use anyhow::{Context, Result, ensure};
use weir_base::id::SaleId;
use weir_base::resp::Value;
use weir_sale::ledger::Audit;
use weir_sale::redis::audit;
use weir_sale::redis::keys::ShardKeys;
use weir_stack::Stack;

/// Both sides of one sale's stock balance.
#[derive(Debug, Clone)]
pub(super) struct StockBalance {
    /// SQL's data.
    pub(super) sql: Sql,
    /// Redis' data by shard.
    pub(super) shards: Vec<Audit>,
}

impl StockBalance {
    pub(super) async fn read(stack: &Stack, sale: &str, shards: u32) -> Result<Self> {
        Ok(Self {
            sql: Sql::read(stack.database_path(), sale).await?,
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

    /// Ordered units, according to Redis.
    pub(super) fn bought(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bought).sum()
    }

    /// Units in transfers between shards.
    pub(super) fn moving(&self) -> u64 {
        let shards = (0..).zip(&self.shards);
        shards
            .map(|(number, shard)| shard.units_moving(number, &self.shards))
            .sum()
    }

    /// The invariant: units that are not in stock, in transfers or held were ordered.
    pub(super) fn balanced(&self, total: u64) -> bool {
        let accepted = self.moving() + self.held() + self.sql.units;
        self.stock().checked_add_unsigned(accepted) == i64::try_from(total).ok()
    }

    /// Ordered units beyond the total.
    pub(super) fn oversold(&self, total: u64) -> u64 {
        self.sql.units.saturating_sub(total)
    }

    /// Unpaid units for which an eligible person came.
    pub(super) fn unsold(&self, total: u64, eligible: u64) -> u64 {
        total.min(eligible).saturating_sub(self.sql.paid)
    }
}

async fn read_shards(stack: &Stack, sale: &str, shards: u32) -> Result<Vec<Audit>> {
    let id = SaleId::new(sale)
        .ok()
        .with_context(|| format!("{sale} is not a sale id"))?;
    let mut connection = weir_stack::redis::connect(stack.redis_url()).await?;
    let mut audits = Vec::new();
    for shard in 0..shards {
        let call = audit::call(&ShardKeys::new(&stack.key_prefix, &id, shard));
        let mut command = redis::cmd("EVAL");
        command.arg(call.script.source).arg(call.keys.len());
        for argument in call.words() {
            command.arg(argument);
        }
        let reply: redis::Value = command
            .query_async(&mut connection)
            .await
            .with_context(|| format!("cannot audit shard {shard}"))?;
        let audit = audit::parse(&as_resp(reply)?);
        audits.push(audit.map_err(|error| anyhow::anyhow!("shard {shard}: {error}"))?);
    }
    ensure!(audits.len() == shards as usize, "some shards were not read");
    Ok(audits)
}

/// Converts the redis crate's reply types that scripts return.
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
        other => anyhow::bail!("unexpected reply of a script: {other:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock_balance(units: u64, stock: i64, held: u64) -> StockBalance {
        let sql = Sql {
            orders: units,
            units,
            paid: units,
            ..Sql::default()
        };
        let audit = Audit {
            stock: Some(stock),
            held,
            bought: units,
            ..Audit::default()
        };
        StockBalance {
            sql,
            shards: vec![audit],
        }
    }

    #[test]
    fn oversold_and_unsold_are_counted_from_orders() {
        assert_eq!(stock_balance(501, 0, 0).oversold(500), 1);
        assert_eq!(stock_balance(500, 0, 0).oversold(500), 0);
        assert_eq!(stock_balance(490, 10, 0).unsold(500, 20_000), 10);
        // Fewer buyers than units: the rest had no demand.
        assert_eq!(stock_balance(300, 200, 0).unsold(500, 300), 0);
    }

    #[test]
    fn stock_imbalance_is_detected() {
        assert!(stock_balance(490, 7, 3).balanced(500));
        assert!(!stock_balance(490, 7, 2).balanced(500));
    }
}
