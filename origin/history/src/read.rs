//! Lists and counts.
//!
//! Redis has the lists of owners active within the last four days. A missing list is loaded: removals from SQL, older
//! views from the cold store; then it is stored in Redis. Unavailable sources are left out, and the answer contains
//! `complete: false`. Views are never shown unless their removals are known.

use ring::rand::{SecureRandom, SystemRandom};
use tracing::warn;
use weir_history::list::{self, ListCursor, merge};
use weir_history::redis::history::List;
use weir_history::redis::history_read::CountReply;
use weir_history::{LoadedLists, Owner, Removals, VIEWS_MAX, ViewedProduct, oldest_ms};

use super::History;
use super::model::products::Product;
use weir_origin_core::unavailable::Unavailable;

/// Maximum attempts to load a list that Redis keeps losing.
const ATTEMPTS: usize = 3;

/// An owner's views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Views {
    /// The views, newest first.
    pub views: Vec<ViewedProduct>,
    /// Whether the list is complete.
    pub is_complete: bool,
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The product and the time of the view.
    pub observed: ViewedProduct,
    /// Product data.
    pub product: Product,
}

/// A part of an owner's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its items, newest first.
    pub items: Vec<Item>,
    /// Whether the list is complete.
    pub is_complete: bool,
    /// Whether there are more.
    pub has_more: bool,
}

/// The length of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of products.
    pub count: u64,
    /// Whether the list is complete.
    pub is_complete: bool,
}

impl History {
    /// Reads an owner's views from all sources.
    ///
    /// # Errors
    /// If both Redis and SQL are unavailable.
    pub async fn views(&self, owner: &Owner) -> Result<Views, Unavailable> {
        match self.0.hot.read(owner).await {
            Ok(list) => self.loaded(owner, list).await,
            Err(error) => {
                warn!(%error, "cannot read history from Redis; using the cold store only");
                self.views_without_redis(owner).await
            }
        }
    }

    /// Whether the list in Redis is complete.
    fn is_loaded(&self, list: &List) -> bool {
        let is_full = list.views.len() >= self.0.settings.bounds.views_max;
        match list.loaded {
            LoadedLists::Nothing => false,
            LoadedLists::Removals => is_full || !self.0.switches.has_cold_reads(),
            LoadedLists::All => true,
        }
    }

    /// The list from Redis, completed if necessary.
    async fn loaded(&self, owner: &Owner, list: List) -> Result<Views, Unavailable> {
        match self.is_loaded(&list) {
            true => Ok(self.unexpired(list.views, true)),
            false => self.load(owner, list).await,
        }
    }

    /// Completes a list. Starts again if Redis loses the list meanwhile.
    async fn load(&self, owner: &Owner, mut list: List) -> Result<Views, Unavailable> {
        for _ in 1..ATTEMPTS {
            match self.try_load(owner, list).await? {
                Ok(views) => return Ok(views),
                Err(lost) => list = lost,
            }
        }
        let views = self.try_load(owner, list).await?;
        // Redis keeps losing the list, so an incomplete answer is the best available.
        views.or_else(|_| Ok(self.unexpired(Vec::new(), false)))
    }

    /// The loaded list; or the list in Redis, if Redis lost it during the load.
    async fn try_load(
        &self,
        owner: &Owner,
        list: List,
    ) -> Result<Result<Views, List>, Unavailable> {
        let removals = match self.0.store.removed().removals(owner).await {
            Ok(removals) => removals,
            Err(error) => {
                warn!(%error, "cannot load a list");
                // Without removals from any source, show nothing. If Redis has applied them, show its views.
                let views = match list.loaded {
                    LoadedLists::Nothing => Vec::new(),
                    LoadedLists::Removals | LoadedLists::All => list.views,
                };
                return Ok(Ok(self.unexpired(views, false)));
            }
        };
        let (cold, is_complete) = self.cold_views(owner).await;
        let generation = Some(list.generation.as_str());
        let (hot, cold_views) = (&self.0.hot, cold.as_deref());
        let filled = hot.fill(owner, generation, &removals, cold_views).await;
        self.0.metrics.loaded.inc();
        match filled {
            Ok(list) if list.loaded == LoadedLists::Nothing => Ok(Err(hot.read(owner).await?)),
            Ok(list) => Ok(Ok(self.unexpired(list.views, is_complete))),
            Err(error) => {
                warn!(%error, "cannot write a loaded list to Redis");
                let views = list.views.into_iter().chain(cold.unwrap_or_default());
                Ok(Ok(self.merged(views, &removals, is_complete)))
            }
        }
    }

    /// The views in the cold store; `None` if it is off or unavailable. Also whether they are complete.
    async fn cold_views(&self, owner: &Owner) -> (Option<Vec<ViewedProduct>>, bool) {
        if !self.0.switches.has_cold_reads() {
            return (None, true);
        }
        match self.0.cold.read(owner).await {
            Ok(stored) => (Some(stored.views), true),
            Err(error) => {
                warn!(%error, "list answered without the cold store");
                (None, false)
            }
        }
    }

    async fn views_without_redis(&self, owner: &Owner) -> Result<Views, Unavailable> {
        let removals = self.0.store.removed().removals(owner).await?;
        let (cold, _) = self.cold_views(owner).await;
        Ok(self.merged(cold.unwrap_or_default(), &removals, false))
    }

    fn merged(
        &self,
        views: impl IntoIterator<Item = ViewedProduct>,
        removals: &Removals,
        is_complete: bool,
    ) -> Views {
        let oldest_ms = oldest_ms(self.now_ms());
        let views = merge(views, removals, oldest_ms, self.0.settings.bounds.views_max);
        Views { views, is_complete }
    }

    /// Drops expired views.
    fn unexpired(&self, mut views: Vec<ViewedProduct>, is_complete: bool) -> Views {
        let oldest_ms = oldest_ms(self.now_ms());
        views.retain(|observed| observed.at_ms > oldest_ms);
        Views { views, is_complete }
    }

    /// A page of an owner's list: at most `limit` items, after `place` or from the newest.
    ///
    /// # Errors
    /// If both Redis and SQL are unavailable.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        place: Option<&ListCursor>,
    ) -> Result<Page, Unavailable> {
        let views = self.views(owner).await?;
        let (items, is_complete) = self.items(views).await;
        let is_after = |item: &Item| place.is_none_or(|place| place.is_before(&item.observed));
        let mut items: Vec<Item> = items.into_iter().filter(is_after).collect();
        let has_more = items.len() > limit;
        items.truncate(limit);
        self.note_completeness(is_complete);
        Ok(Page {
            items,
            is_complete,
            has_more,
        })
    }

    /// The views with their product data, each product once with its last viewed variant. Without product data the
    /// views stay unchanged.
    async fn items(&self, views: Views) -> (Vec<Item>, bool) {
        let skus: Vec<_> = views
            .views
            .iter()
            .map(|observed| observed.sku.clone())
            .collect();
        let found = self.0.products.find(&skus).await;
        let item = |(observed, product): (ViewedProduct, Option<Product>)| Item {
            observed,
            product: product.unwrap_or_default(),
        };
        let items = views.views.into_iter().zip(found.products);
        let items: Vec<Item> = items.map(item).collect();
        let unique = list::unique_by(items, |item| item.product.spu.clone());
        (unique, views.is_complete && found.is_complete)
    }

    /// Number of products in an owner's list.
    ///
    /// # Errors
    /// If both Redis and SQL are unavailable.
    pub async fn count(&self, owner: &Owner) -> Result<Count, Unavailable> {
        let promise = match self.0.switches.has_count_cache() {
            true => random_name(),
            false => None,
        };
        let Some(promise) = promise else {
            let views = self.views(owner).await?;
            return Ok(self.counted(views).await);
        };
        let views = match self.0.hot.read_count(owner, &promise).await {
            Ok(CountReply::Known(count)) => {
                self.0.metrics.counted(true);
                let is_complete = true;
                return Ok(Count { count, is_complete });
            }
            Ok(CountReply::Unknown(list)) => self.count_views(owner, list, &promise).await?,
            Err(_) => self.views_without_redis(owner).await?,
        };
        let counted = self.counted(views).await;
        if counted.is_complete {
            self.keep_count(owner.clone(), promise, counted.count);
        }
        Ok(counted)
    }

    /// Like [`History::loaded`]. A load changes the list, which ends the promise, so it is made again.
    async fn count_views(
        &self,
        owner: &Owner,
        list: List,
        promise: &str,
    ) -> Result<Views, Unavailable> {
        let was_loaded = self.is_loaded(&list);
        let views = self.loaded(owner, list).await?;
        if views.is_complete && !was_loaded {
            return match self.0.hot.read_count(owner, promise).await {
                Ok(CountReply::Unknown(list)) => Ok(self.unexpired(list.views, true)),
                // Another request has counted meanwhile, or Redis is unavailable.
                Ok(CountReply::Known(_)) | Err(_) => Ok(views),
            };
        }
        Ok(views)
    }

    async fn counted(&self, views: Views) -> Count {
        let (items, is_complete) = self.items(views).await;
        self.0.metrics.counted(false);
        self.note_completeness(is_complete);
        Count {
            count: list::count(items.len(), VIEWS_MAX) as u64,
            is_complete,
        }
    }

    /// Caches the count in the background; no request waits for it.
    fn keep_count(&self, owner: Owner, promise: String, count: u64) {
        let hot = self.0.hot.clone();
        tokio::spawn(async move {
            if let Err(error) = hot.put_count(&owner, &promise, count).await {
                warn!(%error, "cannot cache a count in Redis");
            }
        });
    }

    fn note_completeness(&self, is_complete: bool) {
        if !is_complete {
            self.0.metrics.incomplete.inc();
        }
    }
}

/// `None` if the operating system provides no random numbers. Then the count is not cached.
fn random_name() -> Option<String> {
    let mut name = [0; 8];
    SystemRandom::new().fill(&mut name).ok()?;
    Some(hex::encode(name))
}
