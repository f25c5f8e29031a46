//! Scores users with reservations in the background, and blocks users with a high score.
//!
//! SQL stores the users to score, so a crash loses none. If the scorer is down, scores are delayed, but reservations
//! are not. The exception is a check that fails closed: gateways then learn of a reservation only after its user has
//! passed.

mod http;
mod rules;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::ledger::{Ledger, UserList};
use crate::metrics::SaleMetrics;
use crate::store::{SaleStore, Score, UnscoredReservation, UserListStatus};
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

pub use http::{HttpScorer, HttpSettings};
pub use rules::{Rules, RulesFileError};

/// Pause when no user waits for a score, or a check failed.
const PERIOD: Duration = Duration::from_millis(500);

/// Interval between two counts of waiting users.
const COUNT_PERIOD: Duration = Duration::from_secs(5);

/// Wait of a user after a failed check, in milliseconds; it doubles with each further one.
const POSTPONE_MS: u64 = 500;

/// Maximum wait for the next check, in milliseconds: 5 minutes.
const POSTPONE_MS_MAX: u64 = 300_000;

/// Maximum number of concurrent checks.
const AT_ONCE: usize = 16;

/// A running risk check.
pub type ScoreFuture<'a> = Pin<Box<dyn Future<Output = Result<u32, ScoreError>> + Send + 'a>>;

/// Scores how likely a user is a bot.
pub trait RiskScorer: fmt::Debug + Send + Sync {
    /// Returns the score; higher is worse.
    fn score<'a>(&'a self, reservation: &'a UnscoredReservation) -> ScoreFuture<'a>;
}

/// A failed risk check; retry later.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The circuit breaker is open: the service failed too often recently.
    #[error("risk service circuit open for {retry_after_ms} ms")]
    Open {
        /// Time until the next try, in milliseconds.
        retry_after_ms: u64,
    },
    /// Timeout.
    #[error("timeout waiting for the risk service")]
    Timeout,
    /// The service answered with this status.
    #[error("the risk service answered {0}")]
    Status(u16),
    /// The service's answer is not a score.
    #[error("the risk service's answer is not a score: {0}")]
    Answer(#[from] serde_json::Error),
    /// The connection failed.
    #[error("cannot call the risk service: {0}")]
    Connection(String),
}

#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Score(#[from] ScoreError),
    #[error(transparent)]
    Store(#[from] SqlError),
    #[error(transparent)]
    Ledger(#[from] CallError),
}

/// Scores users with reservations.
#[derive(Clone, Debug)]
pub struct RiskWorker {
    store: SaleStore,
    ledger: Ledger,
    metrics: SaleMetrics,
    scorer: Arc<dyn RiskScorer>,
    threshold: u32,
}

impl RiskWorker {
    pub(super) fn new(
        store: SaleStore,
        ledger: Ledger,
        metrics: SaleMetrics,
        scorer: Arc<dyn RiskScorer>,
        threshold: u32,
    ) -> Self {
        Self {
            store,
            ledger,
            metrics,
            scorer,
            threshold,
        }
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "checking risks", stop);
        let mut counted = None::<Instant>;
        while interval.next().await {
            // The count reads all waiting users, so it does not run in each round.
            if counted.is_none_or(|at| at.elapsed() >= COUNT_PERIOD) {
                counted = Some(Instant::now());
                self.count_pending().await;
            }
            let outcome = self.round().await;
            interval.ended(&outcome);
            if outcome.is_ok_and(|round| round.scored > 0 && round.failed == 0) {
                // More may be waiting.
                interval.next_at_once();
            }
        }
    }

    /// Counts the users who wait for a score. If SQL does not answer, the next count updates the metric.
    pub async fn count_pending(&self) {
        if let Ok(pending) = self.store.reservations().risk_pending().await {
            self.metrics.risk_pending(pending);
        }
    }

    /// Scores some of the waiting users.
    ///
    /// # Errors
    /// When SQL does not list the waiting users.
    pub async fn round(&self) -> Result<Round, SqlError> {
        let mut tasks = JoinSet::new();
        let waiting = self
            .store
            .reservations()
            .reservations_to_score(now_ms(), AT_ONCE);
        for waiting in waiting.await? {
            let worker = self.clone();
            tasks.spawn(async move { worker.turn(&waiting).await });
        }
        let mut round = Round::default();
        while let Some(outcome) = tasks.join_next().await {
            match outcome {
                Ok(Ok(())) => round.scored += 1,
                Ok(Err(error)) => {
                    round.failed += 1;
                    self.metrics.risk_check("failed");
                    note_failure(&error);
                }
                Err(error) => {
                    round.failed += 1;
                    warn!(%error, "risk check interrupted");
                }
            }
        }
        Ok(round)
    }

    /// Scores a user. After a failure the user moves behind the others, so that a user whose checks always fail does
    /// not block the queue.
    async fn turn(&self, waiting: &UnscoredReservation) -> Result<(), WorkError> {
        let scored = self.score(waiting).await;
        // With an open breaker, the service was not called. This is not a failure of this user's check.
        let is_asked = !matches!(scored, Err(WorkError::Score(ScoreError::Open { .. })));
        if scored.is_err() && is_asked {
            let check_at_ms = now_ms() + postpone_ms(waiting.failed_checks);
            let (sale, user) = (&waiting.sale, &waiting.user);
            self.store
                .reservations()
                .postpone_check(sale, user, check_at_ms)
                .await?;
        }
        scored
    }

    /// Writes to Redis before SQL. The write to SQL ends the work, so after a crash everything is repeated.
    async fn score(&self, waiting: &UnscoredReservation) -> Result<(), WorkError> {
        let (id, user) = (&waiting.sale, &waiting.user);
        let score = self.scorer.score(waiting).await?;
        let listed = self.store.user_list().listed_user(user).await?;
        let is_allowed = listed.is_some_and(|listed| listed.status == UserListStatus::Allowed);
        let block = score >= self.threshold && !is_allowed;
        let list = match block {
            true => Some(UserList::Blocked),
            false if self.store.risk_fails_closed() => {
                // If the draw has not chosen the user, the reservation does not count yet.
                let is_admitted = self.store.reservations().is_admitted(id, user).await?;
                is_admitted.then_some(UserList::Reserved)
            }
            false => None,
        };
        if let Some(list) = list
            && let Some(stored) = self.store.sale(id).await?
        {
            let users = std::slice::from_ref(user);
            self.ledger.add_users(&stored.sale, list, users).await?;
        }
        if block {
            info!(sale = %id, score, "user blocked by the risk check");
        }
        let score = Score { score, block };
        self.store
            .reservations()
            .set_score(id, user, score, now_ms())
            .await?;
        self.metrics
            .risk_check(if block { "blocked" } else { "passed" });
        Ok(())
    }
}

/// Does not warn about an open breaker, because the failures that opened it were logged.
fn note_failure(error: &WorkError) {
    match error {
        WorkError::Score(ScoreError::Open { .. }) => debug!(%error, "risk check failed"),
        _ => warn!(%error, "risk check failed; retrying"),
    }
}

/// The wait after a failed check, after `failed_before` earlier failures.
fn postpone_ms(failed_before: u32) -> u64 {
    let doubled = 1_u64.checked_shl(failed_before).unwrap_or(u64::MAX);
    POSTPONE_MS.saturating_mul(doubled).min(POSTPONE_MS_MAX)
}

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Number of scored users.
    pub scored: u32,
    /// Number of failed checks.
    pub failed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_wait_longer_up_to_a_limit() {
        let waits = [0, 1, 2, 9, 10, 63, 64, u32::MAX].map(postpone_ms);
        assert_eq!(
            waits,
            [
                500, 1_000, 2_000, 256_000, 300_000, 300_000, 300_000, 300_000
            ]
        );
    }
}
