//! Deletes views and clears lists, first in SQL, then in Redis. The SQL transaction also marks the removal as pending,
//! so Redis is updated within seconds if the first call fails.

use std::collections::HashSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use weir_history::{Owner, REMOVALS_MS, Sku, ViewedProduct};

use super::History;
use super::model::cold::ColdStoreError;
use super::model::products::Product;
use super::store::{PendingRemoval, RemovalOutcome};
use crate::jobs::fold::FoldError;
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Maximum number of products in one deletion.
pub const DELETED_MAX: usize = 200;

/// Interval between checks for pending removals, and their minimum age: running requests take less time.
const PERIOD: Duration = Duration::from_secs(5);
const AGE_MS: u64 = 5_000;

/// Number of removals in one step.
const STEP: usize = 100;

/// When a removal takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalTiming {
    /// Applied in SQL and Redis.
    Now,
    /// Stored permanently in SQL; Redis is updated when it is available.
    Soon,
}

/// Why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The owner has the maximum number of stored deletions.
    #[error("too many deleted products: clear the history instead")]
    TooMany,
    /// SQL or Redis is unavailable.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<SqlError> for RemoveError {
    fn from(error: SqlError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<CallError> for RemoveError {
    fn from(error: CallError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl History {
    /// Deletes products from an owner's list, each with its variants in the list. Otherwise another variant would
    /// replace the deleted one. They stay deleted until they are viewed again.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub async fn delete(&self, owner: &Owner, skus: &[Sku]) -> Result<RemovalTiming, RemoveError> {
        let now_ms = self.now_ms();
        // The clock of a view may be ahead of this origin's. Delete what is in the list, regardless of its time.
        let views = self.views(owner).await?.views;
        let deletion = |sku: &Sku| {
            let observed = views.iter().find(|observed| observed.sku == *sku);
            ViewedProduct {
                sku: sku.clone(),
                at_ms: observed.map_or(now_ms, |observed| observed.at_ms.max(now_ms)),
            }
        };
        let variants = self.variants(skus, &views).await;
        let deleted: Vec<ViewedProduct> = skus.iter().chain(&variants).map(deletion).collect();
        self.delete_views(owner, &deleted).await
    }

    /// Other SKUs in the list that belong to the same products. SKUs whose product is currently unknown are left out.
    async fn variants(&self, skus: &[Sku], views: &[ViewedProduct]) -> Vec<Sku> {
        let others = views.iter().map(|observed| &observed.sku);
        let others = others.filter(|sku| !skus.contains(sku));
        let all: Vec<Sku> = skus.iter().chain(others).cloned().collect();
        let existing = self.products().find(&all).await;
        let spu_of = |product: &Option<Product>| product.as_ref()?.spu.clone();
        let mut spus = existing.products.iter().map(spu_of);
        let deleted: HashSet<String> = spus.by_ref().take(skus.len()).flatten().collect();
        let others = all.into_iter().skip(skus.len()).zip(spus);
        let is_variant =
            |spu: &Option<String>| spu.as_ref().is_some_and(|spu| deleted.contains(spu));
        let variants = others.filter(|(_, spu)| is_variant(spu));
        variants.map(|(sku, _)| sku).collect()
    }

    /// Deletes views of each product up to its given time.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub async fn delete_views(
        &self,
        owner: &Owner,
        deleted: &[ViewedProduct],
    ) -> Result<RemovalTiming, RemoveError> {
        let (removed, _) = self.take_views(owner, deleted).await?;
        Ok(removed)
    }

    /// Like [`History::delete_views`]. Also returns how many of these views were still in the list; each view counts in
    /// only one of several concurrent calls. `None` if Redis is unavailable.
    pub(crate) async fn take_views(
        &self,
        owner: &Owner,
        deleted: &[ViewedProduct],
    ) -> Result<(RemovalTiming, Option<usize>), RemoveError> {
        let op = match self.0.store.removed().delete(owner, deleted).await? {
            RemovalOutcome::Done(op) => op,
            RemovalOutcome::TooMany => return Err(RemoveError::TooMany),
        };
        let now_ms = self.now_ms();
        let forget_ms = now_ms.saturating_sub(REMOVALS_MS);
        let followed = self.0.hot.delete(owner, deleted, forget_ms, now_ms).await;
        let count = followed.as_ref().ok().copied();
        Ok((self.followed(&op, followed).await, count))
    }

    /// Clears an owner's list.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub async fn clear(&self, owner: &Owner) -> Result<RemovalTiming, RemoveError> {
        let views = self.views(owner).await?.views;
        let newest_ms = views.first().map_or(0, |observed| observed.at_ms);
        self.clear_views(owner, newest_ms.max(self.now_ms())).await
    }

    /// Clears an owner's views up to `at_ms`.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub async fn clear_views(
        &self,
        owner: &Owner,
        at_ms: u64,
    ) -> Result<RemovalTiming, RemoveError> {
        let op = self.0.store.removed().clear(owner, at_ms).await?;
        let followed = self.0.hot.clear(owner, at_ms, self.now_ms()).await;
        let removed = self.followed(&op, followed).await;
        // Also erase the data in the cold store. If this fails, the next fold does it, because the list counts as
        // active.
        if let Err(error) = self.rewrite(owner).await {
            warn!(%error, "cannot delete a cleared list in the cold store; it stays hidden");
        }
        Ok(removed)
    }

    async fn rewrite(&self, owner: &Owner) -> Result<(), ColdStoreError> {
        let stored = self.0.cold.read(owner).await?;
        let removals = self.0.store.removed().removals(owner).await?;
        let is_kept = |observed: &&ViewedProduct| !removals.cover(observed);
        let products: Vec<ViewedProduct> = stored.views.iter().filter(is_kept).cloned().collect();
        if products.len() < stored.views.len() {
            // A concurrent writer has read these removals, or the next fold reads them.
            self.0.cold.write(owner, stored.version, &products).await?;
        }
        Ok(())
    }

    /// Marks the removal as applied if the Redis call succeeded.
    async fn followed<T>(
        &self,
        op: &PendingRemoval,
        followed: Result<T, CallError>,
    ) -> RemovalTiming {
        if let Err(error) = followed {
            warn!(%error, "cannot apply a deletion in Redis; retrying");
            return RemovalTiming::Soon;
        }
        if let Err(error) = self.0.store.removed().applied(op).await {
            // It is applied again, which has no effect.
            warn!(%error, "cannot mark a deletion as applied; retrying");
        }
        RemovalTiming::Now
    }

    /// Applies pending removals made until `until_ms` to Redis and the cold store, at most one step. Returns their
    /// number.
    ///
    /// # Errors
    /// If SQL, Redis or the cold store is unavailable. Applied removals stay applied.
    pub async fn apply_removals(&self, until_ms: u64) -> Result<usize, FoldError> {
        let ops = self.0.store.removed().unapplied(until_ms, STEP).await?;
        for op in &ops {
            let removals = self.0.store.removed().removals(&op.owner).await?;
            self.0.hot.fill(&op.owner, None, &removals, None).await?;
            match self.fold_owner(&op.owner).await {
                // This version cannot read the list, so it does not show it either.
                Ok(()) | Err(FoldError::Cold(ColdStoreError::Value(_))) => {}
                Err(error) => return Err(error),
            }
            self.0.store.removed().applied(op).await?;
            self.0.metrics.reapplied.inc();
        }
        Ok(ops.len())
    }

    pub(super) async fn run_applying(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "applying history deletions", stop);
        while interval.next().await {
            let until_ms = self.now_ms().saturating_sub(AGE_MS);
            let applied = self.apply_removals(until_ms).await;
            interval.ended(&applied);
            if applied.is_ok_and(|applied| applied == STEP) {
                interval.next_at_once();
            }
        }
    }
}
