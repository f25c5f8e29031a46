//! The catalogue: what gateways poll, written from SQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_sale::sale::{Catalogue, CatalogueError, SALES_MAX};

use crate::clock::now_ms;
use crate::ledger::{Ledger, LedgerError};
use crate::store::{Store, StoreError};

/// How long an ended sale stays in the catalogue, in milliseconds: late comers are told that it is
/// over, not that it never was.
const KEEP_ENDED_MS: u64 = 60 * 60 * 1000;

/// How often the catalogue is written without a change: a Redis that lost its data has it again
/// after this time, and sales that ended long ago leave it.
const PERIOD: Duration = Duration::from_secs(10);

/// How often it is looked whether the catalogue has changed: the bands of what is left do.
const CHANGE_PERIOD: Duration = Duration::from_secs(1);

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
    // Between two origins the periodic write mends that. Holds what was written last.
    turn: Arc<Mutex<Vec<u8>>>,
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
        let switch = self.store.global_switch().await?;
        Ok(Catalogue { switch, sales }.checked()?)
    }

    /// Writes the catalogue.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(&self) -> Result<(), PublishError> {
        self.write(false).await
    }

    /// Writes the catalogue; if `only_changed`, only one that differs from the last.
    async fn write(&self, only_changed: bool) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        let catalogue = serde_json::to_vec(&self.current().await?)?;
        if only_changed && *last == catalogue {
            return Ok(());
        }
        self.ledger.publish(&catalogue).await?;
        *last = catalogue;
        Ok(())
    }

    /// Writes the catalogue now and then, and again and again until it succeeds, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let (mut failures, mut written) = (0, None::<Instant>);
        loop {
            let only_changed = written.is_some_and(|at| at.elapsed() < PERIOD);
            failures = self.try_publish(failures, only_changed).await;
            if failures > 0 {
                written = None;
            } else if !only_changed {
                written = Some(Instant::now());
            }
            let pause = if failures == 0 {
                CHANGE_PERIOD
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
    async fn try_publish(&self, failures: u32, only_changed: bool) -> u32 {
        match self.write(only_changed).await {
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
