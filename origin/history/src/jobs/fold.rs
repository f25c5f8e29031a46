//! The fold copies lists that changed on a day from Redis to the cold store on the next day. Redis keeps a list for
//! four days after its last change, so three folds may fail without loss. The metric shows a lag after two.
//!
//! A fold merges a list with the stored one: the latest time of each product, without removed views. It is idempotent,
//! even if two origins run it at once.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use weir_history::list::merge;
use weir_history::{DAY_MS, Owner, ViewedProduct, oldest_ms};

use crate::History;
use crate::hot::ActivePage;
use crate::model::cold::ColdStoreError;
use crate::store::DayPart;
use weir_origin_core::background::Interval;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// Interval between checks for due folds.
const PERIOD: Duration = Duration::from_secs(60);

/// Delay of a day's fold after the day's end, in milliseconds: late views may arrive, and clocks differ.
const MARGIN_MS: u64 = 10 * 60_000;

/// Lease of a part without renewal, in milliseconds.
const LEASE_MS: u64 = 60_000;

/// Number of slots in one step.
const STEP: u16 = 128;

/// Number of lists copied concurrently.
const TOGETHER: usize = 8;

/// Maximum attempts for a list that others keep writing.
const ATTEMPTS: usize = 5;

/// Number of expired lists and removals deleted in one step.
const OLD: usize = 500;

/// Lag in days at which lists may be lost soon.
const LAG_ALARM_DAYS: u64 = 2;

/// Why a list was not folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// A Redis call failed.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// A SQL call failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The cold store failed, or its list cannot be read.
    #[error(transparent)]
    Cold(#[from] ColdStoreError),
    /// Others keep writing the list.
    #[error("another origin is writing the cold list")]
    Busy,
}

/// Summary of a fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldSummary {
    /// Number of lists copied.
    pub lists: u64,
    /// Number of lists in the cold store that cannot be read.
    pub failures: u64,
}

impl History {
    /// Copies one owner's list to the cold store.
    ///
    /// # Errors
    /// See [`FoldError`].
    pub async fn fold_owner(&self, owner: &Owner) -> Result<(), FoldError> {
        self.fold_with(owner, &[]).await
    }

    /// Copies one owner's list and these views to the cold store.
    ///
    /// # Errors
    /// See [`FoldError`].
    pub async fn fold_with(&self, owner: &Owner, more: &[ViewedProduct]) -> Result<(), FoldError> {
        for _ in 0..ATTEMPTS {
            let hot = self.0.hot.read(owner).await?.views;
            // Read removals after the views, so that all earlier removals are included.
            let removals = self.0.store.removed().removals(owner).await?;
            let stored = self.0.cold.read(owner).await?;
            let stored_views = stored.views.iter().chain(more).cloned();
            let views = hot.into_iter().chain(stored_views);
            let max = self.0.settings.bounds.views_max;
            let merged = merge(views, &removals, oldest_ms(self.now_ms()), max);
            let is_same = merged == stored.views;
            if is_same || self.0.cold.write(owner, stored.version, &merged).await? {
                return Ok(());
            }
        }
        Err(FoldError::Busy)
    }

    /// Folds all past days that no other origin is folding.
    ///
    /// # Errors
    /// See [`FoldError`]. The next fold resumes where this one ended.
    pub async fn fold(&self, stop: &CancellationToken) -> Result<FoldSummary, FoldError> {
        let now_ms = self.now_ms();
        self.0.store.folds().note_days(now_ms).await?;
        let mut folded = FoldSummary::default();
        let Some(last) = (now_ms.saturating_sub(MARGIN_MS) / DAY_MS).checked_sub(1) else {
            return Ok(folded);
        };
        let holder = holder_name();
        for part in self
            .0
            .store
            .folds()
            .open_parts(last, &holder, now_ms)
            .await?
        {
            if stop.is_cancelled() {
                break;
            }
            self.fold_part(part, &holder, stop, &mut folded).await?;
        }
        self.note_lag().await?;
        Ok(folded)
    }

    async fn fold_part(
        &self,
        mut part: DayPart,
        holder: &str,
        stop: &CancellationToken,
        folded: &mut FoldSummary,
    ) -> Result<(), FoldError> {
        let now_ms = self.now_ms();
        let until_ms = now_ms + LEASE_MS;
        let store = &self.0.store;
        if !store
            .folds()
            .take_part(part, holder, now_ms, until_ms)
            .await?
        {
            return Ok(());
        }
        while part.next_slot < part.end() && !stop.is_cancelled() {
            let end = part.next_slot.saturating_add(STEP).min(part.end());
            let slots = part.next_slot..end;
            for slot in self.0.hot.active_slots(part.day, slots).await? {
                self.fold_slot(part.day, slot, folded).await?;
            }
            part.next_slot = end;
            let until_ms = self.now_ms() + LEASE_MS;
            if !store.folds().advance_part(part, holder, until_ms).await? {
                // Another origin has taken it over.
                break;
            }
        }
        Ok(())
    }

    async fn fold_slot(
        &self,
        day: u64,
        slot: u16,
        folded: &mut FoldSummary,
    ) -> Result<(), FoldError> {
        let mut from = 0;
        loop {
            let ActivePage { owners, next } = self.0.hot.active_page(day, slot, from).await?;
            for some in owners.chunks(TOGETHER) {
                let failures = self.fold_owners(some).await?;
                folded.lists += some.len() as u64 - failures;
                folded.failures += failures;
                self.0
                    .metrics
                    .compacted
                    .inc_by(some.len() as u64 - failures);
                self.0.metrics.fold_failures.inc_by(failures);
                self.0.hot.forget_active(day, slot, some).await?;
            }
            if next == 0 {
                return Ok(());
            }
            from = next;
        }
    }

    /// Folds some lists concurrently. Returns the number that cannot be read.
    async fn fold_owners(&self, owners: &[Vec<u8>]) -> Result<u64, FoldError> {
        let mut tasks = JoinSet::new();
        for owner in owners {
            let text = String::from_utf8_lossy(owner);
            // Skip texts that are not owners: Weir did not write them.
            if let Ok(owner) = Owner::from_text(&text) {
                let history = self.clone();
                tasks.spawn(async move { history.fold_owner(&owner).await });
            }
        }
        let (mut failures, mut failed) = (0, None);
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(FoldError::Cold(ColdStoreError::Value(error)))) => {
                    warn!(%error, "cannot read a cold list; left unchanged");
                    failures += 1;
                }
                Ok(Err(error)) => failed = Some(error),
                Err(error) => failed = Some(CallError::from(error).into()),
            }
        }
        failed.map_or(Ok(failures), Err)
    }

    /// Records the age of the oldest pending day.
    async fn note_lag(&self) -> Result<(), SqlError> {
        let today = self.now_ms() / DAY_MS;
        let oldest = self.0.store.folds().oldest_open_day(today).await?;
        let lag = oldest.map_or(0, |oldest| today.saturating_sub(oldest));
        let lag_seconds = lag.saturating_mul(DAY_MS / 1_000);
        let lag_seconds = i64::try_from(lag_seconds).unwrap_or(i64::MAX);
        self.0.metrics.fold_lag_seconds.set(lag_seconds);
        if lag >= LAG_ALARM_DAYS {
            error!(
                lag,
                "history compaction is late, lists can get lost: Redis drops them after 4 days"
            );
        }
        Ok(())
    }

    /// Deletes one step of expired lists and removals. Returns the number deleted.
    ///
    /// # Errors
    /// If SQL or the cold store is unavailable.
    pub async fn forget_old(&self) -> Result<u64, FoldError> {
        let now_ms = self.now_ms();
        let lists = self.0.cold.forget_older(oldest_ms(now_ms), OLD).await?;
        let removals = self.0.store.removed().forget_removals(now_ms, OLD).await?;
        let before = (now_ms / DAY_MS).saturating_sub(weir_history::COLD_MS / DAY_MS);
        self.0.store.folds().forget_days(before).await?;
        self.0.store.day_starts().forget_begins(before).await?;
        Ok(lists + removals)
    }

    async fn round(&self, stop: &CancellationToken) -> Result<(), FoldError> {
        let folded = self.fold(stop).await;
        if let Err(error) = self.note_lag().await {
            warn!(%error, "cannot read the progress of the history compaction");
        }
        let FoldSummary { lists, failures } = folded?;
        if lists + failures > 0 {
            info!(lists, failures, "history lists compacted");
        }
        let full_step = OLD as u64;
        while !stop.is_cancelled() && self.forget_old().await? >= full_step {}
        Ok(())
    }

    pub(crate) async fn run_folding(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "compacting history lists", stop.clone());
        while interval.next().await {
            let outcome = self.round(&stop).await;
            interval.ended(&outcome);
        }
    }
}

/// A unique name of a fold. Without random numbers the name may repeat; then two origins may do the same work.
fn holder_name() -> String {
    let mut name = [0; 16];
    let _ = SystemRandom::new().fill(&mut name);
    hex::encode(name)
}
