//! A test's own origin, configured as needed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_base::key::{KeyRing, SigningKey};
use weir_link::domain::DomainsConfig;
use weir_origin::Origin;
use weir_origin::events::metrics::EventMetrics;
use weir_origin::events::{self, Events};
use weir_origin::fitment::metrics::FitmentMetrics;
use weir_origin::fitment::{Fitment, Settings as FitmentSettings};
use weir_origin::history::metrics::HistoryMetrics;
use weir_origin::history::{History, Settings as HistorySettings};
use weir_origin::http::AdminToken;
use weir_origin::links::Settings;
use weir_origin::metrics::Metrics;
use weir_origin::origin::open_database;
use weir_origin::outbox::Sinks;
use weir_origin::redis::Redis;
use weir_origin::sales::jobs::archive::{ArchiveRules, Archiver};
use weir_origin::sales::model::payment::Payments;
use weir_origin::sales::model::site::SiteName;
use weir_origin::sales::orders::SqlLimits;
use weir_origin::sales::sites::join_or_refuse;
use weir_origin::sales::store::{HoldRules, SaleStore};
use weir_origin::sql::Database;

use super::*;

/// An origin with its own database and key prefix in Redis.
pub struct World {
    pub origin: Origin,
    pub prefix: String,
    pub redis_url: String,
    pub dir: TempDir,
    /// Background jobs of links run until this is dropped.
    pub(super) _links: Option<DropGuard>,
    /// Background jobs of events run until this is dropped.
    pub events: Option<DropGuard>,
    pub(super) database_url: String,
    pub(super) app: Router,
    pub(super) admin: Router,
}

/// The domains, and a change of the default settings.
type LinkSetup = (Value, Box<dyn FnOnce(&mut Settings)>);

/// A payment provider with two keys, as during a key rotation.
fn payments() -> Payments {
    let key = |id, secret: &str| SigningKey::new(id, secret.as_bytes()).unwrap();
    let keys = vec![
        key("p1", PAYMENT_SECRET),
        key("p0", PREVIOUS_PAYMENT_SECRET),
    ];
    let pay_url = "https://pay.example/{payment}".to_owned();
    Payments::new(KeyRing::new(keys).unwrap(), Some(pay_url))
}

impl World {
    pub async fn new() -> Self {
        Self::on(&shared_redis().await).await
    }

    /// On the Redis at `redis_url`, which may be down.
    pub async fn on(redis_url: &str) -> Self {
        Self::with(redis_url, None).await
    }

    /// With these rules for the archiving of ended sales.
    pub async fn with_archive(rules: ArchiveRules) -> Self {
        let mut world = Self::new().await;
        world.origin = world.origin.with_archive(rules);
        world
    }

    /// An archiver with other rules.
    pub fn archiver(&self, rules: ArchiveRules) -> Archiver {
        self.origin.sales().clone().with_archive(rules).archiver()
    }

    /// The keys in Redis that match this pattern, after the test's prefix.
    pub async fn keys(&self, form: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for url in self.redis_url.split(',') {
            let mut connection = weir_stack::redis::connect(url).await.unwrap();
            let mut all = redis::cmd("KEYS");
            let all = all.arg(format!("{}:{form}", self.prefix));
            keys.extend(
                all.query_async::<Vec<String>>(&mut connection)
                    .await
                    .unwrap(),
            );
        }
        keys
    }

    /// Adds edges with these keys.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn and_edges(mut self, keys: KeyRing) -> Self {
        self.origin = self.origin.with_edges(Some(keys));
        self.app = self.origin.public_routes();
        self
    }

    /// Accepts product changes signed with these keys.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn and_product_keys(mut self, keys: KeyRing) -> Self {
        self.origin = self.origin.with_product_keys(Some(keys));
        self.app = self.origin.public_routes();
        self
    }

    /// Allows pages of other sites to read public answers.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn and_cors(mut self, cors: weir_origin::http::Cors) -> Self {
        self.origin = self.origin.with_cors(cors);
        self.app = self.origin.public_routes();
        self
    }

    /// Sets another admin token.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn with_token(mut self, token: &str) -> Self {
        self.admin = self.origin.admin_routes(AdminToken::new(token).unwrap());
        self
    }

    /// With these rules for expiring holds.
    pub async fn with_holds(rules: HoldRules) -> Self {
        let mut world = Self::new().await;
        world.origin = world.origin.with_holds(rules);
        world.app = world.origin.public_routes();
        world.admin = world.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        world
    }

    /// With a reconciler that may be silent for this long.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub async fn with_silence_max(silence_max: Duration) -> Self {
        let mut world = Self::new().await;
        world.origin = world.origin.with_silence_max(silence_max);
        world.admin = world.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        world
    }

    /// With short links in these domains.
    pub async fn with_links(domains: Value, change: impl FnOnce(&mut Settings) + 'static) -> Self {
        let links: LinkSetup = (domains, Box::new(change));
        Self::with(&shared_redis().await, Some(links)).await
    }

    /// With behaviour events, and a Redis that is down: events do not need it.
    pub async fn with_events(change: impl FnOnce(&mut events::Settings)) -> Self {
        let world = Self::with("redis://127.0.0.1:1", None).await;
        world.and_events(change).await
    }

    /// With behaviour events, in this folder and this database, after an earlier origin.
    pub async fn with_events_again(self, change: impl FnOnce(&mut events::Settings)) -> Self {
        let Self {
            dir,
            database_url,
            prefix,
            redis_url,
            origin,
            events,
            app,
            admin,
            ..
        } = self;
        drop((app, admin, events));
        origin.finish().await;
        drop(origin);
        let database = open_database(&database_url).await.unwrap();
        let redis = Redis::new(&redis_url, &prefix).unwrap();
        let ring = KeyRing::new(vec![key()]).unwrap();
        let origin = Origin::new(database, redis, ring, SqlLimits::default());
        let world = Self {
            app: origin.public_routes(),
            admin: origin.admin_routes(AdminToken::new(TOKEN).unwrap()),
            _links: None,
            events: None,
            origin,
            prefix,
            redis_url,
            dir,
            database_url,
        };
        world.and_events(change).await
    }

    async fn and_events(mut self, change: impl FnOnce(&mut events::Settings)) -> Self {
        let mut settings = events::Settings::new(self.dir.path().join("events"));
        settings.sync = weir_log::Sync::Os;
        change(&mut settings);
        let deadline = Instant::now() + Duration::from_secs(60);
        // The threads of an earlier origin lock the folder until they end.
        let opened = loop {
            let metrics = EventMetrics::register(&Metrics::default());
            let database = open_database(&self.database_url).await.unwrap();
            match Events::open(settings.clone(), database, metrics).await {
                Ok(opened) => break opened,
                Err(_) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        self.origin = self.origin.with_opened_events(opened);
        let token = CancellationToken::new();
        self.origin.events().unwrap().spawn(&token);
        self.events = Some(token.drop_guard());
        self.app = self.origin.public_routes();
        self.admin = self.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        self
    }

    /// With browse history.
    pub async fn with_history(change: impl FnOnce(&mut HistorySettings)) -> Self {
        let mut world = Self::new().await;
        let mut settings = HistorySettings::default();
        change(&mut settings);
        world.origin = world.origin.with_history(settings);
        world.app = world.origin.public_routes();
        world.admin = world.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        world
    }

    /// With all features of an origin.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub async fn with_everything() -> Self {
        let domains = serde_json::json!({ "domains": [{ "id": "main", "hosts": ["s.example"] }] });
        let mut world = Self::with_links(domains, |_| ()).await;
        world.origin = world.origin.with_history(HistorySettings::default());
        let world = world.and_fitment(|_| ());
        world.and_events(|_| ()).await
    }

    /// With vehicle fitment, without background jobs.
    pub async fn with_fitment(change: impl FnOnce(&mut FitmentSettings)) -> Self {
        Self::new().await.and_fitment(change)
    }

    /// Like [`World::with_fitment`], on the Redis at `redis_url`, which may be down.
    pub async fn with_fitment_on(redis_url: &str) -> Self {
        Self::on(redis_url).await.and_fitment(|_| ())
    }

    fn and_fitment(mut self, change: impl FnOnce(&mut FitmentSettings)) -> Self {
        let spool = self.dir.path().join("imports");
        std::fs::create_dir_all(&spool).unwrap();
        let mut settings = FitmentSettings::new(spool);
        change(&mut settings);
        self.origin = self.origin.with_fitment(settings);
        self.app = self.origin.public_routes();
        self.admin = self.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        self
    }

    /// Vehicle fitment of one more origin on this world's Redis and database.
    pub async fn fitment(&self, change: impl FnOnce(&mut FitmentSettings)) -> Fitment {
        let database = open_database(&self.database_url).await.unwrap();
        let redis = Redis::new(&self.redis_url, &self.prefix).unwrap();
        let mut settings = FitmentSettings::new(self.dir.path().join("imports"));
        change(&mut settings);
        let metrics = FitmentMetrics::register(&Metrics::default());
        Fitment::new(settings, database, redis, metrics)
    }

    /// Browse history of one more origin on this world's Redis and database.
    pub async fn history(&self, change: impl FnOnce(&mut HistorySettings)) -> History {
        let database = open_database(&self.database_url).await.unwrap();
        self.history_in(database, &self.redis_url, change)
    }

    /// Like [`World::history`], on another database or Redis.
    pub fn history_in(
        &self,
        database: Database,
        redis_url: &str,
        change: impl FnOnce(&mut HistorySettings),
    ) -> History {
        let redis = Redis::new(redis_url, &self.prefix).unwrap();
        let mut settings = HistorySettings::default();
        change(&mut settings);
        let metrics = HistoryMetrics::register(&Metrics::default());
        History::new(settings, database, redis, metrics)
    }

    /// The URL of the database.
    pub fn database_url(&self) -> String {
        self.database_url.clone()
    }

    /// A new empty database of this world's kind.
    pub async fn new_database(&self, name: &str) -> Database {
        let url = match backing() {
            Backing::SqliteAndSingle => format!("sqlite://{}/{name}.db", self.dir.path().display()),
            Backing::MySqlAndCluster => mysql_url().await,
        };
        open_database(&url).await.unwrap()
    }

    /// With a risk check that fails closed: a reservation counts only after its user has passed.
    pub async fn with_risk_failing_closed() -> Self {
        let redis_url = shared_redis().await;
        Self::with_store(&redis_url, None, SaleStore::with_risk_failing_closed).await
    }

    /// With order changes written for a webhook but never sent.
    pub async fn with_outbox() -> Self {
        let redis_url = shared_redis().await;
        Self::with_store(&redis_url, None, |store| {
            store.with_sinks(Sinks {
                webhook: true,
                events: false,
            })
        })
        .await
    }

    /// With short links in these domains, and a Redis that is down.
    pub async fn with_links_alone(domains: Value) -> Self {
        let links: LinkSetup = (domains, Box::new(|_| {}));
        Self::with("redis://127.0.0.1:1", Some(links)).await
    }

    async fn with(redis_url: &str, links: Option<LinkSetup>) -> Self {
        Self::with_store(redis_url, links, |store| store).await
    }

    async fn with_store(
        redis_url: &str,
        links: Option<LinkSetup>,
        change: fn(SaleStore) -> SaleStore,
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::tempdir().unwrap();
        let database_url = match backing() {
            Backing::SqliteAndSingle => format!("sqlite://{}/weir.db", dir.path().display()),
            Backing::MySqlAndCluster => mysql_url().await,
        };
        let database = open_database(&database_url).await.unwrap();
        let redis = Redis::new(redis_url, &prefix).unwrap();
        let ring = KeyRing::new(vec![key()]).unwrap();
        let store = change(SaleStore::new(database.clone()));
        let limits = SqlLimits::default();
        let mut origin = Origin::with_store(database, store, redis, ring, limits);
        origin = origin.with_payments(payments());
        let mut stop = None;
        if let Some((domains, change)) = links {
            let domains: DomainsConfig = serde_json::from_value(domains).unwrap();
            let mut settings = Settings::new(domains.checked().unwrap(), dir.path().join("links"));
            change(&mut settings);
            origin = origin.with_links(settings).await.unwrap();
            let token = CancellationToken::new();
            origin.links().unwrap().spawn(&token);
            stop = Some(token.drop_guard());
        }
        Self {
            _links: stop,
            events: None,
            app: origin.public_routes(),
            admin: origin.admin_routes(AdminToken::new(TOKEN).unwrap()),
            redis_url: redis_url.to_owned(),
            origin,
            prefix,
            dir,
            database_url,
        }
    }

    /// An origin of this site, on its Redis and the database of all sites.
    pub async fn at_site(site: &str, redis_url: &str, database_url: &str) -> Self {
        Self::of_site(Some(site.parse().unwrap()), redis_url, database_url).await
    }

    /// An origin without a site, on this Redis and this database.
    pub async fn alone(redis_url: &str, database_url: &str) -> Self {
        Self::of_site(None, redis_url, database_url).await
    }

    async fn of_site(site: Option<SiteName>, redis_url: &str, database_url: &str) -> Self {
        let database = open_database(database_url).await.unwrap();
        let redis = Redis::new(redis_url, "weir").unwrap();
        let ring = KeyRing::new(vec![key()]).unwrap();
        join_or_refuse(&database, site.as_ref()).await.unwrap();
        let store = SaleStore::new(database.clone()).at_site(site);
        let limits = SqlLimits::default();
        let origin = Origin::with_store(database, store, redis, ring, limits);
        let origin = origin.with_payments(payments());
        Self {
            _links: None,
            events: None,
            app: origin.public_routes(),
            admin: origin.admin_routes(AdminToken::new(TOKEN).unwrap()),
            redis_url: redis_url.to_owned(),
            origin,
            prefix: "weir".to_owned(),
            dir: tempfile::tempdir().unwrap(),
            database_url: database_url.to_owned(),
        }
    }

    /// With a loaded sale of `total` units.
    pub async fn with_sale(sale: &str, total: u64) -> Self {
        let world = Self::new().await;
        world.sale(sale, total).await;
        world
    }

    /// Creates and loads a sale.
    pub async fn sale(&self, sale: &str, total: u64) {
        let response = self.admin("POST", "/sales", &sale_json(sale, total)).await;
        assert_eq!(response.status, 201, "{response:?}");
        let path = format!("/sales/{sale}/warm");
        let warmed = self.admin("POST", &path, &Value::Null).await;
        assert_eq!(warmed.status, 200, "{warmed:?}");
    }
}
