//! The catalogue: what gateways poll, written from SQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use weir_sale::sale::{Catalogue, CatalogueError, SALES_MAX};
use weir_scripts::documents;

use super::ledger::Ledger;
use super::store::SaleStore;
use crate::background::{Backoff, Rounds};
use crate::clock::now_ms;
use crate::redis::CallError;
use crate::sql::SqlError;

/// How long an ended sale stays in the catalogue, in milliseconds: latecomers are told that it is over, not that it
/// does not exist.
const KEEP_ENDED_MS: u64 = 60 * 60 * 1000;

/// How often the catalogue is written even without a change: then a Redis that lost its data has it again, and sales
/// that ended long ago leave it.
const PERIOD: Duration = Duration::from_secs(10);

/// How often the catalogue is compared with the last one: what is left of a sale moves it between bands.
const CHANGE_PERIOD: Duration = Duration::from_secs(1);

/// The pause after failures.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    max: Duration::from_secs(5),
};

/// Writes the catalogue. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Publisher {
    store: SaleStore,
    ledger: Ledger,
    // Held from reading SQL to writing Redis, so that an older catalogue never overwrites a newer.
    // Between two origins the periodic write mends that. Holds what was written last.
    turn: Arc<Mutex<Vec<u8>>>,
}

/// Why the catalogue was not written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not take it, or it is unknown whether it did.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// Gateways would refuse it.
    #[error("the catalogue {0}")]
    Catalogue(#[from] CatalogueError),
    /// It could not be written as JSON.
    #[error("the catalogue as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Publisher {
    pub(super) fn new(store: SaleStore, ledger: Ledger) -> Self {
        Self {
            store,
            ledger,
            turn: Arc::default(),
        }
    }

    /// The sales that gateways should know: warmed, and not ended long ago.
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
        let catalogue = documents::catalogue::write(&self.current().await?)?;
        if only_changed && *last == catalogue {
            return Ok(());
        }
        self.ledger.publish(&catalogue).await?;
        *last = catalogue;
        Ok(())
    }

    /// Keeps the catalogue in Redis up to date until `stop`: at once when it changes, and from time to time in any
    /// case.
    pub async fn run(self, stop: CancellationToken) {
        let rounds = Rounds::every(CHANGE_PERIOD, "publishing the catalogue", stop);
        let mut rounds = rounds.backing_off(BACKOFF);
        let mut written = None::<Instant>;
        while rounds.next().await {
            let only_changed = written.is_some_and(|at| at.elapsed() < PERIOD);
            let outcome = self.write(only_changed).await;
            if outcome.is_err() {
                written = None;
            } else if !only_changed {
                written = Some(Instant::now());
            }
            rounds.ended(&outcome);
        }
    }
}
