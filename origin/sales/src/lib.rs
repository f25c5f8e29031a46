//! Flash sales: made, warmed, sold, reconciled.
//!
//! SQL is the truth, Redis the admission ledger in front of it. The origin makes sales, puts their stock on Redis,
//! tells gateways of them, and turns the claims that gateways grant into orders.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes; decides nothing |
//! | [`model`] | plain types: what a sale is made of, prices, what buyers say, the payment provider |
//! | [`store`] | sales and orders in SQL |
//! | [`ledger`] | the admission ledger in Redis |
//! | [`jobs`] | expires unpaid orders, publishes the catalogue, reconciles and rebuilds Redis, archives ended sales |
//! | [`orders`] | turns claims into orders or releases them; payment, cancellation, expiry |
//! | [`order_admin`] | what operators do with orders: many at once, and as a table |
//! | [`warm`], [`changes`] | puts a sale's stock on Redis, once; changes the stock of a running sale |
//! | [`verify`] | repairs users' orders in Redis where they differ from SQL |
//! | [`lost_orders`] | pauses sales of which SQL has lost orders, and carries out what an operator decides |
//! | [`draw`] | chooses among those who have reserved, so that anybody can check it |
//! | [`risk`] | scores who has reserved, and blocks |
//! | [`status`], [`stock_balance`] | what SQL and Redis hold of a sale, and whether it adds up |
//! | [`listing`] | the sales that a shop shows |
//! | [`verdicts`] | what gateways report of their decisions |
//! | [`by_sale`] | metrics of each sale |
//! | [`metrics`], [`config`] | what is counted, what can be configured |
//!
//! What is absent: handlers hold no SQL and no Redis commands; [`store`] knows nothing of Redis and [`ledger`]
//! nothing of SQL, so the order of steps between the two is in [`orders`], [`warm`], [`changes`] and [`jobs::reconcile`] alone.

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
use jobs::regular::Jobs;
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

/// The tables of sales and orders.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "sales",
    (1, "baseline", "0001_baseline"),
    (2, "pauses", "0002_pauses")
);

/// Everything about sales, put together. Cloning it is cheap.
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
    /// `None`: nobody can pay.
    payments: Option<Arc<Payments>>,
    holds: HoldRules,
    archive: ArchiveRules,
    /// Who is told of changes of orders.
    receivers: Vec<Outbox>,
    metrics: SaleMetrics,
    reconciling: Heartbeat,
}

impl Sales {
    /// Sales in this store and on this Redis. Claims and users must be signed with one of `keys`.
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

    /// The same, with a payment provider.
    #[must_use]
    pub fn with_payments(mut self, payments: Payments) -> Self {
        self.payments = Some(Arc::new(payments));
        self
    }

    /// The same, in which orders note the clicks that they came of, as far as this can read their names.
    #[must_use]
    pub fn with_clicks(mut self, read: ReadClick) -> Self {
        self.clicks = Clicks::new(read);
        self
    }

    /// The same, with these rules for holds that are not paid.
    #[must_use]
    pub fn with_holds(mut self, rules: HoldRules) -> Self {
        self.holds = rules;
        self.orders = self.orders.with_holds(rules);
        self
    }

    /// The same, with these rules for what ended sales leave.
    #[must_use]
    pub fn with_archive(mut self, rules: ArchiveRules) -> Self {
        self.archive = rules;
        self
    }

    /// The same, in which this receiver is told of changes of orders. The store must write them
    /// ([`SaleStore::with_sinks`]).
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

    /// Starts what runs in the background until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        self.reconciling.beat();
        let receivers = self.receivers.iter().cloned();
        let told = receivers.map(|outbox| tokio::spawn(outbox.run(stop.clone())));
        let mut tasks = vec![
            tokio::spawn(self.publisher.clone().run(stop.clone())),
            tokio::spawn(self.reconciler().run(stop.clone())),
            tokio::spawn(self.jobs().run(stop.clone())),
            tokio::spawn(self.archiver().run(stop.clone())),
        ];
        tasks.extend(told);
        tasks
    }

    /// Beats with each round of the reconciler, from [`Sales::spawn`] on.
    pub fn reconciling(&self) -> &Heartbeat {
        &self.reconciling
    }

    /// Waits for orders that are being decided. To be called when no more can start.
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

    /// Tells gateways of sales.
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

    /// What is counted.
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

    /// Expires, follows and warms; to be [run](Jobs::run) once.
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

    /// Draws among those who have reserved.
    pub fn drawer(&self) -> draw::Drawer {
        draw::Drawer::new(self.store.clone(), self.rebuilder.clone())
    }

    /// Clears away what ended sales leave; to be [run](Archiver::run) once.
    pub fn archiver(&self) -> Archiver {
        Archiver {
            store: self.store.clone(),
            ledger: self.ledger.clone(),
            rules: self.archive,
        }
    }

    /// Cleans up what was left behind; to be [run](Reconciler::run) once.
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

    /// Scores who has reserved, and blocks users of `threshold` and above; to be [run](RiskWorker::run) once.
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
