//! Publishes the catalogue, which gateways poll, from SQL to Redis.

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

/// How long an ended sale stays in the catalogue, in milliseconds, so that gateways answer that it has ended, not that
/// it does not exist.
const KEEP_ENDED_MS: u64 = 60 * 60 * 1000;

/// Interval for comparing the catalogue with the last one. Sold units change a sale's stock level, and gateways answer
/// `sold_out` only when the catalogue reports no stock.
const CHANGE_PERIOD: Duration = Duration::from_millis(250);

/// Interval for checking that Redis has the last catalogue, in case it lost data.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// How long order changes are collected before their sales are checked.
const GATHER_PERIOD: Duration = Duration::from_millis(20);

/// Pauses after failures.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    max: Duration::from_secs(5),
};

/// Publishes the catalogue. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Publisher {
    store: SaleStore,
    ledger: Ledger,
    /// The keys that sign claims.
    claim_keys: Vec<ClaimKey>,
    // The last written catalogue. Locked from reading SQL to writing Redis. Another origin may write concurrently, but
    // an earlier version never overwrites a later one.
    turn: Arc<Mutex<Catalogue>>,
    changed: ChangedSales,
    /// See [`CHANGE_PERIOD`].
    period: Duration,
}

/// Sales with order changes since the last check: the last unit may be sold, or one may have returned. Cloning it is
/// cheap: clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedSales(Arc<PendingSales>);

#[derive(Debug, Default)]
struct PendingSales {
    ids: std::sync::Mutex<BTreeSet<SaleId>>,
    notify: Notify,
}

impl ChangedSales {
    /// Records that an order of this sale has changed.
    pub(crate) fn note(&self, sale: &SaleId) {
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.contains(sale) {
            ids.insert(sale.clone());
        }
        self.0.notify.notify_one();
    }

    /// Waits for a change, then collects more for [`GATHER_PERIOD`].
    async fn next(&self) -> BTreeSet<SaleId> {
        self.0.notify.notified().await;
        tokio::time::sleep(GATHER_PERIOD).await;
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *ids)
    }
}

/// Why the catalogue was not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not answer, or the outcome is unknown.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// Gateways would reject it.
    #[error("the catalogue {0}")]
    Catalogue(#[from] CatalogueError),
    /// It cannot be encoded as JSON.
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

    /// Sets the interval for comparing the catalogue with the last one; the default is four times per second.
    #[must_use]
    pub fn comparing_every(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Records order changes, so that gateways learn at once when a sale is sold out.
    pub(crate) fn changed_sales(&self) -> ChangedSales {
        self.changed.clone()
    }

    /// Returns the current catalogue without a version. It omits sales that ended long ago.
    ///
    /// # Errors
    /// When SQL does not answer, or contains data that gateways would reject.
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

    /// Returns the same sales with their data in SQL, each with the versions of its orders: see [`SaleStore::running`].
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn sales(&self) -> Result<Vec<(StoredSale, [u64; 2])>, SqlError> {
        self.store.running(ended_after_ms(), SALES_MAX).await
    }

    /// Publishes the catalogue.
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
        // If the reply is lost, the published version is unknown. Treat the catalogue as not written.
        *last = Catalogue::default();
        self.ledger.publish(catalogue.version, &json).await?;
        *last = catalogue;
        Ok(())
    }

    /// Publishes the catalogue if it differs from the last one.
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

    /// Publishes the catalogue if the stock level of one of these sales has changed.
    async fn write_moved(&self, ids: &BTreeSet<SaleId>) -> Result<(), PublishError> {
        let mut last = self.turn.lock().await;
        for id in ids {
            // Sales outside the catalogue, such as those that ended long ago, do not matter.
            let Some(existing) = last.find(id.as_str().as_bytes()).map(|sale| sale.band) else {
                continue;
            };
            let band = self.store.sale(id).await?.map(|stored| stored.sale.band);
            if band.is_some_and(|band| band != existing) {
                return self.write(&mut last).await;
            }
        }
        Ok(())
    }

    /// Publishes the catalogue again if Redis has a different one: Redis lost data, or another origin wrote its own and
    /// crashed before SQL changed back.
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

    /// Keeps the catalogue in Redis up to date until `stop`.
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

/// Sales that ended before this time are not in the catalogue, and the reconciler ignores them.
pub(crate) fn ended_after_ms() -> u64 {
    now_ms().saturating_sub(KEEP_ENDED_MS)
}
