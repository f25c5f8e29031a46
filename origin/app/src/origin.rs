//! The origin: wires its domains together.

use axum::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_base::key::KeyRing;

use crate::access::metrics::AccessMetrics;
use crate::access::{self, Access};
use crate::console;
use crate::disk::{Disk, Disks};
use crate::domains::{self, AREAS, COUNTS};
use crate::http::{
    self, ADMIN_LIMIT, AccessLog, AdminToken, Cors, Edges, Health, LiveAnswers, PUBLIC_LIMIT,
    Traffic,
};
use crate::metrics::Metrics;
use crate::openapi;
use crate::redis::refusals::Refusals;
use crate::redis::{Redis, policy};
use crate::sql::{Database, OpenError};

/// Opens the origin's database; see [`Database::open`].
///
/// # Errors
/// See [`OpenError`].
pub async fn open_database(url: &str) -> Result<Database, OpenError> {
    Database::open(url, domains::MIGRATIONS).await
}

/// All domains on one database and one Redis.
#[derive(Debug)]
pub struct Origin {
    pub(crate) common: Common,
    #[cfg(feature = "sales")]
    pub(crate) sales: domains::sales::SaleDomain,
    #[cfg(feature = "links")]
    pub(crate) links: domains::links::LinkDomain,
    #[cfg(feature = "events")]
    pub(crate) events: domains::events::EventDomain,
    #[cfg(feature = "history")]
    pub(crate) history: domains::history::HistoryDomain,
    #[cfg(feature = "fitment")]
    pub(crate) fitment: domains::fitment::FitmentDomain,
    #[cfg(any(feature = "fitment", feature = "history"))]
    pub(crate) products: domains::products::ProductDomain,
    #[cfg(feature = "rooms")]
    pub(crate) rooms: crate::rooms::Rooms,
}

/// Parts that all domains share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) database: Database,
    pub(crate) redis: Redis,
    pub(crate) metrics: Metrics,
    pub(crate) edges: Edges,
    pub(crate) live: LiveAnswers,
    pub(crate) disks: Disks,
    draining: CancellationToken,
    traffic: Traffic,
    cors: Cors,
    access_log: AccessLog,
    access_metrics: AccessMetrics,
    access: Access,
}

impl Common {
    fn new(database: Database, redis: Redis, metrics: Metrics) -> Self {
        let access_metrics = AccessMetrics::register(&metrics);
        let disks = Disks::default();
        if let Some(file) = database.file() {
            // Orders cannot be stored without free space here.
            disks.add(Disk::of_file("database", file).required());
        }
        metrics.group(|group| group.add_collector(disks.clone()));
        redis.refusals().register(&metrics);
        let settings = access::Settings::default();
        Self {
            access: Access::new(
                database.clone(),
                access_metrics.clone(),
                settings,
                COUNTS,
                AREAS,
            ),
            access_metrics,
            edges: Edges::default(),
            cors: Cors::default(),
            access_log: AccessLog::default(),
            live: LiveAnswers::default(),
            draining: CancellationToken::new(),
            disks,
            traffic: Traffic::default(),
            database,
            redis,
            metrics,
        }
    }
}

impl Origin {
    /// Creates an origin in which all optional domains are disabled.
    pub(crate) fn of(
        database: Database,
        redis: Redis,
        metrics: Metrics,
        #[cfg(feature = "sales")] sales: domains::sales::SaleDomain,
    ) -> Self {
        let common = Common::new(database, redis, metrics);
        #[cfg(feature = "sales")]
        sales.register(&common.metrics);
        Self {
            #[cfg(feature = "sales")]
            sales,
            #[cfg(feature = "links")]
            links: domains::links::LinkDomain::disabled(&common.metrics),
            #[cfg(feature = "events")]
            events: domains::events::EventDomain::disabled(&common.metrics),
            #[cfg(feature = "history")]
            history: domains::history::HistoryDomain::disabled(&common.metrics),
            #[cfg(feature = "fitment")]
            fitment: domains::fitment::FitmentDomain::disabled(&common.metrics),
            #[cfg(any(feature = "fitment", feature = "history"))]
            products: domains::products::ProductDomain::disabled(&common.metrics),
            #[cfg(feature = "rooms")]
            rooms: crate::rooms::Rooms::new(common.database.clone(), common.redis.clone()),
            common,
        }
    }

    /// Serves feeds to edges that authenticate with these keys.
    #[must_use]
    pub fn with_edges(mut self, keys: Option<KeyRing>) -> Self {
        self.common.edges = keys.into();
        self
    }

    /// Sets the CORS rules of the public answers.
    #[must_use]
    pub fn with_cors(mut self, cors: Cors) -> Self {
        self.common.cors = cors;
        self
    }

    /// Sets which requests appear in the access log.
    #[must_use]
    pub fn with_access_log(mut self, log: AccessLog) -> Self {
        self.common.access_log = log;
        self
    }

    /// Applies these access settings.
    #[must_use]
    pub fn with_access(mut self, settings: access::Settings) -> Self {
        let common = &mut self.common;
        let (database, metrics) = (common.database.clone(), common.access_metrics.clone());
        common.access = Access::new(database, metrics, settings, COUNTS, AREAS);
        self
    }

    /// Commands that Redis has refused.
    pub fn redis_refusals(&self) -> &Refusals {
        self.common.redis.refusals()
    }

    /// Keys, sessions and the audit trail.
    pub fn access(&self) -> &Access {
        &self.common.access
    }

    /// The metrics of the process.
    pub fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// Makes the probes of gateways and load balancers fail. Requests are still answered.
    pub fn drain(&self) {
        self.common.draining.cancel();
    }

    /// The routes for gateways.
    pub fn public_routes(&self) -> Router {
        let all = self.domains();
        let routes = all.iter().map(|domain| domain.public(self));
        let routes = routes.fold(http::alive().into_router(()), Router::merge);
        let (metrics, log) = (self.metrics().requests(), self.common.access_log.clone());
        let routes = http::finish(routes, PUBLIC_LIMIT.into(), metrics, log);
        let routes = all
            .iter()
            .fold(routes, |routes, domain| domain.around_public(routes));
        // Outside of the layers, which log requests: each gateway asks every two seconds.
        let serving = http::serving().into_router(self.common.draining.clone());
        let routes = routes.merge(serving.method_not_allowed_fallback(http::no_method));
        http::shared(routes, &self.common.cors)
    }

    /// The admin routes. Requests need `token` or a key, except for probes and pages.
    pub fn admin_routes(&self, token: AdminToken) -> Router {
        let (common, all) = (&self.common, self.domains());
        let health = Health {
            database: common.database.clone(),
            redis: common.redis.clone(),
            metrics: common.metrics.clone(),
            traffic: common.traffic.clone(),
            parts: all.iter().flat_map(|domain| domain.parts()).collect(),
            disks: common.disks.clone(),
            loops: all.iter().flat_map(|domain| domain.loops()).collect(),
            draining: common.draining.clone(),
            document: openapi::text(),
        };
        let auth = common.access.with_token(token);
        let own = access::http::routes(&auth)
            .merge(http::alive().into_router(()))
            .merge(http::probes().into_router(health))
            .merge(console::page().into_router(()));
        let routes = all.iter().fold(own, |routes, domain| {
            routes.merge(domain.admin(self, &auth)).merge(domain.page())
        });
        let limit = http::TimeLimit {
            usual: ADMIN_LIMIT,
            none_for: domains::UNTIMED,
        };
        let (metrics, log) = (self.metrics().requests(), common.access_log.clone());
        http::finish(routes, limit, metrics, log)
    }

    /// Spawns all background jobs, which run until `stop`.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn spawn(&self, stop: &CancellationToken) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let common = &self.common;
        let mut tasks = vec![
            tokio::spawn(policy::watch(common.redis.clone(), stop.clone())),
            common.access.spawn(stop),
            tokio::spawn(common.live.clone().end_with(stop.clone())),
            tokio::spawn(
                common
                    .traffic
                    .clone()
                    .run(common.metrics.clone(), stop.clone()),
            ),
        ];
        for domain in self.domains() {
            tasks.extend(domain.spawn(self, stop)?);
        }
        Ok(tasks)
    }

    /// Waits for orders in progress, then closes the SQL connections.
    pub async fn finish(&self) {
        #[cfg(feature = "sales")]
        self.sales().finish().await;
        self.common.access.finish().await;
        self.common.database.close().await;
    }
}
