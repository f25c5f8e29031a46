//! Product data: the product (SPU) of each variant, and what to display. The source is a service or the origin's own
//! table. A bounded cache stores results for a limited time, including unknown products.

mod cache;
mod service;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;
use weir_history::Sku;

use crate::model::products::{Product, ProductSource};
use cache::Cache;
pub use service::ProductService;
use weir_origin_core::clock::Clock;

/// Batch size and cache size of product lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductLimits {
    /// Products per request.
    pub batch: usize,
    /// Maximum number of cached products.
    pub cached_max: usize,
    /// Lifetime of a cached product.
    pub life: Duration,
}

impl Default for ProductLimits {
    fn default() -> Self {
        Self {
            batch: 100,
            cached_max: 100_000,
            life: Duration::from_secs(300),
        }
    }
}

/// Result of a lookup, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductLookup {
    /// `None`: the product is unknown, or its source is unavailable.
    pub products: Vec<Option<Product>>,
    /// Whether the source responded.
    pub is_complete: bool,
}

/// Products from the cache or their source. Clones are cheap and share the cache.
#[derive(Clone)]
pub struct Products {
    source: Arc<dyn ProductSource>,
    cache: Arc<Mutex<Cache>>,
    limits: ProductLimits,
    /// The current batch size.
    batch: Arc<AtomicUsize>,
    clock: Clock,
}

impl std::fmt::Debug for Products {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Products")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Products {
    /// Creates a lookup on this source.
    pub fn new(source: Arc<dyn ProductSource>, limits: ProductLimits, clock: Clock) -> Self {
        let life_ms = u64::try_from(limits.life.as_millis()).unwrap_or(u64::MAX);
        let cache = Cache::new(limits.cached_max, life_ms);
        Self {
            source,
            cache: Arc::new(Mutex::new(cache)),
            batch: Arc::new(AtomicUsize::new(limits.batch)),
            limits,
            clock,
        }
    }

    /// Looks up products.
    pub async fn find(&self, skus: &[Sku]) -> ProductLookup {
        let now_ms = (self.clock)();
        let mut existing: HashMap<&Sku, Option<Product>> = HashMap::new();
        let mut missing = Vec::new();
        for sku in skus {
            match self.cache().get(sku, now_ms) {
                Some(product) => drop(existing.insert(sku, product)),
                None => missing.push(sku.clone()),
            }
        }
        let (found, is_complete) = self.ask(&missing, now_ms).await;
        let product = |sku| match existing.get(sku) {
            Some(product) => product.clone(),
            None => found.get(sku).cloned(),
        };
        ProductLookup {
            products: skus.iter().map(product).collect(),
            is_complete,
        }
    }

    /// Queries the source in batches and caches the results. Stops at the first batch that fails.
    async fn ask(&self, skus: &[Sku], now_ms: u64) -> (HashMap<Sku, Product>, bool) {
        let mut all = HashMap::new();
        for batch in skus.chunks(self.batch().max(1)) {
            let found: HashMap<Sku, Product> = match self.source.find(batch).await {
                Ok(found) => found.into_iter().collect(),
                Err(error) => {
                    warn!(%error, "list answered without its products");
                    return (all, false);
                }
            };
            for sku in batch {
                let product = found.get(sku).cloned();
                self.cache().put(sku.clone(), product.clone(), now_ms);
                all.extend(product.map(|product| (sku.clone(), product)));
            }
        }
        (all, true)
    }

    /// Number of products per request.
    pub fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// Sets the number of products per request; `None`: as in the settings.
    pub fn set_batch(&self, batch: Option<usize>) {
        let batch = batch.unwrap_or(self.limits.batch);
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Drops changed products from the cache.
    pub fn forget(&self, skus: &[Sku]) {
        skus.iter().for_each(|sku| self.cache().remove(sku));
    }

    /// The cache is consistent even after a panic: each change is one step.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
