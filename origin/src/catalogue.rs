//! The catalogue: what gateways poll, written from SQL.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_core::sale::{Catalogue, CatalogueError, SALES_MAX, SaleState};

use crate::clock::now_ms;
use crate::ledger::{Ledger, LedgerError};
use crate::store::{Store, StoreError};

/// How long an ended sale stays in the catalogue, in milliseconds: late comers are told that it is
/// over, not that it never was.
const KEEP_ENDED_MS: u64 = 60 * 60 * 1000;

/// How often the catalogue is written without a change: a Redis that lost its data has it again
/// after this time, and sales that ended long ago leave it.
const PERIOD: Duration = Duration::from_secs(10);

/// The pause after the first failure; doubled with each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two tries.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Writes the catalogue. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Publisher {
    store: Arc<dyn Store>,
    ledger: Ledger,
    // Held from reading SQL to writing Redis, so that an older catalogue never overwrites a newer.
    // Between two origins the periodic write mends that.
    turn: Arc<Mutex<()>>,
}

/// Why the catalogue was not written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// SQL did not tell the sales.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis did not take it, or it is unknown whether it did.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Gateways would refuse it.
    #[error("the catalogue {0}")]
    Catalogue(#[from] CatalogueError),
    /// It could not be written as JSON.
    #[error("the catalogue as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Publisher {
    pub(crate) fn new(store: Arc<dyn Store>, ledger: Ledger) -> Self {
        Self {
            store,
            ledger,
            turn: Arc::default(),
        }
    }

    /// The sales that gateways should know now: warmed, and not ended for long.
    ///
    /// # Errors
    /// When SQL does not answer, or holds what gateways would refuse.
    pub async fn current(&self) -> Result<Catalogue, PublishError> {
        let ended_after_ms = now_ms().saturating_sub(KEEP_ENDED_MS);
        let sales = self.store.catalogue(ended_after_ms, SALES_MAX).await?;
        let switch = SaleState::Open;
        Ok(Catalogue { switch, sales }.checked()?)
    }

    /// Writes the catalogue.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(&self) -> Result<(), PublishError> {
        let _turn = self.turn.lock().await;
        let catalogue = serde_json::to_vec(&self.current().await?)?;
        Ok(self.ledger.publish(&catalogue).await?)
    }

    /// Writes the catalogue now and then, and again and again until it succeeds, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            failures = self.try_publish(failures).await;
            let pause = if failures == 0 {
                PERIOD
            } else {
                retry_pause(failures)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns how often it has failed in a row. Logs changes, not each try.
    async fn try_publish(&self, failures: u32) -> u32 {
        match self.publish().await {
            Ok(()) => {
                if failures > 0 {
                    info!(failures, "the catalogue is published again");
                }
                0
            }
            Err(error) => {
                if failures == 0 {
                    warn!(%error, "the catalogue is not published; trying again");
                }
                failures.saturating_add(1)
            }
        }
    }
}

fn retry_pause(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    RETRY_PAUSE.saturating_mul(doubled).min(RETRY_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let pauses = [1, 2, 3, 7, u32::MAX].map(|failures| retry_pause(failures).as_millis());
        assert_eq!(pauses, [100, 200, 400, 5_000, 5_000]);
    }
}
