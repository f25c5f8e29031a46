//! Weir's origin: sales and orders, thin behind the gateways.
//!
//! SQL is the truth, Redis the admission ledger in front of it. The origin makes sales, puts their
//! stock on Redis, tells gateways of them, and turns the claims that gateways grant into orders.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes, nothing that decides |
//! | [`orders`] | a claim becomes an order, or is released for good |
//! | [`warm`] | a sale's stock goes on Redis, once |
//! | [`jobs`] | unpaid orders expire, Redis follows, sales are warmed in time |
//! | [`risk`] | who has reserved is scored, and blocked |
//! | [`metrics`] | what is counted |
//! | [`status`] | what SQL and Redis hold of a sale, and whether it adds up |
//! | [`books`] | every term of the sum that must hold |
//! | [`reconcile`] | ends what lost replies and dead processes leave behind |
//! | [`rebuild`] | a shard that has lost its data is rebuilt from SQL |
//! | [`catalogue`] | publishes what gateways poll |
//! | [`store`] | SQL behind a trait |
//! | [`ledger`] | Redis, through Weir's scripts |
//! | [`links`] | short links: made, kept, found again; their clicks and QR codes |
//! | [`new_sale`] | which sales may be made |
//! | [`config`] | flags, environment, secrets |
//! | [`server`] | connections and their limits |
//! | [`run`](mod@run) | puts all of it together, and takes it down in order |
//!
//! What is absent: handlers hold no SQL and no Redis; [`store`] knows nothing of Redis and
//! [`ledger`] nothing of SQL, so that the order of steps between the two stands in [`orders`] and
//! [`warm`] alone.

#![forbid(unsafe_code)]

pub mod books;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod http;
pub mod jobs;
pub mod ledger;
pub mod links;
pub mod metrics;
pub mod new_sale;
pub mod orders;
pub mod problem;
pub mod rebuild;
pub mod reconcile;
mod redis_connection;
pub mod risk;
pub mod run;
pub mod server;
pub mod status;
pub mod store;
pub mod warm;

use std::sync::Arc;

use catalogue::Publisher;
use ledger::Ledger;
use links::Links;
use links::store::LinkStore;
use metrics::Metrics;
use orders::{Orders, SqlLimits};
use rebuild::Rebuilder;
use reconcile::Reconciler;
use store::Store;
use warm::Warmer;
use weir_base::key::KeyRing;

/// All that the routes need. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Origin {
    /// SQL.
    pub store: Arc<dyn Store>,
    /// Redis.
    pub ledger: Ledger,
    /// Turns claims into orders.
    pub orders: Orders,
    /// Puts stock on Redis.
    pub warmer: Warmer,
    /// Tells gateways of sales.
    pub publisher: Publisher,
    /// What gateways sign claims and users with.
    pub keys: Arc<KeyRing>,
    /// What is counted.
    pub metrics: Metrics,
    /// Short links, if it has any.
    pub links: Option<Links>,
}

impl Origin {
    /// An origin on this SQL and this Redis, which takes claims signed with one of `keys`.
    pub fn new(store: Arc<dyn Store>, ledger: Ledger, keys: KeyRing) -> Self {
        Self::with_limits(store, ledger, keys, SqlLimits::default())
    }

    /// The same, with limits of one's own on what SQL is given at once.
    pub fn with_limits(
        store: Arc<dyn Store>,
        ledger: Ledger,
        keys: KeyRing,
        limits: SqlLimits,
    ) -> Self {
        let metrics = Metrics::default();
        let publisher = Publisher::new(store.clone(), ledger.clone());
        Self {
            orders: Orders::new(store.clone(), ledger.clone(), metrics.clone(), limits),
            warmer: Warmer::new(store.clone(), ledger.clone(), publisher.clone()),
            publisher,
            keys: Arc::new(keys),
            metrics,
            links: None,
            store,
            ledger,
        }
    }

    /// The same, with short links.
    ///
    /// # Errors
    /// See [`links::OpenError`].
    pub async fn with_links(
        mut self,
        settings: links::Settings,
        store: Arc<dyn LinkStore>,
    ) -> Result<Self, links::OpenError> {
        let metrics = self.metrics.links.clone();
        let links = Links::open(settings, store, self.ledger.clone(), metrics).await?;
        self.links = Some(links);
        Ok(self)
    }

    /// What rebuilds shards that have lost their data.
    pub fn rebuilder(&self) -> Rebuilder {
        Rebuilder::new(self.store.clone(), self.ledger.clone())
    }

    /// What ends what was left behind; to be [run](Reconciler::run) once.
    pub fn reconciler(&self) -> Reconciler {
        Reconciler::new(
            self.store.clone(),
            self.ledger.clone(),
            self.orders.clone(),
            self.publisher.clone(),
            self.metrics.clone(),
        )
    }
}
