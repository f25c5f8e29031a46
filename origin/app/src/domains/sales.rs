//! Sales in the origin.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::{Extension, Router};
use ring::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;
use tracing::info;
use weir_base::key::{KEY_LEN_MIN, KeyRing, SigningKey};

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::config::{Config, Secrets};
use crate::http::{Component, HeartbeatTimeouts, Loop};
use crate::metrics::Metrics;
use crate::origin::{Origin, open_database};
use crate::outbox::{OutboxTimes, Sink, SinkName};
use crate::redis::Redis;
use crate::sales::config::CLAIM_SECRET;
use crate::sales::jobs::archive::ArchiveRules;
use crate::sales::metrics::SaleMetrics;
use crate::sales::model::payment::Payments;
use crate::sales::orders::SqlLimits;
use crate::sales::risk::RiskScorer;
use crate::sales::sites::{self, SiteCommand};
use crate::sales::store::{HoldRules, SaleStore};
use crate::sales::{self, Sales};
use crate::sql::Database;

/// The heartbeat timeout of the reconciler, which runs once per second. Its own metrics report a slow SQL or Redis.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Sales and their settings.
#[derive(Debug)]
pub(crate) struct SaleDomain {
    sales: Sales,
    /// Whether sales are enabled.
    is_on: bool,
    is_stock_in_objects: bool,
    silence_max: Duration,
    scorer: Option<(Arc<dyn RiskScorer>, u32)>,
}

impl Origin {
    /// Creates an origin with sales. Claims are signed with one of `keys`.
    pub fn new(database: Database, redis: Redis, keys: KeyRing, limits: SqlLimits) -> Self {
        let store = SaleStore::new(database.clone());
        Self::with_store(database, store, redis, keys, limits)
    }

    /// Like [`Origin::new`], with this sale store on the same database.
    pub fn with_store(
        database: Database,
        store: SaleStore,
        redis: Redis,
        keys: KeyRing,
        limits: SqlLimits,
    ) -> Self {
        let metrics = Metrics::default();
        let sale_metrics = SaleMetrics::register(&metrics);
        let sales = Sales::new(store, redis.clone(), keys, limits, sale_metrics);
        let sales = SaleDomain {
            sales,
            is_on: true,
            is_stock_in_objects: false,
            silence_max: SILENCE_MAX,
            scorer: None,
        };
        Self::of(database, redis, metrics, sales)
    }

    /// Accepts callbacks of this payment provider.
    #[must_use]
    pub fn with_payments(self, payments: Payments) -> Self {
        self.map_sales(|sales| sales.with_payments(payments))
    }

    /// Sets the rules for unpaid holds.
    #[must_use]
    pub fn with_holds(self, rules: HoldRules) -> Self {
        self.map_sales(|sales| sales.with_holds(rules))
    }

    /// Sets the rules for the data of ended sales.
    #[must_use]
    pub fn with_archive(self, rules: ArchiveRules) -> Self {
        self.map_sales(|sales| sales.with_archive(rules))
    }

    /// Sends order changes to this receiver. The store must record them for it.
    #[must_use]
    pub fn with_receiver(self, name: SinkName, sink: Arc<dyn Sink>, times: OutboxTimes) -> Self {
        self.map_sales(|sales| sales.with_receiver(name, sink, times))
    }

    /// Sets the heartbeat timeout of the reconciler; when it expires, `/readyz` fails.
    #[must_use]
    pub fn with_silence_max(mut self, silence_max: Duration) -> Self {
        self.sales.silence_max = silence_max;
        self
    }

    /// Sales and orders.
    pub fn sales(&self) -> &Sales {
        &self.sales.sales
    }

    pub(crate) fn map_sales(mut self, change: impl FnOnce(Sales) -> Sales) -> Self {
        self.sales.sales = change(self.sales.sales);
        self
    }
}

/// Joins the origin's site at its first start.
///
/// # Errors
/// When SQL does not answer, or sales on this database are sold from sites and the origin has none.
pub(crate) async fn join_site(
    config: &Config,
    secrets: &Secrets,
    database: &Database,
) -> Result<()> {
    if secrets.claim_keys.is_none() {
        return Ok(());
    }
    sites::join_or_refuse(database, config.sales.site.as_ref())
        .await
        .context("--site")
}

/// Runs `weir-origin site`. Returns the text to print.
pub(crate) async fn site(config: &Config, command: &SiteCommand) -> Result<String> {
    let database = open_database(&config.database_url).await;
    let database = database.context("--database-url")?;
    let output = sites::run(&database, command).await;
    database.close().await;
    output
}

/// Builds an origin with sales from the flags.
pub(crate) fn open(
    config: &Config,
    secrets: &mut Secrets,
    scorer: Option<Arc<dyn RiskScorer>>,
    database: Database,
    redis: Redis,
) -> Result<Origin> {
    let store = config.sales.store(database.clone())?;
    let keys = secrets.claim_keys.take();
    let is_on = keys.is_some();
    if !is_on {
        info!("{CLAIM_SECRET} is not set: sales are disabled");
    }
    let keys = keys.map_or_else(unknown_key, Ok)?;
    let origin = Origin::with_store(database, store, redis, keys, config.sales.sql_limits());
    let mut origin = origin
        .with_holds(config.sales.hold_rules())
        .with_archive(config.sales.archive_rules());
    if let Some(payments) = secrets.payments.take() {
        origin = origin.with_payments(payments);
    }
    let secret = secrets.orders_webhook.take().map(|secret| secret.0);
    if let Some(webhook) = config.sales.orders_webhook(secret.as_deref())? {
        let times = config.sales.outbox_times();
        origin = origin.with_receiver(SinkName::Webhook, Arc::new(webhook), times);
    }
    origin.sales.is_on = is_on;
    origin.sales.is_stock_in_objects = config.sales.stock_in_objects;
    origin.sales.scorer = scorer.map(|scorer| (scorer, config.sales.risk_threshold));
    Ok(origin)
}

/// A random key that no gateway has, so every signature is refused.
fn unknown_key() -> Result<KeyRing> {
    let mut secret = [0; KEY_LEN_MIN];
    let filled = SystemRandom::new().fill(&mut secret);
    filled
        .ok()
        .context("no random numbers from the operating system")?;
    Ok(SigningKey::new("none", &secret)?.into())
}

impl SaleDomain {
    /// The heartbeat that readiness depends on.
    fn reconciler(&self) -> Loop {
        Loop {
            name: "reconciler",
            heartbeat: self.sales.reconciling().clone(),
            silence_max: self.silence_max,
        }
    }

    /// Registers the gauge of the time since the last heartbeat.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.group(|group| group.add_collector(HeartbeatTimeouts(vec![self.reconciler()])));
    }

    /// The sales, if they are enabled.
    fn enabled(&self) -> Option<Sales> {
        self.is_on.then(|| self.sales.clone())
    }
}

impl Domain for SaleDomain {
    fn public(&self, origin: &Origin) -> Router {
        let Some(sales) = self.enabled() else {
            return Router::new();
        };
        let edges = origin.common.edges.clone();
        let feeds = sales::http::feed_routes(sales.clone(), edges, self.is_stock_in_objects);
        sales::http::public().into_router(sales).merge(feeds)
    }

    fn admin(&self, origin: &Origin, auth: &AuthLayer) -> Router {
        let Some(sales) = self.enabled() else {
            return Router::new();
        };
        let live = Extension(origin.common.live.clone());
        auth.mount(sales::http::admin(), sales).layer(live)
    }

    fn around_public(&self, routes: Router) -> Router {
        match self.is_on {
            true => sales::http::in_buyers_language(routes),
            false => routes,
        }
    }

    fn parts(&self) -> Vec<Component> {
        let metrics = self.sales.metrics().clone();
        let state = move || match metrics.has_paused_sales() {
            true => "paused",
            false => "ok",
        };
        let part = Component {
            name: "sales",
            state: Arc::new(state),
        };
        self.is_on.then_some(part).into_iter().collect()
    }

    fn loops(&self) -> Vec<Loop> {
        vec![self.reconciler()]
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        let mut jobs = match self.is_on {
            true => self.sales.spawn(stop),
            false => Vec::new(),
        };
        if let Some((scorer, threshold)) = &self.scorer {
            let worker = self.sales.risk_worker(scorer.clone(), *threshold);
            jobs.push(tokio::spawn(worker.run(stop.clone())));
        }
        Ok(jobs)
    }
}
