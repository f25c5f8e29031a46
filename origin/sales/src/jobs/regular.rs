//! Periodic work: completes draws, expires unpaid orders, ends cooldowns, updates Redis from SQL, finishes stock
//! changes, and warms sales in time.
//!
//! Several origins may run it concurrently: SQL decides each step once, and the steps in Redis can be repeated.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use weir_base::id::SaleId;

use super::list_changes::ListChange;
use crate::changes::Changer;
use crate::draw::Drawer;
use crate::metrics::SaleMetrics;
use crate::orders::Orders;
use crate::store::{HoldRules, SaleStore};
use crate::warm::{WarmError, Warmer};
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::sql::SqlError;

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_millis(500);

/// Maximum number of orders per step. SQL ends them in several transactions.
const ORDERS_MAX: usize = 256;

/// Runs the periodic work.
#[derive(Clone, Debug)]
pub struct Jobs {
    pub(crate) store: SaleStore,
    pub(crate) orders: Orders,
    pub(crate) warmer: Warmer,
    pub(crate) changer: Changer,
    pub(crate) drawer: Drawer,
    pub(crate) holds: HoldRules,
    pub(crate) metrics: SaleMetrics,
    /// Unloaded sales that were already logged.
    pub(crate) reported_unloaded: Arc<Mutex<BTreeSet<SaleId>>>,
}

impl Jobs {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(
            PERIOD,
            "expiring orders, updating Redis and warming sales",
            stop,
        );
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
        }
    }

    /// Runs one round of all jobs.
    ///
    /// # Errors
    /// When SQL does not answer. If Redis does not answer, this is logged and retried in the next round.
    pub async fn round(&self) -> Result<(), SqlError> {
        self.expire().await?;
        self.end_cooldowns().await?;
        self.follow().await?;
        self.changer.finish_all().await?;
        self.drawer.draw_all().await?;
        self.repeat_lists().await?;
        self.warm().await?;
        self.count_paused().await?;
        self.report_unloaded().await
    }

    /// Expires unpaid orders in SQL, then returns their units in Redis.
    async fn expire(&self) -> Result<(), SqlError> {
        loop {
            let expired = self
                .store
                .payments()
                .expire(self.holds, now_ms(), ORDERS_MAX)
                .await?;
            for order in &expired {
                self.metrics.expired.inc();
                info!(order = %order.id, units = order.units, "order expired: not paid in time");
                self.orders.follow(order).await;
            }
            if expired.len() < ORDERS_MAX {
                return Ok(());
            }
        }
    }

    /// Ends expired cooldowns, so that the users can buy again.
    async fn end_cooldowns(&self) -> Result<(), SqlError> {
        for over in self
            .store
            .cooldowns()
            .cooldowns_over(now_ms(), ORDERS_MAX)
            .await?
        {
            if let Err(error) = self.orders.end_cooldown(&over).await {
                warn!(sale = %over.sale, %error, "cannot end a cooldown in Redis; retrying");
            }
        }
        Ok(())
    }

    /// Updates Redis for each sale's orders. Sales are processed concurrently, so that a lost shard or an unreachable
    /// node does not delay other sales.
    async fn follow(&self) -> Result<(), SqlError> {
        let mut sales = JoinSet::new();
        for sale in self.store.unfollowed_sales().await? {
            let jobs = self.clone();
            sales.spawn(async move { jobs.follow_sale(&sale).await });
        }
        let mut outcome = Ok(());
        while let Some(ended) = sales.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => outcome = Err(error),
                Err(error) => error!(%error, "updating Redis was interrupted"),
            }
        }
        outcome
    }

    async fn follow_sale(&self, sale: &SaleId) -> Result<(), SqlError> {
        // A lost shard must not delay orders on other shards.
        let mut failed = BTreeSet::new();
        for order in self.store.unfollowed_of(sale, ORDERS_MAX).await? {
            if failed.contains(&order.shard) {
                continue;
            }
            if let Err(error) = self.orders.try_follow(&order).await {
                warn!(order = %order.id, %error, "cannot update Redis; retrying");
                failed.insert(order.shard);
            }
        }
        Ok(())
    }

    /// Writes changed list entries again from SQL, in case Redis has lost them.
    async fn repeat_lists(&self) -> Result<(), SqlError> {
        for change in self.orders.changed_lists() {
            let ListChange {
                sale, list, user, ..
            } = &change;
            let Some(stored) = self.store.sale(sale).await? else {
                continue;
            };
            let is_listed = self
                .store
                .reservations()
                .is_listed(sale, *list, user, now_ms())
                .await?;
            let written = self.orders.write_list(&stored.sale, *list, user, is_listed);
            if let Err(error) = written.await {
                warn!(%sale, %error, "cannot write a changed user list to Redis again");
            }
        }
        Ok(())
    }

    /// Counts and logs started sales that were never loaded into Redis: gateways refuse their buyers, and nothing else shows
    /// why. Each sale is logged once.
    async fn report_unloaded(&self) -> Result<(), SqlError> {
        let unloaded = self.store.warming().unloaded_sales(now_ms()).await?;
        self.metrics.unloaded_sales(unloaded.len());
        let reported = self.reported_unloaded.lock();
        let mut reported = reported.unwrap_or_else(PoisonError::into_inner);
        reported.retain(|id| unloaded.contains(id));
        for id in unloaded {
            if !reported.contains(&id) {
                warn!(sale = %id, "the sale has started but was never warmed, so gateways answer 503: POST /sales/{id}/warm at the admin port");
                reported.insert(id);
            }
        }
        Ok(())
    }

    /// Counts the paused sales, which wait for an operator. An alert uses this count.
    async fn count_paused(&self) -> Result<(), SqlError> {
        let paused = self.store.pauses().paused().await?;
        self.metrics.paused_sales(paused.len());
        Ok(())
    }

    async fn warm(&self) -> Result<(), SqlError> {
        for id in self.store.warming().due_to_warm(now_ms()).await? {
            match self.warmer.warm(&id).await {
                Ok(_) | Err(WarmError::Elsewhere) => {}
                Err(error) => error!(sale = %id, %error, "sale not warmed before its start"),
            }
        }
        Ok(())
    }
}
