//! Browse history: which products a user has seen last, in Redis, in SQL and in the cold store.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes, and the page of products that were seen last |
//! | [`record`] | notes views, as the group of events gives them |
//! | [`read`] | lists and counts |
//! | [`remove`] | deletes, clears, and has Redis follow |
//! | [`marks`] | notices that Redis has lost views |
//! | [`join`] | a guest's views become a user's |
//! | [`jobs`] | copies lists of Redis to the cold store, and forgets what is too old |
//! | [`hot`] | lists in Redis |
//! | [`model`] | plain types: products, switches, what a cold store is |
//! | `cql` | one in Cassandra (feature `cql`) |
//! | [`store`] | SQL: what was removed, how far folds are, products, and a cold store |
//! | [`products`] | what is known of products: a service or the table, and a cache |
//! | [`metrics`], [`config`] | what is counted, what can be configured |
//!
//! Removals are in SQL before they are in Redis, so a Redis that lost its data never shows what was removed: a list that
//! Redis does not know is loaded from SQL before it is shown.

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

/// The tables of browse history.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "history",
    (1, "baseline", "0001_baseline"),
    (2, "product changes", "0002_product_changes"),
    (3, "switches", "0003_switches"),
);

/// Everything about browse history, put together. Cloning it is cheap.
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
    begins: marks::DayStarts,
}

impl History {
    /// History in this Redis and this database, which is its cold store and has its products unless the settings name
    /// others.
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
            begins: marks::DayStarts::default(),
        }))
    }

    /// Starts what runs in the background until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            tokio::spawn(self.clone().run_applying(stop.clone())),
            tokio::spawn(self.clone().run_folding(stop.clone())),
            tokio::spawn(self.clone().run_following_switches(stop.clone())),
            tokio::spawn(hot::watch_listpacks(self.0.hot.clone(), stop.clone())),
        ]
    }

    /// What was removed, how far folds are, products.
    pub fn store(&self) -> &HistoryStore {
        &self.0.store
    }

    /// Lists in Redis.
    pub fn hot(&self) -> &HotLists {
        &self.0.hot
    }

    /// Lists on disk.
    pub fn cold(&self) -> &dyn ColdStore {
        &*self.0.cold
    }

    /// What is known of products.
    pub fn products(&self) -> &Products {
        &self.0.products
    }

    /// Applies changes of products to the table, and drops these products from the cache. False: this change or a later one was
    /// applied before. With a product service only the cache follows, and all are true.
    ///
    /// # Errors
    /// When SQL does not answer: nothing is applied.
    pub async fn change_products(&self, changes: &[ProductChange]) -> Result<Vec<bool>, SqlError> {
        let applied = match self.0.settings.product_service {
            Some(_) => vec![true; changes.len()],
            None => self.store().change_products(changes).await?,
        };
        let skus: Vec<_> = changes.iter().map(|change| change.sku.clone()).collect();
        self.products().forget(&skus);
        Ok(applied)
    }

    /// Now.
    pub fn now_ms(&self) -> u64 {
        (self.0.settings.clock)()
    }
}
