//! The catalogue: what gateways poll, written from SQL.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use weir_base::id::SaleId;
use weir_base::key::KeyRing;
use weir_sale::redis::catalogue;
use weir_sale::sale::{Catalogue, CatalogueError, ClaimKey, SALES_MAX};

use crate::ledger::Ledger;
use crate::store::{SaleStore, StoredSale};
use weir_origin_core::background::{Backoff, Interval};
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// How long an ended sale stays in the catalogue, in milliseconds: latecomers are told that it is over, not that it
/// does not exist.
const KEEP_ENDED_MS: u64 = 60 * 60 * 1000;

/// How often the catalogue is compared with the last one: what is left of a sale moves it between bands, and gateways say
/// `sold_out` only once it says that nothing is.
const CHANGE_PERIOD: Duration = Duration::from_millis(250);

/// How often it is looked whether gateways have the last one: a Redis that lost its last writes, or all, gets it again.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// How long changes of orders are gathered before their sales are looked at.
const GATHER_PERIOD: Duration = Duration::from_millis(20);

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
    /// How claims must be signed.
    claim_keys: Vec<ClaimKey>,
    // Held from reading SQL to writing Redis: what was written last. Another origin may write meanwhile, but a later
    // version is never overwritten by an earlier one.
    turn: Arc<Mutex<Catalogue>>,
    changed: ChangedSales,
    /// See [`CHANGE_PERIOD`].
    period: Duration,
}

/// The sales whose orders have changed since they were looked at: the last unit may have gone, or one may have come back.
/// Cloning it is cheap: clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedSales(Arc<PendingSales>);

#[derive(Debug, Default)]
struct PendingSales {
    ids: std::sync::Mutex<BTreeSet<SaleId>>,
    notify: Notify,
}

impl ChangedSales {
    /// Notes that an order of this sale has changed.
    pub(crate) fn note(&self, sale: &SaleId) {
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.contains(sale) {
            ids.insert(sale.clone());
        }
        self.0.notify.notify_one();
    }

    /// Waits for a change, and for [`GATHER_PERIOD`] for more.
    async fn next(&self) -> BTreeSet<SaleId> {
        self.0.notify.notified().await;
        tokio::time::sleep(GATHER_PERIOD).await;
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *ids)
    }
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
    #[error("cannot encode the catalogue as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Publisher {
    pub(crate) fn new(store: SaleStore, ledger: Ledger, keys: &KeyRing) -> Self {
        Self {
            store,
            ledger,
            claim_keys: ClaimKey::all(keys),
            turn: Arc::default(),
            changed: ChangedSales::default(),
            period: CHANGE_PERIOD,
        }
    }

    /// The same, which compares the catalogue with the last one this often, and not four times a second.
    #[must_use]
    pub fn comparing_every(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Where changes of orders are noted, so that gateways learn at once when nothing is left.
    pub(crate) fn changed_sales(&self) -> ChangedSales {
        self.changed.clone()
    }

    /// The sales that gateways should know: those that have not ended long ago. Without a version.
    ///
    /// # Errors
    /// When SQL does not answer, or holds what gateways would refuse.
    pub async fn current(&self) -> Result<Catalogue, PublishError> {
        let sales = self.store.catalogue(ended_after_ms(), SALES_MAX).await?;
        let sales = sales.into_iter().map(|stored| stored.sale);
        let (version, sales) = (0, sales.collect());
        let switch = self.store.global_switch().await?;
        let catalogue = Catalogue {
            version,
            switch,
            claim_keys: self.claim_keys.clone(),
            sales,
        };
        Ok(catalogue.checked()?)
    }

    /// The same sales as SQL has them, each with the versions of its orders: see [`SaleStore::running`].
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn sales(&self) -> Result<Vec<(StoredSale, [u64; 2])>, SqlError> {
        self.store.running(ended_after_ms(), SALES_MAX).await
    }

    /// Writes the catalogue.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish(&self) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        self.write(&mut last).await
    }

    async fn write(&self, last: &mut Catalogue) -> Result<(), PublishError> {
        let next = self
            .store
            .next_catalogue(ended_after_ms(), SALES_MAX, now_ms());
        let catalogue = Catalogue {
            claim_keys: self.claim_keys.clone(),
            ..next.await?.checked()?
        };
        let json = catalogue::write(&catalogue)?;
        // If the reply is lost it is unknown what gateways have: then nothing counts as written.
        *last = Catalogue::default();
        self.ledger.publish(catalogue.version, &json).await?;
        *last = catalogue;
        Ok(())
    }

    /// Writes the catalogue if it differs from the last one.
    async fn write_changed(&self) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        let version = last.version;
        let current = Catalogue {
            version,
            ..self.current().await?
        };
        match version > 0 && *last == current {
            true => Ok(()),
            false => self.write(&mut last).await,
        }
    }

    /// Writes the catalogue if one of these sales is in another band than the last one says.
    async fn write_moved(&self, ids: &BTreeSet<SaleId>) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        for id in ids {
            // A sale that is not in the catalogue, such as one that ended long ago, changes nothing there.
            let Some(known) = last.find(id.as_str().as_bytes()).map(|sale| sale.band) else {
                continue;
            };
            let band = self.store.sale(id).await?.map(|stored| stored.sale.band);
            if band.is_some_and(|band| band != known) {
                return self.write(&mut last).await;
            }
        }
        Ok(())
    }

    /// Writes the catalogue again if Redis has another one than the last: it has lost that, or another origin has
    /// written its own and died, and SQL has changed back since.
    async fn check(&self) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        let published = self.ledger.published().await?;
        let published = published.and_then(|json| catalogue::read(&json).ok());
        let is_same = published.is_some_and(|published| {
            let version = last.version;
            let is_late = published.version >= version;
            is_late
                && Catalogue {
                    version,
                    ..published
                } == *last
        });
        match is_same {
            true => Ok(()),
            false => self.write(&mut last).await,
        }
    }

    /// Keeps the catalogue in Redis up to date until `stop`: when it changes, and when Redis has lost it.
    pub async fn run(self, stop: CancellationToken) {
        let interval = Interval::every(self.period, "publishing the catalogue", stop);
        let mut interval = interval.backing_off(BACKOFF);
        let (mut due, mut checked) = (Instant::now(), Instant::now());
        loop {
            let outcome = tokio::select! {
                goes_on = interval.next() => {
                    if !goes_on {
                        return;
                    }
                    due = Instant::now() + self.period;
                    self.round(&mut checked).await
                }
                ids = self.changed.next(), if !interval.is_failing() => self.write_moved(&ids).await,
            };
            interval.ended(&outcome);
            if outcome.is_ok() {
                interval.next_after(due.saturating_duration_since(Instant::now()));
            }
        }
    }

    async fn round(&self, checked: &mut Instant) -> Result<(), PublishError> {
        self.write_changed().await?;
        if checked.elapsed() >= CHECK_PERIOD {
            self.check().await?;
            *checked = Instant::now();
        }
        Ok(())
    }
}

/// Sales that ended by then are not in it, and nobody looks after them in Redis.
pub(crate) fn ended_after_ms() -> u64 {
    now_ms().saturating_sub(KEEP_ENDED_MS)
}
