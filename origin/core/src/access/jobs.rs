//! Deletes ended sessions and old entries of the audit trail.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Access;
use crate::background::Interval;
use crate::clock::now_ms;
use crate::sql::SqlError;

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_secs(10 * 60);

impl Access {
    /// Spawns the background job, which runs until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> JoinHandle<()> {
        let (access, stop) = (self.clone(), stop.clone());
        tokio::spawn(async move {
            let mut interval =
                Interval::every(PERIOD, "deleting sessions and old audit entries", stop);
            while interval.next().await {
                let outcome = access.forget(now_ms()).await;
                interval.ended(&outcome);
                if outcome.is_ok_and(|has_more| has_more) {
                    interval.next_at_once();
                }
            }
        })
    }

    /// Deletes what has expired at `now_ms`. Returns whether more remains.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn forget(&self, now_ms: u64) -> Result<bool, SqlError> {
        self.0.store.forget_ended(now_ms).await?;
        match self.0.settings.audit_ms {
            Some(kept_ms) => {
                let before_ms = now_ms.saturating_sub(kept_ms);
                self.0.trail.forget_before(before_ms).await
            }
            None => Ok(false),
        }
    }
}
