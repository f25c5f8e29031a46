//! What is known of products: which of them are variants of one (SPU), and what to show. A service tells, or the origin's own
//! table; an origin remembers a bounded number of them, for a while, also that a product is unknown.

mod cache;
mod service;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;
use weir_history::Sku;

use super::config::Clock;
use cache::Cache;
pub use service::ProductService;

/// What is known of a product.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// The product that it is a variant of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 64)]
    pub spu: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 512)]
    pub title: Option<String>,
    /// Where its picture is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 2048)]
    pub picture: Option<String>,
}

/// The longest texts, in characters: as many as the table takes.
const SPU_LEN_MAX: usize = 64;
const TITLE_LEN_MAX: usize = 512;
const PICTURE_LEN_MAX: usize = 2_048;

impl Product {
    /// Checks a product for the table.
    ///
    /// # Errors
    /// Names the member that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let is_ascii = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let at_most = |text: &Option<String>, max, name: &str| match text {
            Some(text) if text.is_empty() || text.chars().count() > max => {
                Err(format!("{name}: must have 1 to {max} characters"))
            }
            _ => Ok(()),
        };
        at_most(&self.spu, SPU_LEN_MAX, "spu")?;
        at_most(&self.title, TITLE_LEN_MAX, "title")?;
        at_most(&self.picture, PICTURE_LEN_MAX, "picture")?;
        if self.spu.as_deref().is_some_and(|spu| !is_ascii(spu)) {
            return Err("spu: must be visible ASCII".to_owned());
        }
        let is_url = |picture: &str| {
            let is_web = ["https://", "http://", "/"]
                .iter()
                .any(|start| picture.starts_with(start));
            is_web && is_ascii(picture)
        };
        match self.picture.as_deref() {
            Some(picture) if !is_url(picture) => {
                Err("picture: must be a URL of http, https, or a path".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The same, with the members of another one where it has none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            spu: self.spu.or(other.spu),
            title: self.title.or(other.title),
            picture: self.picture.or(other.picture),
        }
    }
}

/// A change of a product, from the system that owns it. Missing members stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductChange {
    /// Which SKU.
    pub sku: Sku,
    /// Grows with each change of the SKU.
    pub version: u64,
    /// What is new.
    pub product: Product,
}

/// A product that a source knows.
pub type Found = (Sku, Product);

/// A source does not answer at once.
pub type ProductFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Found>, SourceError>> + Send + 'a>>;

/// A source did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("products: {0}")]
pub struct SourceError(pub String);

/// Where products are known.
pub trait ProductSource: Send + Sync {
    /// What it knows of these; of those that it does not know, nothing.
    fn find<'a>(&'a self, skus: &'a [Sku]) -> ProductFuture<'a>;
}

/// How many products are asked for at once, and remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductLimits {
    /// Products of one question.
    pub batch: usize,
    /// Products that are remembered.
    pub cached_max: usize,
    /// For how long.
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

/// What was asked for, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// `None`: the product is unknown, or its source did not answer.
    pub products: Vec<Option<Product>>,
    /// Whether the source answered.
    pub is_complete: bool,
}

/// Products, as far as they are remembered or their source knows. Cloning it is cheap: clones remember the same.
#[derive(Clone)]
pub struct Products {
    source: Arc<dyn ProductSource>,
    cache: Arc<Mutex<Cache>>,
    limits: ProductLimits,
    /// Products of one question, as it is now.
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
    /// Products of this source.
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

    /// What is known of these products.
    pub async fn find(&self, skus: &[Sku]) -> Known {
        let now_ms = (self.clock)();
        let mut known: HashMap<&Sku, Option<Product>> = HashMap::new();
        let mut missing = Vec::new();
        for sku in skus {
            match self.cache().get(sku, now_ms) {
                Some(product) => drop(known.insert(sku, product)),
                None => missing.push(sku.clone()),
            }
        }
        let (found, is_complete) = self.ask(&missing, now_ms).await;
        let product = |sku| match known.get(sku) {
            Some(product) => product.clone(),
            None => found.get(sku).cloned(),
        };
        Known {
            products: skus.iter().map(product).collect(),
            is_complete,
        }
    }

    /// Asks the source, in batches, and remembers what it says. Stops at the first batch that is not answered.
    async fn ask(&self, skus: &[Sku], now_ms: u64) -> (HashMap<Sku, Product>, bool) {
        let mut all = HashMap::new();
        for batch in skus.chunks(self.batch().max(1)) {
            let found: HashMap<Sku, Product> = match self.source.find(batch).await {
                Ok(found) => found.into_iter().collect(),
                Err(error) => {
                    warn!(%error, "a list is shown without its products");
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

    /// How many products are asked for at once.
    pub fn batch(&self) -> usize {
        self.batch.load(Ordering::Relaxed)
    }

    /// Asks for so many products at once from now on; `None`: as many as the settings say.
    pub fn set_batch(&self, batch: Option<usize>) {
        let batch = batch.unwrap_or(self.limits.batch);
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Forgets what is remembered of these: they have changed.
    pub fn forget(&self, skus: &[Sku]) {
        skus.iter().for_each(|sku| self.cache().remove(sku));
    }

    /// What a thread that panicked has left is whole: each change is one step.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
