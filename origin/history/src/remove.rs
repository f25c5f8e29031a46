//! Deletes and clears: first in SQL, then in Redis. If Redis does not follow at once, it does so within seconds: what was
//! removed is noted in the transaction that removes it.

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

/// The most products of one deletion.
pub const DELETED_MAX: usize = 200;

/// How often it is looked for removals that Redis has not followed, and how old they are: a request that is still at it
/// takes less.
const PERIOD: Duration = Duration::from_secs(5);
const AGE_MS: u64 = 5_000;

/// Removals of one step.
const STEP: usize = 100;

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalTiming {
    /// It is done.
    Now,
    /// SQL has it: it is done for good. Redis follows when it answers.
    Soon,
}

/// Why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// As many deletions are remembered as may be.
    #[error("too many deleted products: clear the history instead")]
    TooMany,
    /// SQL or Redis did not answer.
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
    /// Deletes products from an owner's list, each with its variants in the list: a list shows one variant, and another one must
    /// not take its place. They stay away until they are seen again.
    ///
    /// # Errors
    /// See [`RemoveError`].
    pub async fn delete(&self, owner: &Owner, skus: &[Sku]) -> Result<RemovalTiming, RemoveError> {
        let now_ms = self.now_ms();
        // A view's clock may be ahead of ours: what is in the list goes, whatever its time.
        let views = self.views(owner).await?.views;
        let deletion = |sku: &Sku| {
            let seen = views.iter().find(|seen| seen.sku == *sku);
            ViewedProduct {
                sku: sku.clone(),
                at_ms: seen.map_or(now_ms, |seen| seen.at_ms.max(now_ms)),
            }
        };
        let variants = self.variants(skus, &views).await;
        let deleted: Vec<ViewedProduct> = skus.iter().chain(&variants).map(deletion).collect();
        self.delete_views(owner, &deleted).await
    }

    /// Other SKUs of a list that belong to the same products as these. SKUs whose product is unknown now are left out.
    async fn variants(&self, skus: &[Sku], views: &[ViewedProduct]) -> Vec<Sku> {
        let others = views.iter().map(|seen| &seen.sku);
        let others = others.filter(|sku| !skus.contains(sku));
        let all: Vec<Sku> = skus.iter().chain(others).cloned().collect();
        let known = self.products().find(&all).await;
        let spu_of = |product: &Option<Product>| product.as_ref()?.spu.clone();
        let mut spus = known.products.iter().map(spu_of);
        let deleted: HashSet<String> = spus.by_ref().take(skus.len()).flatten().collect();
        let others = all.into_iter().skip(skus.len()).zip(spus);
        let is_variant =
            |spu: &Option<String>| spu.as_ref().is_some_and(|spu| deleted.contains(spu));
        let variants = others.filter(|(_, spu)| is_variant(spu));
        variants.map(|(sku, _)| sku).collect()
    }

    /// Deletes of each product views up to that time.
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

    /// The same. Also returns how many of these views were still in the list: of several calls at once, each view counts in one.
    /// `None` if Redis does not answer.
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
        let newest_ms = views.first().map_or(0, |seen| seen.at_ms);
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
        // Its bytes go, too. If not now, then when the list is folded: it counts as active.
        if let Err(error) = self.rewrite(owner).await {
            warn!(%error, "cannot delete a cleared list in the cold store; it stays hidden");
        }
        Ok(removed)
    }

    async fn rewrite(&self, owner: &Owner) -> Result<(), ColdStoreError> {
        let stored = self.0.cold.read(owner).await?;
        let removals = self.0.store.removed().removals(owner).await?;
        let is_kept = |seen: &&ViewedProduct| !removals.cover(seen);
        let kept: Vec<ViewedProduct> = stored.views.iter().filter(is_kept).cloned().collect();
        if kept.len() < stored.views.len() {
            // Whoever has written meanwhile has read these removals, or the next fold has.
            self.0.cold.write(owner, stored.version, &kept).await?;
        }
        Ok(())
    }

    /// Notes that Redis has followed, if it has.
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
            // It is applied once more, which changes nothing.
            warn!(%error, "cannot mark a deletion as applied; retrying");
        }
        RemovalTiming::Now
    }

    /// Has Redis and the cold store follow removals that they may not have followed, those made until `until_ms`; tells how
    /// many there were, at most a step's.
    ///
    /// # Errors
    /// When SQL, Redis or the cold store does not answer. What was applied stays so.
    pub async fn apply_removals(&self, until_ms: u64) -> Result<usize, FoldError> {
        let ops = self.0.store.removed().unapplied(until_ms, STEP).await?;
        for op in &ops {
            let removals = self.0.store.removed().removals(&op.owner).await?;
            self.0.hot.fill(&op.owner, None, &removals, None).await?;
            match self.fold_owner(&op.owner).await {
                // It cannot be read by us, and is not shown by us.
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
