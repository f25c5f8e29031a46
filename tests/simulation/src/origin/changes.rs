//! Changes of the stock: see `origin/sales/src/changes.rs`.

use weir_sale::ledger::{StockChange, StockChanged};
use weir_sale::repair::withdrawal;
use weir_sale::shard::spread_stock;
use weir_sale::site::{fence_of, first_shard};

use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;
use crate::mutation::Mutation;
use crate::sql::Sql;
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
        let site = self.io.site;
        let existing = move |sql: &mut Sql| (sql.change(key), sql.sale_at(site));
        let (existing, sale) = self.io.sql(existing).await?;
        if existing.is_some() {
            return Ok(existing);
        }
        let units = expected.unsigned_abs();
        let shares = match expected > 0 {
            true => spread_stock(units, sale.shards),
            false => withdrawal(&self.ledger.audits(&sale).await?, units),
        };
        let (now_ms, fence) = (self.io.now_ms(), fence_of(sale.first_shard));
        let begin = move |sql: &mut Sql| sql.begin_change(key, fence, expected, shares, now_ms);
        Ok(self.io.sql(begin).await?)
    }

    async fn finish(&self, open: &Change) -> Result<(), BrokeOff> {
        let mut units = 0;
        let first = first_shard(open.fence);
        for (shard, &share) in (first..).zip(&open.shares).filter(|(_, share)| **share > 0) {
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
        let site = self.io.site;
        let open = move |sql: &mut Sql| sql.open_change_at(sql.fence_at(site).fence);
        match self.io.sql(open).await? {
            Some(open) => self.finish(&open).await,
            None => Ok(()),
        }
    }
}
