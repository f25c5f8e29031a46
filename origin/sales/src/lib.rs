//! Flash sales: creation, warm-up, orders, reconciliation.
//!
//! SQL is the source of truth, and Redis is the admission ledger in front of it. The origin creates sales, loads their
//! stock into Redis, publishes them to gateways, and turns the claims that gateways grant into orders.
//!
//! | module | contents |
//! |---|---|
//! | [`http`] | the public and admin routes |
//! | [`model`] | plain types: sales, prices, order payloads, the payment provider |
//! | [`store`] | sales and orders in SQL |
//! | [`ledger`] | the admission ledger in Redis |
//! | [`jobs`] | expires unpaid orders, publishes the catalogue, reconciles and rebuilds Redis, archives ended sales, moves units between sites |
//! | [`orders`] | turns claims into orders or releases them; payment, cancellation, expiry |
//! | [`order_admin`] | batch actions on orders, CSV export |
//! | [`warm`], [`changes`] | loads a sale's stock into Redis, once; changes the stock of a running sale |
//! | [`verify`] | repairs users' orders in Redis that differ from SQL |
//! | [`lost_orders`] | pauses sales whose orders SQL has lost, and executes the operator's decision |
//! | [`draw`] | verifiable draws among reservations |
//! | [`risk`] | scores users with reservations, and blocks some |
//! | [`status`], [`stock_balance`] | a sale's state in SQL and Redis, and its balance |
//! | [`listing`] | the public list of sales |
//! | [`sites`] | `weir-origin site`: shows, fails, drains and joins sites |
//! | [`verdicts`] | decision counts from gateways |
//! | [`by_sale`] | metrics per sale |
//! | [`metrics`], [`config`] | metrics, settings |
//!
//! Handlers contain no SQL and no Redis commands. [`store`] does not use Redis, and [`ledger`] does not use SQL. So
//! only [`orders`], [`warm`], [`changes`] and [`jobs::reconcile`] define the order of steps between the two.

#![forbid(unsafe_code)]
pub mod by_sale;
pub mod changes;
pub mod config;
pub mod draw;
pub mod http;
pub mod jobs;
pub mod ledger;
pub mod listing;
pub mod lost_orders;
pub mod metrics;
pub mod model;
pub mod order_admin;
pub mod orders;
pub mod risk;
pub mod sites;
pub mod status;
pub mod stock_balance;
pub mod store;
pub mod verdicts;
pub mod verify;
pub mod warm;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_base::key::KeyRing;

use changes::Changer;
use jobs::archive::{ArchiveRules, Archiver};
use jobs::catalogue::Publisher;
use jobs::rebuild::Rebuilder;
use jobs::reconcile::Reconciler;
use jobs::redis_identity::RedisReporter;
use jobs::regular::Jobs;
use jobs::sites::SiteMover;
use ledger::Ledger;
use listing::Listing;
use lost_orders::LostOrders;
use metrics::SaleMetrics;
use model::click::{Clicks, ReadClick};
use model::payload::Payloads;
use model::payment::Payments;
use orders::{Orders, SqlLimits};
use risk::{RiskScorer, RiskWorker};
use store::{HoldRules, SaleStore};
use warm::Warmer;
use weir_origin_core::background::Heartbeat;
use weir_origin_core::outbox::{Outbox, OutboxTimes, Sink, SinkName};
use weir_origin_core::redis::Redis;

/// SQL migrations of sales and orders.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "sales",
    (1, "baseline", "0001_baseline"),
    (2, "pauses", "0002_pauses"),
    (3, "sites", "0003_sites")
);

/// Sales: store, ledger, orders and jobs. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Sales {
    store: SaleStore,
    ledger: Ledger,
    orders: Orders,
    warmer: Warmer,
    publisher: Publisher,
    listing: Listing,
    rebuilder: Rebuilder,
    keys: Arc<KeyRing>,
    payloads: Payloads,
    clicks: Clicks,
    /// `None`: payments are disabled.
    payments: Option<Arc<Payments>>,
    holds: HoldRules,
    archive: ArchiveRules,
    /// The receivers of order changes.
    receivers: Vec<Outbox>,
    metrics: SaleMetrics,
    reconciling: Heartbeat,
}

impl Sales {
    /// Creates sales on this store and Redis. Claims and users must be signed with one of `keys`.
    pub fn new(
        store: SaleStore,
        redis: Redis,
        keys: KeyRing,
        limits: SqlLimits,
        metrics: SaleMetrics,
    ) -> Self {
        let ledger = Ledger::new(redis);
        let publisher = Publisher::new(store.clone(), ledger.clone(), &keys);
        let rebuilder = Rebuilder::new(store.clone(), ledger.clone());
        Self {
            orders: Orders::new(
                store.clone(),
                ledger.clone(),
                publisher.changed_sales(),
                metrics.clone(),
                limits,
            ),
            warmer: Warmer::new(
                store.clone(),
                ledger.clone(),
                publisher.clone(),
                rebuilder.clone(),
            ),
            publisher,
            listing: Listing::new(store.clone()),
            rebuilder,
            keys: Arc::new(keys),
            payloads: Payloads::new(store.clone()),
            clicks: Clicks::default(),
            payments: None,
            holds: HoldRules::default(),
            archive: ArchiveRules::default(),
            receivers: Vec::new(),
            metrics,
            store,
            ledger,
            reconciling: Heartbeat::default(),
        }
    }

    /// Accepts callbacks of this payment provider.
    #[must_use]
    pub fn with_payments(mut self, payments: Payments) -> Self {
        self.payments = Some(Arc::new(payments));
        self
    }

    /// Records with each order the click that led to it, as far as `read` accepts it.
    #[must_use]
    pub fn with_clicks(mut self, read: ReadClick) -> Self {
        self.clicks = Clicks::new(read);
        self
    }

    /// Sets the rules for unpaid holds.
    #[must_use]
    pub fn with_holds(mut self, rules: HoldRules) -> Self {
        self.holds = rules;
        self.orders = self.orders.with_holds(rules);
        self
    }

    /// Sets the rules for the data of ended sales.
    #[must_use]
    pub fn with_archive(mut self, rules: ArchiveRules) -> Self {
        self.archive = rules;
        self
    }

    /// Sends order changes to this receiver. The store must record them for it ([`SaleStore::with_sinks`]).
    #[must_use]
    pub fn with_receiver(
        mut self,
        name: SinkName,
        sink: Arc<dyn Sink>,
        times: OutboxTimes,
    ) -> Self {
        let meter = Arc::new(self.metrics.clone());
        let outbox = Outbox::new(name, sink, self.store.outbox(), meter, times);
        self.receivers.push(outbox);
        self
    }

    /// Spawns the background jobs, which run until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        self.reconciling.beat();
        let receivers = self.receivers.iter().cloned();
        let task = receivers.map(|outbox| tokio::spawn(outbox.run(stop.clone())));
        let mut tasks = vec![
            tokio::spawn(self.publisher.clone().run(stop.clone())),
            tokio::spawn(self.reconciler().run(stop.clone())),
            tokio::spawn(self.jobs().run(stop.clone())),
            tokio::spawn(self.archiver().run(stop.clone())),
            tokio::spawn(self.redis_reporter().run(stop.clone())),
        ];
        tasks.extend(task);
        if let Some(mover) = self.site_mover() {
            tasks.push(tokio::spawn(mover.run(stop.clone())));
        }
        tasks
    }

    /// Heartbeat of the reconciler; the first beat follows [`Sales::spawn`].
    pub fn reconciling(&self) -> &Heartbeat {
        &self.reconciling
    }

    /// Waits for orders in progress. Call it when no more can start.
    pub async fn finish(&self) {
        self.orders.finish().await;
    }

    /// Sales and orders in SQL.
    pub fn store(&self) -> &SaleStore {
        &self.store
    }

    /// The admission ledger in Redis.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Turns claims into orders.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Publishes sales to gateways.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Changes the stock of running sales.
    pub fn changer(&self) -> Changer {
        Changer::new(
            self.store.clone(),
            self.ledger.clone(),
            self.metrics.clone(),
        )
    }

    /// The metrics of sales.
    pub fn metrics(&self) -> &SaleMetrics {
        &self.metrics
    }

    /// Orders that SQL has lost.
    pub fn lost_orders(&self) -> LostOrders {
        LostOrders::new(
            self.store.clone(),
            self.ledger.clone(),
            self.publisher.clone(),
            self.rebuilder.clone(),
        )
    }

    /// Periodic jobs; [run](Jobs::run) them once.
    pub fn jobs(&self) -> Jobs {
        Jobs {
            store: self.store.clone(),
            orders: self.orders.clone(),
            warmer: self.warmer.clone(),
            changer: self.changer(),
            drawer: self.drawer(),
            holds: self.holds,
            metrics: self.metrics.clone(),
            reported_unloaded: Arc::default(),
        }
    }

    /// Reports to SQL which Redis this origin uses; [run](RedisReporter::run) it once.
    pub fn redis_reporter(&self) -> RedisReporter {
        RedisReporter {
            store: self.store.clone(),
            ledger: self.ledger.clone(),
        }
    }

    /// Moves units between sites; [run](SiteMover::run) it once per origin. `None` without sites.
    pub fn site_mover(&self) -> Option<SiteMover> {
        self.store.site().is_some().then(|| SiteMover {
            store: self.store.clone(),
            ledger: self.ledger.clone(),
            changer: self.changer(),
        })
    }

    /// Completes draws.
    pub fn drawer(&self) -> draw::Drawer {
        draw::Drawer::new(self.store.clone(), self.rebuilder.clone())
    }

    /// Archives ended sales; [run](Archiver::run) it once.
    pub fn archiver(&self) -> Archiver {
        Archiver {
            store: self.store.clone(),
            ledger: self.ledger.clone(),
            rules: self.archive,
        }
    }

    /// Repairs Redis and unfinished work; [run](Reconciler::run) it once.
    pub fn reconciler(&self) -> Reconciler {
        Reconciler::new(
            self.store.clone(),
            self.ledger.clone(),
            self.orders.clone(),
            self.publisher.clone(),
            self.rebuilder.clone(),
            self.metrics.clone(),
            self.reconciling.clone(),
        )
    }

    /// Scores users with reservations, and blocks users with a score of `threshold` or higher; [run](RiskWorker::run)
    /// it once.
    pub fn risk_worker(&self, scorer: Arc<dyn RiskScorer>, threshold: u32) -> RiskWorker {
        RiskWorker::new(
            self.store.clone(),
            self.ledger.clone(),
            self.metrics.clone(),
            scorer,
            threshold,
        )
    }
}
