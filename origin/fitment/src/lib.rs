//! Vehicle fitment: which parts fit which vehicles, in SQL and in Redis.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the routes that gateways fall back to, garages, the admin routes, and the page of the console |
//! | [`answer`] | answers what Redis does not know from SQL, and writes it to Redis |
//! | [`jobs`] | has Redis follow SQL: what changed, or all of it; the map of vehicles; what SQL does not have |
//! | [`verify`] | compares Redis with SQL in bounded steps, and mends |
//! | [`import`] | reads files of vehicles, products and relations |
//! | [`store`] | SQL, which is the truth |
//! | [`metrics`], [`config`] | what is counted, what can be configured |
//!
//! A change is in SQL before it is in Redis, with a version that grows; a version that is older than what Redis has changes nothing
//! there. So writing twice, writing late and two origins do no harm.

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

/// The tables of fitment.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "fitment",
    (1, "baseline", "0001_baseline"),
    (2, "strict imports", "0002_strict_imports"),
    (3, "product changes", "0003_product_changes"),
);

/// Everything about fitment, put together. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Fitment(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: FitmentStore,
    home: Redis,
    settings: Settings,
    metrics: FitmentMetrics,
    /// Questions that read SQL now.
    fallbacks: Semaphore,
}

impl Fitment {
    /// Fitment in this database and this Redis, which is the cluster `home`, and in those that the settings name.
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

    /// Starts what runs in the background until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        vec![
            tokio::spawn(self.clone().run_publishing(stop.clone())),
            tokio::spawn(self.clone().run_mapping(stop.clone())),
            tokio::spawn(self.clone().run_verifying(stop.clone())),
            tokio::spawn(self.clone().run_sweeping(stop.clone())),
            tokio::spawn(self.clone().run_imports(stop.clone())),
        ]
    }

    /// SQL.
    pub fn store(&self) -> &FitmentStore {
        &self.0.store
    }

    /// Now.
    pub fn now_ms(&self) -> u64 {
        (self.0.settings.clock)()
    }

    /// Applies changes of products from the system that owns them.
    ///
    /// # Errors
    /// When SQL does not answer: nothing is applied.
    pub async fn change_products(
        &self,
        changes: &[ProductChange],
    ) -> Result<Vec<ChangeOutcome>, SqlError> {
        let place = |product: &Product| self.place(product);
        self.store().change_products(changes, &place).await
    }

    /// Where a product is in Redis.
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

    /// The Redis of that name. The rules name only those that there are.
    fn redis(&self, cluster: &Cluster) -> &Redis {
        self.known_redis(cluster).unwrap_or(&self.0.home)
    }

    /// The same, unless the configuration has it no longer.
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
