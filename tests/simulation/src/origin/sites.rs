//! Moves units between sites: see `origin/sales/src/jobs/sites.rs`, which has the same constant.

use weir_sale::repair::withdrawal;
use weir_sale::site::{FenceState, LocalStock, fence_of, given, wanted};

use super::changes::Changer;
use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;
use crate::sql::Sql;

const PERIOD_MS: u64 = 250;

/// Moves units.
#[derive(Clone, Debug)]
pub(super) struct Sites {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    pub(super) changer: Changer,
}

impl Sites {
    /// Runs until the origin dies.
    pub(super) async fn run(self) {
        loop {
            // The next round starts again.
            let _ = self.round().await;
            self.io.sleep_ms(PERIOD_MS).await;
        }
    }

    async fn round(&self) -> Result<(), BrokeOff> {
        let site = self.io.site;
        let inherit = move |sql: &mut Sql| {
            sql.inherit();
            let is_open = sql.warmed_at_ms.is_some() && sql.is_open_at(site);
            (is_open, sql.sale_at(site), sql.stocks())
        };
        let (is_open, sale, fences) = self.io.sql(inherit).await?;
        if !is_open {
            return Ok(());
        }
        // An addition from another site is applied at once.
        self.changer.finish_all().await?;
        let here = fence_of(sale.first_shard);
        let shards = self.ledger.audits(&sale).await?;
        let Some(local) = LocalStock::new(&shards, self.ledger.now_ms().await?) else {
            return Ok(());
        };
        let own = fences.iter().find(|fence| fence.fence == here);
        let asks = wanted(here, &fences, local);
        if own.is_some_and(|own| own.wanted != asks) {
            self.io.sql(move |sql| sql.set_wanted(here, asks)).await?;
        }
        if let Some((target, units)) = given(here, &fences, local) {
            let (shares, now_ms) = (withdrawal(&shards, units), self.io.now_ms());
            let begin = move |sql: &mut Sql| sql.begin_transfer(here, target, shares, now_ms);
            self.io.sql(begin).await?;
            self.changer.finish_all().await?;
        }
        let has_claims = shards.iter().any(|shard| shard.open > 0);
        if own.is_some_and(|own| own.state == FenceState::Draining) && !has_claims {
            self.io.sql(move |sql| sql.end_drain(here)).await?;
        }
        Ok(())
    }
}
