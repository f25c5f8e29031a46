//! Configuration of browse history.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use weir_history::{HOT_MS, VIEWS_MAX};

use super::model::cold::ColdStore;
use super::model::products::ProductSource;
use super::products::{ProductLimits, ProductService};
use weir_origin_core::clock::{Clock, now_ms};

/// The flags of browse history.
#[derive(Clone, Args)]
pub struct HistoryConfig {
    /// Enable browse history: lists of the products that each user viewed last
    #[arg(long, env = "WEIR_HISTORY")]
    pub history: bool,

    /// Complete lists from the cold store when Redis has only a part of them
    #[arg(long, env = "WEIR_HISTORY_COLD_READS", default_value_t = true, action = ArgAction::Set)]
    pub history_cold_reads: bool,

    /// Cold store for lists that Redis has evicted: cql://HOST:PORT,HOST:PORT/KEYSPACE. Unset: the SQL database
    #[arg(
        long,
        env = "WEIR_HISTORY_COLD",
        value_name = "URL",
        hide_env_values = true
    )]
    pub history_cold: Option<String>,

    /// Cache counts in Redis until the list changes
    #[arg(long, env = "WEIR_HISTORY_COUNT_CACHE", default_value_t = true, action = ArgAction::Set)]
    pub history_count_cache: bool,

    /// Product service: POST {skus}, answer {products}; https:// or http://. Unset: the origin's own table
    #[arg(long, env = "WEIR_PRODUCTS_URL")]
    pub products_url: Option<String>,

    /// PEM file with the CA of the product service; unset: the system's CAs
    #[arg(long, env = "WEIR_PRODUCTS_CA", requires = "products_url")]
    pub products_ca: Option<PathBuf>,

    /// Maximum products per request to the product service
    #[arg(long, env = "WEIR_PRODUCTS_BATCH", default_value_t = ProductLimits::default().batch)]
    pub products_batch: usize,

    /// Maximum products in the cache
    #[arg(long, env = "WEIR_PRODUCTS_CACHE", default_value_t = ProductLimits::default().cached_max)]
    pub products_cache: usize,

    /// Lifetime of a cached product, in seconds
    #[arg(long, env = "WEIR_PRODUCTS_CACHE_S", default_value_t = ProductLimits::default().life.as_secs())]
    pub products_cache_s: u64,
}

impl HistoryConfig {
    /// Converts the flags into settings; `None` if history is off.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn settings(&self) -> Result<Option<Settings>> {
        if !self.history {
            return Ok(None);
        }
        let mut settings = Settings {
            has_cold_reads: self.history_cold_reads,
            has_count_cache: self.history_count_cache,
            products: ProductLimits {
                batch: self.products_batch.max(1),
                cached_max: self.products_cache,
                life: Duration::from_secs(self.products_cache_s),
            },
            ..Settings::default()
        };
        if let Some(url) = &self.history_cold {
            settings.cold = Some(cold_store(url).context("--history-cold")?);
        }
        if let Some(url) = &self.products_url {
            let service = ProductService::new(url, self.products_ca.as_deref());
            let service = service.context("--products-url, --products-ca")?;
            settings.product_service = Some(Arc::new(service));
        }
        Ok(Some(settings))
    }
}

#[cfg(feature = "cql")]
fn cold_store(url: &str) -> Result<Arc<dyn ColdStore>> {
    let store = super::cql::CqlStore::open(url, Arc::new(now_ms))?;
    Ok(Arc::new(store))
}

/// Errors do not show the URL, because it may contain a password.
#[cfg(not(feature = "cql"))]
fn cold_store(_: &str) -> Result<Arc<dyn ColdStore>> {
    anyhow::bail!(
        "this weir-origin was built without CQL; build it with cargo build --features cql"
    )
}

/// Size of lists, and their lifetime in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of views in a list; at most [`VIEWS_MAX`].
    pub views_max: usize,
    /// Lifetime of a list in Redis after its last change, in milliseconds.
    pub hot_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            views_max: VIEWS_MAX,
            hot_ms: HOT_MS,
        }
    }
}

/// Settings of browse history.
#[derive(Clone)]
pub struct Settings {
    /// Size and lifetime of lists.
    pub bounds: Bounds,
    /// Whether lists are completed from the cold store.
    pub has_cold_reads: bool,
    /// Whether counts are cached in Redis.
    pub has_count_cache: bool,
    /// The cold store; `None`: the SQL database.
    pub cold: Option<Arc<dyn ColdStore>>,
    /// The product service; `None`: the origin's own table.
    pub product_service: Option<Arc<dyn ProductSource>>,
    /// Batch size and cache size of product lookups.
    pub products: ProductLimits,
    /// Reads the clock.
    pub clock: Clock,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("bounds", &self.bounds)
            .field("has_cold_reads", &self.has_cold_reads)
            .field("has_count_cache", &self.has_count_cache)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            has_cold_reads: true,
            has_count_cache: true,
            cold: None,
            product_service: None,
            products: ProductLimits::default(),
            clock: Arc::new(now_ms),
        }
    }
}
