//! The public list of sales.
//!
//! Pages poll the list, so it queries SQL at most once per second, regardless of the number of clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::sale::{Band, Sale, SaleState};
use weir_sale::status::{SaleStatus, Stage};

use super::store::{SaleStore, StoredSale};
use crate::jobs::catalogue::ended_after_ms;
use crate::model::price::Price;
use crate::model::sale::Window;
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::TenantName;

/// How long a result of SQL is served.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// How long it is served while SQL does not answer.
const STALE_FOR: Duration = Duration::from_secs(60);

/// Maximum number of listed sales.
const LISTED_MAX: usize = 10_000;

/// A public sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PublicSale {
    /// Its id.
    #[schema(value_type = String)]
    pub id: SaleId,
    /// Display name.
    pub title: String,
    /// The SKU; null: none.
    #[schema(required)]
    pub sku: Option<String>,
    /// Price per unit; null: none.
    #[schema(required)]
    pub price: Option<Price>,
    /// Its state.
    pub state: Stage,
    /// Start time, in milliseconds since the Unix epoch.
    pub starts_at_ms: u64,
    /// End time (exclusive).
    pub ends_at_ms: u64,
    /// Approximate stock level.
    pub remaining: Band,
    /// Limit of units per user.
    pub user_cap: u32,
    /// Reservation period; null: no reservation is needed.
    #[schema(required)]
    pub reservation: Option<Window>,
    /// Whether an order token is needed.
    pub token: bool,
}

/// Filter of the list; all fields must match.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListFilter<'a> {
    /// The tenant that owns the sale.
    pub tenant: Option<&'a TenantName>,
    /// The SKU.
    pub sku: Option<&'a str>,
}

impl ListFilter<'_> {
    fn fits(&self, sale: &Sale) -> bool {
        self.tenant
            .is_none_or(|tenant| tenant.owns(sale.id.as_str()))
            && self.sku.is_none_or(|sku| sale.sku.as_deref() == Some(sku))
    }
}

impl PublicSale {
    fn new(stored: &StoredSale, switch: SaleState, now_ms: u64) -> Self {
        let sale = &stored.sale;
        let status = SaleStatus::new(switch.max(sale.state), sale, now_ms);
        let state = match status.state {
            // Gateways do not serve the sale yet.
            Stage::Running | Stage::SoldOut if stored.warmed_at_ms.is_none() => Stage::Scheduled,
            state => state,
        };
        Self {
            id: sale.id.clone(),
            title: stored.fields.title.clone(),
            sku: stored.fields.sku.clone(),
            price: stored.fields.price,
            state,
            starts_at_ms: sale.starts_at_ms,
            ends_at_ms: sale.ends_at_ms,
            remaining: status.remaining,
            user_cap: sale.user_cap,
            reservation: stored.fields.reservation.filter(|_| status.reservation),
            token: sale.token,
        }
    }
}

/// The last result of SQL.
#[derive(Debug)]
struct CachedList {
    at: Instant,
    switch: SaleState,
    /// Sorted by start time.
    sales: Vec<StoredSale>,
}

/// The listed sales. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Listing {
    store: SaleStore,
    observed: Arc<Mutex<Option<Arc<CachedList>>>>,
}

impl Listing {
    pub(super) fn new(store: SaleStore) -> Self {
        Self {
            store,
            observed: Arc::default(),
        }
    }

    /// Returns up to `limit` sales that match `filter`, sorted by start time and id, after the sale with start time
    /// `after.0` and id `after.1`. Also returns whether there are more.
    ///
    /// # Errors
    /// When SQL has not answered for a while.
    pub async fn page(
        &self,
        filter: ListFilter<'_>,
        after: Option<(u64, &SaleId)>,
        limit: usize,
        now_ms: u64,
    ) -> Result<(Vec<PublicSale>, bool), SqlError> {
        let observed = self.cached_list().await?;
        let is_shown = |stored: &&StoredSale| {
            after.is_none_or(|after| after < place_of(stored)) && filter.fits(&stored.sale)
        };
        let mut displayed = observed.sales.iter().filter(is_shown);
        let page = displayed.by_ref().take(limit);
        let page = page.map(|stored| PublicSale::new(stored, observed.switch, now_ms));
        let page = page.collect();
        Ok((page, displayed.next().is_some()))
    }

    async fn cached_list(&self) -> Result<Arc<CachedList>, SqlError> {
        // Concurrent callers wait for one query.
        let mut existing = self.observed.lock().await;
        let age = existing.as_ref().map(|observed| observed.at.elapsed());
        if let Some(observed) = existing.as_ref().filter(|_| age < Some(FRESH_FOR)) {
            return Ok(Arc::clone(observed));
        }
        match self.ask().await {
            Ok(observed) => Ok(Arc::clone(existing.insert(Arc::new(observed)))),
            Err(error) => match existing.as_ref().filter(|_| age < Some(STALE_FOR)) {
                Some(observed) => Ok(Arc::clone(observed)),
                None => Err(error),
            },
        }
    }

    async fn ask(&self) -> Result<CachedList, SqlError> {
        let at = Instant::now();
        Ok(CachedList {
            at,
            switch: self.store.global_switch().await?,
            sales: self.store.listed(ended_after_ms(), LISTED_MAX).await?,
        })
    }
}

/// Sort key of a sale in the list.
fn place_of(stored: &StoredSale) -> (u64, &SaleId) {
    (stored.sale.starts_at_ms, &stored.sale.id)
}
