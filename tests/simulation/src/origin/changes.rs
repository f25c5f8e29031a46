//! Changes of the stock: see `origin/sales/src/changes.rs`.

use weir_sale::ledger::{StockChange, StockChanged};
use weir_sale::repair::withdrawal;
use weir_sale::shard::spread_stock;

use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;
use crate::mutation::Mutation;
use crate::sql::changes::Change;

/// Changes the stock.
#[derive(Clone, Debug)]
pub(super) struct Changer {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
}

impl Changer {
    /// An operator's request.
    pub(super) async fn change(&self, key: u32, expected: i64) -> Result<(), BrokeOff> {
        match self.begin(key, expected).await? {
            Some(change) if change.units.is_none() => self.finish(&change).await,
            _ => Ok(()),
        }
    }

    /// The change of this key; `None` if it is refused.
    async fn begin(&self, key: u32, expected: i64) -> Result<Option<Change>, BrokeOff> {
        let existing = self.io.sql(move |sql| (sql.change(key), sql.sale.shards));
        let (existing, shards) = existing.await?;
        if existing.is_some() {
            return Ok(existing);
        }
        let units = expected.unsigned_abs();
        let shares = match expected > 0 {
            true => spread_stock(units, shards),
            false => withdrawal(&self.ledger.audits(shards).await?, units),
        };
        let now_ms = self.io.now_ms();
        let begin =
            move |sql: &mut crate::sql::Sql| sql.begin_change(key, expected, shares, now_ms);
        Ok(self.io.sql(begin).await?)
    }

    async fn finish(&self, open: &Change) -> Result<(), BrokeOff> {
        let mut units = 0;
        for (shard, &share) in (0..).zip(&open.shares).filter(|(_, share)| **share > 0) {
            let part = StockChange {
                number: open.number,
                units: i64::try_from(share).unwrap_or(i64::MAX) * open.requested.signum(),
            };
            match self.ledger.change(shard, part).await? {
                StockChanged::Done(done) => units += done,
                StockChanged::Cold => return Ok(()),
                StockChanged::Over => break,
            }
        }
        let number = open.number;
        self.io
            .sql(move |sql| sql.end_change(number, units))
            .await?;
        Ok(())
    }

    /// Continues an unfinished change.
    pub(super) async fn finish_all(&self) -> Result<(), BrokeOff> {
        if self.io.makes(Mutation::ChangeNotFinished) {
            return Ok(());
        }
        match self.io.sql(|sql| sql.open_change()).await? {
            Some(open) => self.finish(&open).await,
            None => Ok(()),
        }
    }
}
