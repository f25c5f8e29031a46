//! Moves units between sites, ahead of demand, and ends drains. See [`weir_sale::site`].
//!
//! Four times per second, for each warmed sale that has not ended long ago:
//!
//! 1. Units of closed fences that are not in orders move to another fence.
//! 2. Units that arrive from another site are added to the shards here.
//! 3. This site asks for units, or gives some of its own.
//!
//! When a draining site has no unit and no open claim left, its fence is closed.
//!
//! Each origin works on the Redis of its own site only. All steps can be repeated, also by several origins concurrently.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_base::id::SaleId;
use weir_sale::ledger::Audit;
use weir_sale::repair::withdrawal;
use weir_sale::sale::{SALES_MAX, Sale};
use weir_sale::site::{FenceState, FenceStock, LocalStock, given, inherited, wanted};

use super::catalogue::ended_after_ms;
use crate::changes::Changer;
use crate::ledger::Ledger;
use crate::model::site::LocalFence;
use crate::store::SaleStore;
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two rounds. The simulation has the same.
const PERIOD: Duration = Duration::from_millis(250);

/// Moves units between sites.
#[derive(Clone, Debug)]
pub struct SiteMover {
    pub(crate) store: SaleStore,
    pub(crate) ledger: Ledger,
    pub(crate) changer: Changer,
}

impl SiteMover {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "moving units between sites", stop);
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
        }
    }

    /// Runs one round over all sales. A failed sale does not affect the others.
    ///
    /// # Errors
    /// When SQL does not answer, or the last failure of a sale.
    pub async fn round(&self) -> Result<(), Unavailable> {
        let sites = self.store.sites();
        sites.forget_closed().await?;
        let mut stocks = sites.stocks(ended_after_ms()).await?;
        for (id, fences) in &stocks {
            self.inherit(id, fences).await?;
        }
        let here = sites.here().await?;
        if !here.is_open() {
            return Ok(());
        }
        // Units that arrive are sold at once.
        self.changer.finish_all().await?;
        let mut outcome = Ok(());
        let mut has_claims = false;
        for (stored, _) in self.store.running(ended_after_ms(), SALES_MAX).await? {
            let fences = stocks.remove(&stored.sale.id).unwrap_or_default();
            match self.balance(&stored.sale, here, &fences).await {
                Ok(shards) => has_claims |= shards.iter().any(|shard| shard.open > 0),
                Err(error) => {
                    warn!(sale = %stored.sale.id, %error, "cannot move units between sites; retrying");
                    has_claims = true;
                    outcome = Err(error);
                }
            }
        }
        if here.state == FenceState::Draining && !has_claims {
            let ended = sites.end_drain(here.number, ended_after_ms(), now_ms());
            if ended.await? {
                info!(
                    fence = here.number,
                    "the site has drained, and sells no more"
                );
            }
        }
        outcome
    }

    async fn inherit(&self, id: &SaleId, fences: &[FenceStock]) -> Result<(), Unavailable> {
        if fences
            .iter()
            .all(|fence| inherited(fence, fences).is_none())
        {
            return Ok(());
        }
        let units = self.store.sites().inherit(id, now_ms()).await?;
        if units > 0 {
            info!(sale = %id, units, "units of a closed site move to another one");
        }
        Ok(())
    }

    /// Asks other sites for units, or gives them some. Returns the shards here.
    async fn balance(
        &self,
        sale: &Sale,
        here: LocalFence,
        fences: &[FenceStock],
    ) -> Result<Vec<Audit>, Unavailable> {
        let sites = self.store.sites();
        let shards = self.ledger.audits(sale).await?;
        let Some(local) = LocalStock::new(&shards, self.ledger.now_ms().await?) else {
            return Ok(shards); // The reconciler opens cold shards.
        };
        let own = fences.iter().find(|fence| fence.fence == here.number);
        let asks = wanted(here.number, fences, local);
        if own.is_some_and(|own| own.wanted != asks) {
            sites.set_wanted(&sale.id, here.number, asks).await?;
        }
        if let Some((target, units)) = given(here.number, fences, local) {
            let shares = withdrawal(&shards, units);
            let begun = sites.begin_transfer(&sale.id, here.number, target, &shares, now_ms());
            if begun.await? {
                info!(sale = %sale.id, from = here.number, to = target, units, "units move to another site");
                self.changer.finish_all().await?;
            }
        }
        Ok(shards)
    }
}
