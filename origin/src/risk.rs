//! Who has reserved is looked at in the background, and blocked if the score is too high.
//!
//! SQL keeps who is still to be scored: a crash loses nobody. A scorer that is down delays scores;
//! it never holds up a reservation.

mod http;
mod rules;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_base::id::{SaleId, UserId};

use crate::Origin;
use crate::clock::now_ms;
use crate::ledger::{LedgerError, UserList};
use crate::store::{Score, StoreError, Unscored};

pub use http::{HttpScorer, HttpSettings};
pub use rules::{RuleError, Rules};

/// The pause when nobody waits for a score, or a score failed.
const PERIOD: Duration = Duration::from_millis(500);

/// After a failed check, how long others go first, in milliseconds; doubled with each further one.
const POSTPONE_MS: u64 = 500;

/// The longest that one who has reserved waits for the next check, in milliseconds: 5 minutes.
const POSTPONE_MS_MAX: u64 = 300_000;

/// Users scored at the same time.
const AT_ONCE: usize = 16;

/// A score in the making.
pub type ScoreFuture<'a> = Pin<Box<dyn Future<Output = Result<u32, ScoreError>> + Send + 'a>>;

/// Says how much a user looks like a bot.
pub trait RiskScorer: fmt::Debug + Send + Sync {
    /// The higher, the worse.
    fn score<'a>(&'a self, sale: &'a SaleId, user: &'a UserId) -> ScoreFuture<'a>;
}

/// There is no score: to be asked for again.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The service failed too often of late, and is not asked for now.
    #[error("the risk service is left alone for {retry_after_ms} ms")]
    Open {
        /// After which time it is asked again.
        retry_after_ms: u64,
    },
    /// The service did not answer in time.
    #[error("the risk service did not answer in time")]
    Timeout,
    /// The service answered with this status.
    #[error("the risk service answered {0}")]
    Status(u16),
    /// The service's answer is no score.
    #[error("the risk service's answer is no score: {0}")]
    Answer(#[from] serde_json::Error),
    /// The connection failed.
    #[error("the risk service: {0}")]
    Connection(String),
}

#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error(transparent)]
    Score(#[from] ScoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Scores who has reserved.
#[derive(Clone, Debug)]
pub struct RiskWorker {
    origin: Origin,
    scorer: Arc<dyn RiskScorer>,
    threshold: u32,
}

impl RiskWorker {
    /// A worker that blocks users of `threshold` and above.
    pub fn new(origin: Origin, scorer: Arc<dyn RiskScorer>, threshold: u32) -> Self {
        Self {
            origin,
            scorer,
            threshold,
        }
    }

    /// Works until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let is_busy = match self.round().await {
                Ok(round) => round.scored > 0 && round.failed == 0,
                Err(error) => {
                    warn!(%error, "risk checks wait for SQL");
                    false
                }
            };
            let pause = if is_busy { Duration::ZERO } else { PERIOD };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Scores some of those who wait for it.
    ///
    /// # Errors
    /// When SQL does not say who waits.
    pub async fn round(&self) -> Result<Round, StoreError> {
        let mut tasks = JoinSet::new();
        let store = &self.origin.store;
        for waiting in store.reservations_to_score(now_ms(), AT_ONCE).await? {
            let worker = self.clone();
            tasks.spawn(async move { worker.turn(&waiting).await });
        }
        let mut round = Round::default();
        while let Some(outcome) = tasks.join_next().await {
            match outcome {
                Ok(Ok(())) => round.scored += 1,
                Ok(Err(error)) => {
                    round.failed += 1;
                    self.origin.metrics.risk_check("failed");
                    warn!(%error, "no score yet; trying again");
                }
                Err(error) => {
                    round.failed += 1;
                    warn!(%error, "a risk check broke off");
                }
            }
        }
        Ok(round)
    }

    /// Scores the user, who goes behind the others if that fails: whom the service never scores must
    /// not keep it from all who come later.
    async fn turn(&self, waiting: &Unscored) -> Result<(), WorkError> {
        let scored = self.score(waiting).await;
        // Nobody was asked about this user, and nothing is known against it.
        let is_asked = !matches!(scored, Err(WorkError::Score(ScoreError::Open { .. })));
        if scored.is_err() && is_asked {
            let check_at_ms = now_ms() + postpone_ms(waiting.failed_checks);
            let (store, user) = (&self.origin.store, &waiting.user);
            store
                .postpone_check(&waiting.sale, user, check_at_ms)
                .await?;
        }
        scored
    }

    /// Redis first: SQL's note that the user is scored is what ends the work, so a crash before it
    /// has all of it done again.
    async fn score(&self, waiting: &Unscored) -> Result<(), WorkError> {
        let (id, user) = (&waiting.sale, &waiting.user);
        let score = self.scorer.score(id, user).await?;
        let block = score >= self.threshold;
        if block && let Some(stored) = self.origin.store.sale(id).await? {
            let users = std::slice::from_ref(user);
            let ledger = &self.origin.ledger;
            ledger
                .add_users(&stored.sale, UserList::Blocked, users)
                .await?;
            info!(sale = %id, score, "a user is blocked for risk");
        }
        let store = &self.origin.store;
        store
            .set_score(id, user, Score { score, block }, now_ms())
            .await?;
        self.origin
            .metrics
            .risk_check(if block { "blocked" } else { "passed" });
        Ok(())
    }
}

/// How long others go first after this many failed checks before the one that failed now.
fn postpone_ms(failed_before: u32) -> u64 {
    let doubled = 1_u64.checked_shl(failed_before).unwrap_or(u64::MAX);
    POSTPONE_MS.saturating_mul(doubled).min(POSTPONE_MS_MAX)
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Users who have a score now.
    pub scored: u32,
    /// Users who still wait for it.
    pub failed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_waits_longer_but_not_for_ever() {
        let waits = [0, 1, 2, 9, 10, 63, 64, u32::MAX].map(postpone_ms);
        assert_eq!(
            waits,
            [
                500, 1_000, 2_000, 256_000, 300_000, 300_000, 300_000, 300_000
            ]
        );
    }
}
