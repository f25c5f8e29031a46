//! Browse history: the products that a user viewed last, in Redis, in SQL and in the cold store.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes, and the page of recently viewed products |
//! | [`record`] | records views from the event group |
//! | [`read`] | lists and counts |
//! | [`remove`] | deletes and clears, in SQL and then in Redis |
//! | [`marks`] | detects that Redis has lost views |
//! | [`join`] | merges a guest's views into a user's list |
//! | [`jobs`] | copies lists from Redis to the cold store, and deletes expired data |
//! | [`hot`] | lists in Redis |
//! | [`model`] | plain types: products, switches, the cold store interface |
//! | `cql` | a cold store in Cassandra (feature `cql`) |
//! | [`store`] | the SQL store: removals, progress of folds, products, and a cold store |
//! | [`products`] | product data: a service or the table, and a cache |
//! | [`metrics`], [`config`] | metrics; flags and settings |
//!
//! SQL stores removals before Redis does. A list that is missing in Redis loads them from SQL before it is shown, so a
//! Redis that lost its data never shows removed views.

#![forbid(unsafe_code)]

pub mod config;
#[cfg(feature = "cql")]
pub mod cql;
pub mod hot;
pub mod http;
pub mod jobs;
pub mod join;
pub mod marks;
pub mod metrics;
pub mod model;
pub mod products;
pub mod read;
pub mod record;
pub mod remove;
pub mod store;
pub mod switches;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use hot::HotLists;
use metrics::HistoryMetrics;
use model::cold::ColdStore;
use model::products::{ProductChange, ProductSource};
use products::Products;
use store::HistoryStore;
use switches::Switches;
use weir_origin_core::redis::Redis;
use weir_origin_core::sql::{Database, SqlError};

pub use config::Settings;
pub use record::{Outcome, View};

/// SQL migrations of browse history.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "history",
    (1, "baseline", "0001_baseline"),
    (2, "product changes", "0002_product_changes"),
    (3, "switches", "0003_switches"),
);

/// All parts of browse history. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct History(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    hot: HotLists,
    cold: Arc<dyn ColdStore>,
    store: HistoryStore,
    products: Products,
    settings: Settings,
    switches: Switches,
    metrics: HistoryMetrics,
    day_starts: marks::DayStarts,
}

impl History {
    /// Creates history on this Redis and this database. The database is also the cold store and the product table,
    /// unless the settings name others.
    pub fn new(
        settings: Settings,
        database: Database,
        redis: Redis,
        metrics: HistoryMetrics,
    ) -> Self {
        let store = HistoryStore::new(database, settings.clock.clone());
        let cold = settings.cold.clone();
        let cold = cold.unwrap_or_else(|| Arc::new(store.clone()));
        let source = settings.product_service.clone();
        let source = source.unwrap_or_else(|| Arc::new(store.clone()) as Arc<dyn ProductSource>);
        Self(Arc::new(Parts {
            hot: HotLists::new(redis, settings.bounds),
            cold,
            products: Products::new(source, settings.products, settings.clock.clone()),
            switches: Switches::from_settings(&settings),
            store,
            settings,
            metrics,
            day_starts: marks::DayStarts::default(),
        }))
    }

    /// Starts the background jobs, which run until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            tokio::spawn(self.clone().run_applying(stop.clone())),
            tokio::spawn(self.clone().run_folding(stop.clone())),
            tokio::spawn(self.clone().run_following_switches(stop.clone())),
            tokio::spawn(hot::watch_listpacks(self.0.hot.clone(), stop.clone())),
        ]
    }

    /// The SQL store: removals, progress of folds, products.
    pub fn store(&self) -> &HistoryStore {
        &self.0.store
    }

    /// The lists in Redis.
    pub fn hot(&self) -> &HotLists {
        &self.0.hot
    }

    /// The lists in the cold store.
    pub fn cold(&self) -> &dyn ColdStore {
        &*self.0.cold
    }

    /// Product data.
    pub fn products(&self) -> &Products {
        &self.0.products
    }

    /// Applies product changes to the table, and drops these products from the cache. Returns false for each change
    /// that is outdated. With a product service it only clears the cache, and returns true for all.
    ///
    /// # Errors
    /// If a SQL call fails; then nothing is applied.
    pub async fn change_products(&self, changes: &[ProductChange]) -> Result<Vec<bool>, SqlError> {
        let applied = match self.0.settings.product_service {
            Some(_) => vec![true; changes.len()],
            None => self.store().change_products(changes).await?,
        };
        let skus: Vec<_> = changes.iter().map(|change| change.sku.clone()).collect();
        self.products().forget(&skus);
        Ok(applied)
    }

    /// The current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.0.settings.clock)()
    }
}
