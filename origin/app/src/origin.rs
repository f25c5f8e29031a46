//! The origin, put together from its domains: the only place besides start-up that knows them all.

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_base::key::KeyRing;

use crate::access::metrics::AccessMetrics;
use crate::access::scope::{Area, Level};
use crate::access::{self, Access, Door, Guard};
use crate::console;
use crate::conversions::{self, OrdersOfLinks};
use crate::disk::{Disk, Disks};
use crate::events::metrics::EventMetrics;
use crate::events::{self, Events};
use crate::fitment::metrics::FitmentMetrics;
use crate::fitment::{self, Fitment};
use crate::history::metrics::HistoryMetrics;
use crate::history::{self, History};
use crate::http::{
    self, ADMIN_LIMIT, AdminToken, Cors, Edges, Health, Live, Loop, PUBLIC_LIMIT, Part, Silences,
};
use crate::limits;
use crate::links::geo::Geo;
use crate::links::metrics::LinkMetrics;
use crate::links::{self, Links, Settings};
use crate::metrics::Metrics;
use crate::openapi;
use crate::outbox::{OutboxTimes, Sink, SinkName};
use crate::redis::{Redis, policy};
use crate::rooms::{self, Rooms};
use crate::sales::archive::ArchiveRules;
use crate::sales::metrics::SaleMetrics;
use crate::sales::orders::SqlLimits;
use crate::sales::payment::Payments;
use crate::sales::risk::RiskScorer;
use crate::sales::store::{HoldRules, SaleStore};
use crate::sales::{self, Sales};
use crate::sql::{Database, OpenError};
use crate::tenant_rules::RULES;
use crate::tenants::Counts;

/// Opens the origin's database; see [`Database::open`].
///
/// # Errors
/// See [`OpenError`].
pub async fn open_database(url: &str) -> Result<Database, OpenError> {
    Database::open(url, crate::migrations::ALL).await
}

/// For how long the reconciler may be silent. It works once a second, and what a slow SQL or Redis costs it shows as theirs.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What must go on for the origin to be ready.
fn reconciler(sales: &Sales, silence_max: Duration) -> Loop {
    Loop {
        name: "reconciler",
        pulse: sales.reconciling().clone(),
        silence_max,
    }
}

/// All domains on one database and one Redis.
#[derive(Debug)]
pub struct Origin {
    database: Database,
    redis: Redis,
    metrics: Metrics,
    link_metrics: LinkMetrics,
    event_metrics: EventMetrics,
    sales: Sales,
    has_sales: bool,
    links: Option<Links>,
    events: Option<Events>,
    history_metrics: HistoryMetrics,
    history: Option<History>,
    fitment_metrics: FitmentMetrics,
    fitment: Option<Fitment>,
    rooms: Rooms,
    edges: Edges,
    cors: Cors,
    is_stock_in_objects: bool,
    are_maxima_in_objects: bool,
    access_metrics: AccessMetrics,
    access: Access,
    live: Live,
    disks: Disks,
    silence_max: Duration,
}

/// What a key of some domains and tags opens: these routes look whose a link is.
const NARROW: &[(Level, &str)] = &[
    (Level::Write, "/links"),
    (Level::Read, "/links"),
    (Level::Read, "/links.csv"),
    (Level::Read, "/links.ndjson"),
    (Level::Write, links::http::IMPORTS),
    (Level::Write, "/links/{code}"),
    (Level::Read, "/links/{code}"),
    (Level::Read, "/links/{code}/history"),
    (Level::Read, "/links/{code}/stats"),
    (Level::Read, "/links/{code}/stats.csv"),
    (Level::Read, "/links/{code}/cross"),
    (Level::Read, "/links/{code}/qr.svg"),
    (Level::Read, "/links/{code}/qr.png"),
    (Level::Read, "/link-domains"),
    (Level::Read, "/link-domains/{id}"),
];

/// What may be a tenant's by its name. Links are counted by their domains, see [`links::quota`].
const COUNTS: Counts = &[
    sales::store::TENANTS_SALES,
    sales::store::TENANTS_UNITS,
    rooms::store::TENANTS_ROOMS,
];

impl Origin {
    /// An origin with sales, whose claims are signed with one of `keys`.
    pub fn new(database: Database, redis: Redis, keys: KeyRing, limits: SqlLimits) -> Self {
        let store = SaleStore::new(database.clone());
        Self::with_store(database, store, redis, keys, limits)
    }

    /// As [`Origin::new`], with this store of sales, in the same database.
    pub fn with_store(
        database: Database,
        store: SaleStore,
        redis: Redis,
        keys: KeyRing,
        limits: SqlLimits,
    ) -> Self {
        let metrics = Metrics::default();
        let sale_metrics = SaleMetrics::register(&metrics);
        let access_metrics = AccessMetrics::register(&metrics);
        let sales = Sales::new(store, redis.clone(), keys, limits, sale_metrics);
        let disks = Disks::default();
        if let Some(file) = database.file() {
            // Without room there, no order can be noted.
            disks.add(Disk::of_file("database", file).vital());
        }
        metrics.group(|group| {
            group.add_collector(disks.clone());
            group.add_collector(Silences(vec![reconciler(&sales, SILENCE_MAX)]));
        });
        Self {
            link_metrics: LinkMetrics::register(&metrics),
            event_metrics: EventMetrics::register(&metrics),
            links: None,
            events: None,
            history_metrics: HistoryMetrics::register(&metrics),
            history: None,
            fitment_metrics: FitmentMetrics::register(&metrics),
            fitment: None,
            rooms: Rooms::new(database.clone(), redis.clone()),
            access: Access::new(
                database.clone(),
                access_metrics.clone(),
                access::Settings::default(),
                COUNTS,
            ),
            access_metrics,
            live: Live::default(),
            edges: Edges::default(),
            cors: Cors::default(),
            is_stock_in_objects: false,
            are_maxima_in_objects: false,
            disks,
            silence_max: SILENCE_MAX,
            sales,
            has_sales: true,
            metrics,
            database,
            redis,
        }
    }

    /// The same, but nobody may make a sale or buy.
    #[must_use]
    pub fn without_sales(mut self) -> Self {
        self.has_sales = false;
        self
    }

    /// The same, with a payment provider.
    #[must_use]
    pub fn with_payments(mut self, payments: Option<Payments>) -> Self {
        if let Some(payments) = payments {
            self.sales = self.sales.with_payments(payments);
        }
        self
    }

    /// The same, with these rules for holds that are not paid.
    #[must_use]
    pub fn with_holds(mut self, rules: HoldRules) -> Self {
        self.sales = self.sales.with_holds(rules);
        self
    }

    /// The same, with these rules for what ended sales leave.
    #[must_use]
    pub fn with_archive(mut self, rules: ArchiveRules) -> Self {
        self.sales = self.sales.with_archive(rules);
        self
    }

    /// The same, in which this receiver is told of changes of orders. The store must write them.
    #[must_use]
    pub fn with_receiver(
        mut self,
        name: SinkName,
        sink: Arc<dyn Sink>,
        times: OutboxTimes,
    ) -> Self {
        self.sales = self.sales.with_receiver(name, sink, times);
        self
    }

    /// The same, in which this receiver is told of changes of links. To be called after [`Origin::with_links`], whose settings must
    /// name it.
    #[must_use]
    pub fn with_link_receiver(
        mut self,
        name: SinkName,
        sink: Arc<dyn Sink>,
        times: OutboxTimes,
    ) -> Self {
        let links = self.links.take();
        self.links = links.map(|links| links.with_receiver(name, sink, times));
        self
    }

    /// The same, in which orders note the clicks that they came of: those that these keys have signed, not more than `window_ms`
    /// before. To be called after [`Origin::with_links`].
    #[must_use]
    pub fn with_conversions(mut self, keys: KeyRing, window_ms: u64) -> Self {
        let orders = Arc::new(OrdersOfLinks(self.sales.store().clone()));
        self.sales = self.sales.with_clicks(conversions::reader(keys, window_ms));
        self.links = self.links.map(|links| links.with_orders(orders));
        self
    }

    /// The same, with short links.
    ///
    /// # Errors
    /// See [`links::OpenError`].
    pub async fn with_links(mut self, settings: Settings) -> Result<Self, links::OpenError> {
        let (database, redis) = (self.database.clone(), self.redis.clone());
        let metrics = self.link_metrics.clone();
        self.disks.add(Disk::of_folder("links", &settings.log));
        self.links = Some(Links::open(settings, database, redis, metrics).await?);
        Ok(self)
    }

    /// The same, with behaviour events.
    ///
    /// # Errors
    /// See [`events::OpenError`].
    pub async fn with_events(self, settings: events::Settings) -> Result<Self, events::OpenError> {
        if let Some(folder) = settings.folder() {
            self.disks.add(Disk::of_folder("events", folder));
        }
        let (database, metrics) = (self.database.clone(), self.event_metrics.clone());
        let opened = Events::open(settings, database, metrics).await?;
        Ok(self.with_opened_events(opened))
    }

    /// The same, with these behaviour events.
    #[must_use]
    pub fn with_opened_events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// The same, with browse history.
    #[must_use]
    pub fn with_history(mut self, settings: history::Settings) -> Self {
        let (database, redis) = (self.database.clone(), self.redis.clone());
        let metrics = self.history_metrics.clone();
        self.history = Some(History::new(settings, database, redis, metrics));
        self
    }

    /// The same, with vehicle fitment.
    #[must_use]
    pub fn with_fitment(mut self, settings: fitment::Settings) -> Self {
        let (database, redis) = (self.database.clone(), self.redis.clone());
        let metrics = self.fitment_metrics.clone();
        self.disks.add(Disk::of_folder("fitment", &settings.spool));
        self.fitment = Some(Fitment::new(settings, database, redis, metrics));
        self
    }

    /// The same, with feeds for edges, which have these keys.
    #[must_use]
    pub fn with_edges(mut self, keys: Option<KeyRing>) -> Self {
        self.edges = keys.into();
        self
    }

    /// The same, whose public answers pages of other sites may read.
    #[must_use]
    pub fn with_cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// The same, whose sales' stock stands in objects of an edge if `is_so`, behind the proxy of shards.
    #[must_use]
    pub fn with_stock_in_objects(mut self, is_so: bool) -> Self {
        self.is_stock_in_objects = is_so;
        self
    }

    /// The same, whose links with a maximum are counted in objects of an edge if `are_so`, behind the proxy of shards.
    #[must_use]
    pub fn with_maxima_in_objects(mut self, are_so: bool) -> Self {
        self.are_maxima_in_objects = are_so;
        self
    }

    /// The same, with these settings of access.
    #[must_use]
    pub fn with_access(mut self, settings: access::Settings) -> Self {
        let (database, metrics) = (self.database.clone(), self.access_metrics.clone());
        self.access = Access::new(database, metrics, settings, COUNTS);
        self
    }

    /// Keys, sessions and the audit trail.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The same, but the reconciler may be silent for so long before the origin counts as not ready.
    #[must_use]
    pub fn with_silence_max(mut self, silence_max: Duration) -> Self {
        self.silence_max = silence_max;
        self
    }

    /// Sales and orders.
    pub fn sales(&self) -> &Sales {
        &self.sales
    }

    /// Waiting rooms.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// Short links, if it has any.
    pub fn links(&self) -> Option<&Links> {
        self.links.as_ref()
    }

    /// Behaviour events, if it has any.
    pub fn events(&self) -> Option<&Events> {
        self.events.as_ref()
    }

    /// Browse history, if it has any.
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Vehicle fitment, if it has any.
    pub fn fitment(&self) -> Option<&Fitment> {
        self.fitment.as_ref()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The routes for gateways.
    pub fn public_routes(&self) -> Router {
        let maxima = self.are_maxima_in_objects;
        let maxima = maxima.then(|| self.redis.prefix().to_owned());
        let sales = match self.has_sales {
            true => sales::http::public(self.sales.clone()).merge(sales::http::feeds(
                self.sales.clone(),
                self.edges.clone(),
                self.is_stock_in_objects,
            )),
            false => Router::new(),
        };
        let routes = sales
            .merge(links::http::public(self.links.clone()))
            .merge(links::http::feeds(
                self.links.clone(),
                self.edges.clone(),
                maxima,
            ))
            .merge(events::http::public(self.events.clone()))
            .merge(history::http::public(
                self.history.clone(),
                sales::http::users(self.sales.clone()),
            ))
            .merge(fitment::http::public(
                self.fitment.clone(),
                sales::http::users(self.sales.clone()),
            ))
            .merge(http::alive());
        let routes = http::finish(routes, PUBLIC_LIMIT.into(), self.metrics.requests());
        let routes = match self.has_sales {
            true => sales::http::in_buyers_language(routes),
            false => routes,
        };
        http::shared(routes, &self.cors)
    }

    /// The routes for operators, who show `token` or a key, and for probes and pages, which need none.
    pub fn admin_routes(&self, token: AdminToken) -> Router {
        let health = Health {
            database: self.database.clone(),
            redis: self.redis.clone(),
            metrics: self.metrics.clone(),
            parts: self.parts(),
            disks: self.disks.clone(),
            loops: vec![reconciler(&self.sales, self.silence_max)],
            document: openapi::text(),
        };
        let door = self.access.with_token(token);
        let routes = self
            .guarded(&door)
            .merge(access::http::routes(&door, RULES))
            .merge(http::alive())
            .merge(http::probes(health))
            .merge(console::page())
            .merge(links::http::page())
            .merge(events::http::page())
            .merge(fitment::http::page());
        let limit = http::TimeLimit {
            usual: ADMIN_LIMIT,
            // A file of gigabytes; thousands of links, each of them a transaction.
            none_for: &[fitment::http::UPLOAD, links::http::IMPORTS],
        };
        http::finish(routes, limit, self.metrics.requests())
    }

    /// The routes of each domain, behind what guards them.
    fn guarded(&self, door: &Door) -> Router {
        let sales = match self.has_sales {
            true => sales::http::admin(self.sales.clone()).layer(Extension(self.live.clone())),
            false => Router::new(),
        };
        let links = links::http::admin(self.links.clone());
        let events = events::http::admin(self.events.clone());
        let history = history::http::admin(self.history.clone());
        let fitment = fitment::http::Routes::for_operators(self.fitment.clone());
        let guard = |area| Guard::of(area).tenants(RULES);
        // A link is made while SQL is away, and faster than a transaction of its own would let it.
        let of_links = guard(Area::Links).behind(&["/links"]).narrow(NARROW);
        let of_links = of_links.questions(&[links::http::QR_SVG, links::http::QR_PNG]);
        // What business systems send are events, not acts.
        let of_events = guard(Area::Events).unnoted(&["/events"]);
        door.guard(sales, guard(Area::Sales))
            .merge(door.guard(links, of_links))
            .merge(door.guard(events, of_events))
            .merge(door.guard(history, guard(Area::History)))
            .merge(door.mount(fitment::http::admin(), fitment))
            .merge(door.mount(rooms::http::admin(), self.rooms.clone()))
            .merge(door.mount(limits::http::admin(), self.redis.clone()))
    }

    /// What `/readyz` tells of beside SQL and Redis. A log of events that is full makes nobody turn sales away.
    fn parts(&self) -> Vec<Part> {
        let part = |events: Events| Part {
            name: "events",
            state: Arc::new(move || events.state()),
        };
        self.events.clone().map(part).into_iter().collect()
    }

    /// Starts what runs in the background until `stop`: users are scored by `scorer`, if there is one, and blocked
    /// from `risk_threshold` on; `geo` tells where clicks come from.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn spawn(
        &self,
        scorer: Option<Arc<dyn RiskScorer>>,
        risk_threshold: u32,
        geo: Geo,
        stop: &CancellationToken,
    ) -> Result<Vec<JoinHandle<()>>, links::NoName> {
        let mut tasks = match self.has_sales {
            true => self.sales.spawn(stop),
            false => Vec::new(),
        };
        let watch = policy::watch(self.redis.clone(), stop.clone());
        tasks.push(tokio::spawn(watch));
        if let Some(scorer) = scorer {
            let worker = self.sales.risk_worker(scorer, risk_threshold);
            tasks.push(tokio::spawn(worker.run(stop.clone())));
        }
        if let Some(links) = &self.links {
            tasks.extend(links.spawn(stop));
            tasks.push(links.spawn_counter(geo, stop)?);
        }
        if let Some(events) = &self.events {
            tasks.extend(events.spawn(stop));
        }
        if let Some(history) = &self.history {
            tasks.extend(history.spawn(stop));
        }
        if let Some(fitment) = &self.fitment {
            tasks.extend(fitment.spawn(stop));
        }
        tasks.extend(self.rooms.spawn(stop));
        tasks.push(self.access.spawn(stop));
        tasks.push(tokio::spawn(self.live.clone().end_with(stop.clone())));
        Ok(tasks)
    }

    /// Waits for orders under way, then closes the connections to SQL.
    pub async fn finish(&self) {
        self.sales.finish().await;
        self.access.finish().await;
        self.database.close().await;
    }
}
