//! Vehicle fitment: which parts fit which vehicles, in SQL and in Redis.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the routes that gateways fall back to, garages, the admin routes, and the page of the console |
//! | [`answer`] | answers from SQL if Redis cannot, and writes the result to Redis |
//! | [`jobs`] | updates Redis from SQL: changes, rebuilds, the vehicle map, removal of stale data |
//! | [`verify`] | compares Redis with SQL in bounded steps, and repairs differences |
//! | [`import`] | reads files of vehicles, products and relations |
//! | [`store`] | the SQL store, the source of truth |
//! | [`metrics`], [`config`] | metrics; flags and settings |
//!
//! Each change gets an increasing version and is stored in SQL before Redis. Redis ignores a version older than its
//! own. Repeated writes, late writes and concurrent origins are therefore harmless.

#![forbid(unsafe_code)]

pub mod answer;
pub mod config;
pub mod http;
pub mod import;
pub mod jobs;
pub mod metrics;
pub mod store;
pub mod verify;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_fitment::{Cluster, Placement};

use metrics::FitmentMetrics;
use store::{ChangeOutcome, FitmentStore, Product, ProductChange};
use weir_origin_core::redis::Redis;
use weir_origin_core::sql::{Database, SqlError};

pub use config::Settings;

/// SQL migrations of fitment.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "fitment",
    (1, "baseline", "0001_baseline"),
    (2, "strict imports", "0002_strict_imports"),
    (3, "product changes", "0003_product_changes"),
);

/// All parts of fitment. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Fitment(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: FitmentStore,
    home: Redis,
    settings: Settings,
    metrics: FitmentMetrics,
    /// Limits concurrent queries that read SQL.
    fallbacks: Semaphore,
}

impl Fitment {
    /// Creates fitment with this database, this Redis as the cluster `home`, and the clusters in the settings.
    pub fn new(
        mut settings: Settings,
        database: Database,
        redis: Redis,
        metrics: FitmentMetrics,
    ) -> Self {
        for (_, cluster) in &mut settings.clusters {
            *cluster = cluster.clone().with_refusals(redis.refusals().clone());
        }
        Self(Arc::new(Parts {
            store: FitmentStore::new(database, settings.clock.clone()),
            home: redis,
            fallbacks: Semaphore::new(settings.fallbacks_max),
            settings,
            metrics,
        }))
    }

    /// Starts the background jobs, which run until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            tokio::spawn(self.clone().run_publishing(stop.clone())),
            tokio::spawn(self.clone().run_mapping(stop.clone())),
            tokio::spawn(self.clone().run_verifying(stop.clone())),
            tokio::spawn(self.clone().run_sweeping(stop.clone())),
            tokio::spawn(self.clone().run_imports(stop.clone())),
        ]
    }

    /// The SQL store.
    pub fn store(&self) -> &FitmentStore {
        &self.0.store
    }

    /// The current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.0.settings.clock)()
    }

    /// Applies product changes from the upstream system.
    ///
    /// # Errors
    /// If a SQL call fails; then nothing is applied.
    pub async fn change_products(
        &self,
        changes: &[ProductChange],
    ) -> Result<Vec<ChangeOutcome>, SqlError> {
        let place = |product: &Product| self.place(product);
        self.store().change_products(changes, &place).await
    }

    /// The place of a product in Redis.
    pub fn place(&self, product: &Product) -> Placement {
        Placement {
            cluster: self
                .0
                .settings
                .rules
                .cluster(&product.product_type, &product.merchant),
            spu: product.spu.clone(),
        }
    }

    /// The Redis with this name. Rules only name configured clusters.
    fn redis(&self, cluster: &Cluster) -> &Redis {
        self.known_redis(cluster).unwrap_or(&self.0.home)
    }

    /// The Redis with this name; `None` if it is no longer configured.
    fn known_redis(&self, cluster: &Cluster) -> Option<&Redis> {
        if cluster.as_str() == Cluster::HOME {
            return Some(&self.0.home);
        }
        let mut all = self.0.settings.clusters.iter();
        all.find_map(|(name, redis)| (name == cluster).then_some(redis))
    }

    fn clusters(&self) -> Vec<(&str, &Redis)> {
        let others = self.0.settings.clusters.iter();
        let others = others.map(|(name, redis)| (name.as_str(), redis));
        std::iter::once((Cluster::HOME, &self.0.home))
            .chain(others)
            .collect()
    }
}
