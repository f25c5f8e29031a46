//! What the tests share: one Redis a test binary, a key prefix and a database a test.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, FromRow};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use weir_base::headers::{
    CLAIM, CLAIM_SIGNATURE, PAYMENT_SIGNATURE, PAYMENT_TIMESTAMP, USER, USER_SIGNATURE,
};
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_link::domain::DomainsConfig;
use weir_origin::Origin;
use weir_origin::clock::now_ms;
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
use weir_origin::redis::Redis;
use weir_origin::sales::archive::{ArchiveRules, Archiver};
use weir_origin::sales::orders::SqlLimits;
use weir_origin::sales::payment::Payments;
use weir_origin::sales::store::{HoldRules, SaleStore};
use weir_origin::sql::Database;
use weir_sale::claim::Ticket;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{Audit, Checks, ClaimReply, ClaimTerms};
use weir_sale::shard::home_shard;
use weir_scripts::{Call, Script, claim, keys};
use weir_stack::mariadb::MariaDbServer;
use weir_stack::redis::{RedisServer, start_cluster};
use weir_stack::report::Silent;
use weir_stack::{ports, tools};

use crate::BACKING;

/// The program.
pub fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || weir_stack::origin::ensure_built().unwrap();
    BUILT.get_or_init(built).clone()
}

/// How long the claims of the tests are held, in milliseconds.
pub const CLAIM_TTL_MS: u64 = 30_000;

pub const SECRET: &str = "claim-secret-claim-secret-claim-secret";
pub const PAYMENT_SECRET: &str = "payment-secret-payment-secret-payment";
pub const PREVIOUS_PAYMENT_SECRET: &str = "previous-secret-previous-secret-previous";
pub const TOKEN: &str = "admin-token-admin-token-admin-token";

/// The shards of [`World::sale`]'s sales.
pub const SHARDS: u32 = 4;

/// Which SQL and which Redis the tests of a binary have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each binary has one of them")]
pub enum Backing {
    /// A SQLite file a test, and one Redis.
    SqliteAndSingle,
    /// A database a test in one MariaDB, and a Redis Cluster of three.
    MySqlAndCluster,
}

/// A connection of the test's own to the origin's database.
pub enum Sql {
    Sqlite(SqliteConnection),
    MySql(MySqlConnection),
}

/// Runs tests of a store, each on an empty database of either kind.
#[allow(unused_macros, reason = "one of the binaries leaves these tests out")]
macro_rules! on_every_database {
    ($store:ident: $($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}/weir.db", dir.path().display());
                let database = weir_origin::origin::open_database(&url).await.unwrap();
                super::$name(&super::$store::new(database.clone())).await;
                database.close().await;
            })*
        }

        mod mysql {
            $(#[tokio::test]
            async fn $name() {
                let url = crate::support::mysql_url().await;
                let database = weir_origin::origin::open_database(&url).await.unwrap();
                super::$name(&super::$store::new(database.clone())).await;
                database.close().await;
            })*
        }
    };
}

/// One origin with a database and a part of Redis of its own.
pub struct World {
    pub origin: Origin,
    pub prefix: String,
    pub redis_url: String,
    pub dir: TempDir,
    /// What links have in the background goes on until this is dropped.
    _links: Option<DropGuard>,
    /// The same of events.
    pub events: Option<DropGuard>,
    database_url: String,
    app: Router,
    admin: Router,
}

/// Domains, and what differs from the usual settings.
type LinkSetup = (Value, Box<dyn FnOnce(&mut Settings)>);

/// An answer, whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The member `error` of problem details.
    pub fn code(&self) -> &str {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], self.status.as_u16());
        self.body["error"].as_str().unwrap()
    }

    pub fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap()
    }
}

/// A Redis of the caller's own.
pub async fn redis(dir: &TempDir) -> RedisServer {
    let tool = tools::Redis::find_or_get(&mut Silent).unwrap();
    let log = dir.path().join("redis.log");
    let port = ports::free().unwrap();
    RedisServer::start(&tool, port, dir.path(), &log)
        .await
        .unwrap()
}

/// An empty database of its own in the MariaDB that the tests of one binary share.
pub async fn mysql_url() -> String {
    static SERVER: OnceCell<(TempDir, MariaDbServer)> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::MariaDb::find_or_get(&mut Silent).unwrap();
        let log = dir.path().join("mariadb.log");
        let port = ports::free().unwrap();
        let server = MariaDbServer::start(&tool, port, dir.path(), &log)
            .await
            .unwrap();
        (dir, server)
    };
    let server = &SERVER.get_or_init(start).await.1;
    let mut sql = MySqlConnection::connect(&server.url("")).await.unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let create = format!("CREATE DATABASE t{number}");
    let create = sqlx::raw_sql(sqlx::AssertSqlSafe(create));
    create.execute(&mut sql).await.unwrap();
    server.url(&format!("t{number}"))
}

/// The Redis that the tests of one binary share.
async fn shared_redis() -> String {
    match BACKING {
        Backing::SqliteAndSingle => shared_server().await,
        Backing::MySqlAndCluster => shared_cluster().await,
    }
}

/// The URLs of its nodes, with commas between them.
async fn shared_cluster() -> String {
    static NODES: OnceCell<(TempDir, Vec<RedisServer>)> = OnceCell::const_new();
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut Silent).unwrap();
        let nodes = start_cluster(&tool, dir.path()).await.unwrap();
        (dir, nodes)
    };
    let nodes = &NODES.get_or_init(start).await.1;
    let urls: Vec<String> = nodes.iter().map(RedisServer::url).collect();
    urls.join(",")
}

async fn shared_server() -> String {
    static SERVER: OnceCell<(TempDir, RedisServer)> = OnceCell::const_new();
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let server = redis(&dir).await;
        (dir, server)
    };
    SERVER.get_or_init(start).await.1.url()
}

pub fn key() -> SigningKey {
    SigningKey::new("k1", SECRET.as_bytes()).unwrap()
}

/// A payment provider with two keys, as while a secret is changed.
fn payments() -> Payments {
    let key = |id, secret: &str| SigningKey::new(id, secret.as_bytes()).unwrap();
    let keys = vec![
        key("p1", PAYMENT_SECRET),
        key("p0", PREVIOUS_PAYMENT_SECRET),
    ];
    let pay_url = "https://pay.example/{payment}".to_owned();
    Payments::new(KeyRing::new(keys).unwrap(), Some(pay_url))
}

pub fn id(name: &str) -> SaleId {
    SaleId::new(name).unwrap()
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

/// A claim that no shard knows.
pub fn ticket(sale: &str, name: &str, generation: u64) -> Ticket {
    Ticket {
        sale: id(sale),
        shard: home_shard(&user(name), SHARDS),
        generation,
        quantity: 1,
        deadline_ms: now_ms() + 30_000,
        user: user(name),
    }
}

pub fn claim_headers(ticket: &Ticket) -> [(&'static str, Vec<u8>); 2] {
    let claim = ticket.encode();
    let signature = key().sign(&claim);
    [
        (CLAIM, claim.into_bytes()),
        (CLAIM_SIGNATURE, signature.into_bytes()),
    ]
}

/// A sale that is open now, as the admin gives it.
pub fn sale_json(sale: &str, total: u64) -> Value {
    json!({
        "id": sale, "title": "A sale", "total": total, "shards": SHARDS, "user_cap": 1,
        "starts_at_ms": now_ms() - 1_000, "ends_at_ms": now_ms() + 600_000,
    })
}

impl World {
    pub async fn new() -> Self {
        Self::on(&shared_redis().await).await
    }

    /// On the Redis at `redis_url`, which may be down.
    pub async fn on(redis_url: &str) -> Self {
        Self::with(redis_url, None).await
    }

    /// With these rules for what ended sales leave.
    pub async fn with_archive(rules: ArchiveRules) -> Self {
        let mut world = Self::new().await;
        world.origin = world.origin.with_archive(rules);
        world
    }

    /// An archiver with other rules.
    pub fn archiver(&self, rules: ArchiveRules) -> Archiver {
        self.origin.sales().clone().with_archive(rules).archiver()
    }

    /// The keys in Redis that are of this form, behind the test's prefix.
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

    /// The same, with edges that have these keys.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn and_edges(mut self, keys: KeyRing) -> Self {
        self.origin = self.origin.with_edges(Some(keys));
        self.app = self.origin.public_routes();
        self
    }

    /// The answer to a request to the public port, as it is.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub async fn raw(&self, request: Request<Body>) -> axum::response::Response {
        self.app.clone().oneshot(request).await.unwrap()
    }

    /// With these rules for holds that expire.
    pub async fn with_holds(rules: HoldRules) -> Self {
        let mut world = Self::new().await;
        world.origin = world.origin.with_holds(rules);
        world.app = world.origin.public_routes();
        world.admin = world.origin.admin_routes(AdminToken::new(TOKEN).unwrap());
        world
    }

    /// With short links under these domains.
    pub async fn with_links(domains: Value, change: impl FnOnce(&mut Settings) + 'static) -> Self {
        let links: LinkSetup = (domains, Box::new(change));
        Self::with(&shared_redis().await, Some(links)).await
    }

    /// With behaviour events, and a Redis that is down: they do not need it.
    pub async fn with_events(change: impl FnOnce(&mut events::Settings)) -> Self {
        let world = Self::with("redis://127.0.0.1:1", None).await;
        world.and_events(change).await
    }

    /// With behaviour events, in this folder and this database: what an earlier origin has left.
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
        settings.sync = weir_eventlog::Sync::Os;
        change(&mut settings);
        let deadline = Instant::now() + Duration::from_secs(60);
        // The threads of an earlier origin have the folder until they have ended.
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

    /// With vehicle fitment, of which nothing runs in the background.
    pub async fn with_fitment(change: impl FnOnce(&mut FitmentSettings)) -> Self {
        Self::new().await.and_fitment(change)
    }

    /// The same, on the Redis at `redis_url`, which may be down.
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

    /// Vehicle fitment on this world's Redis and database, as one more origin has it.
    pub async fn fitment(&self, change: impl FnOnce(&mut FitmentSettings)) -> Fitment {
        let database = open_database(&self.database_url).await.unwrap();
        let redis = Redis::new(&self.redis_url, &self.prefix).unwrap();
        let mut settings = FitmentSettings::new(self.dir.path().join("imports"));
        change(&mut settings);
        let metrics = FitmentMetrics::register(&Metrics::default());
        Fitment::new(settings, database, redis, metrics)
    }

    /// Browse history on this world's Redis and database, as one more origin has it.
    pub async fn history(&self, change: impl FnOnce(&mut HistorySettings)) -> History {
        let database = open_database(&self.database_url).await.unwrap();
        self.history_in(database, &self.redis_url, change)
    }

    /// The same, on another database or Redis.
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

    /// Where the database is.
    pub fn database_url(&self) -> String {
        self.database_url.clone()
    }

    /// An empty database of its own, of this world's kind.
    pub async fn new_database(&self, name: &str) -> Database {
        let url = match BACKING {
            Backing::SqliteAndSingle => format!("sqlite://{}/{name}.db", self.dir.path().display()),
            Backing::MySqlAndCluster => mysql_url().await,
        };
        open_database(&url).await.unwrap()
    }

    /// In which a reservation counts only once a risk check has passed its user.
    pub async fn with_risk_failing_closed() -> Self {
        let redis_url = shared_redis().await;
        Self::with_store(&redis_url, None, SaleStore::with_risk_failing_closed).await
    }

    /// With short links under these domains, and a Redis that is down.
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
        let database_url = match BACKING {
            Backing::SqliteAndSingle => format!("sqlite://{}/weir.db", dir.path().display()),
            Backing::MySqlAndCluster => mysql_url().await,
        };
        let database = open_database(&database_url).await.unwrap();
        let redis = Redis::new(redis_url, &prefix).unwrap();
        let ring = KeyRing::new(vec![key()]).unwrap();
        let store = change(SaleStore::new(database.clone()));
        let limits = SqlLimits::default();
        let mut origin = Origin::with_store(database, store, redis, ring, limits);
        origin = origin.with_payments(Some(payments()));
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

    /// With a warm sale of `total` units.
    pub async fn with_sale(sale: &str, total: u64) -> Self {
        let world = Self::new().await;
        world.sale(sale, total).await;
        world
    }

    /// Makes and warms a sale.
    pub async fn sale(&self, sale: &str, total: u64) {
        let made = self.admin("POST", "/sales", &sale_json(sale, total)).await;
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/sales/{sale}/warm");
        let warmed = self.admin("POST", &path, &Value::Null).await;
        assert_eq!(warmed.status, 200, "{warmed:?}");
    }

    /// A connection of the test's own to the database.
    pub async fn sql(&self) -> Sql {
        match BACKING {
            Backing::SqliteAndSingle => {
                let sql = SqliteConnection::connect(&self.database_url).await;
                Sql::Sqlite(sql.unwrap())
            }
            Backing::MySqlAndCluster => {
                let sql = MySqlConnection::connect(&self.database_url).await;
                Sql::MySql(sql.unwrap())
            }
        }
    }

    /// Holds what every order must write, as a slow transaction of another process does, until
    /// `ROLLBACK`: all of SQLite, the stock of MySQL.
    pub async fn lock_database(&self) -> Sql {
        let mut other = self.sql().await;
        if BACKING == Backing::SqliteAndSingle {
            other.execute("BEGIN IMMEDIATE", &[]).await;
        } else {
            other.execute("START TRANSACTION", &[]).await;
            other.execute("SELECT * FROM stock FOR UPDATE", &[]).await;
        }
        other
    }

    /// The only row of an answer of SQL.
    pub async fn row<R: SqlRow>(&self, query: &'static str) -> R {
        match self.sql().await {
            Sql::Sqlite(mut sql) => sqlx::query_as(query).fetch_one(&mut sql).await.unwrap(),
            Sql::MySql(mut sql) => sqlx::query_as(query).fetch_one(&mut sql).await.unwrap(),
        }
    }

    /// One number from SQL.
    pub async fn number(&self, query: &'static str) -> i64 {
        self.row::<(i64,)>(query).await.0
    }

    /// How many rows `orders`, `change_log` and `claim_outcomes` have.
    pub async fn rows(&self) -> [i64; 3] {
        [
            self.number("SELECT COUNT(*) FROM orders").await,
            self.number("SELECT COUNT(*) FROM change_log").await,
            self.number("SELECT COUNT(*) FROM claim_outcomes").await,
        ]
    }

    pub async fn remaining(&self) -> i64 {
        self.number("SELECT remaining FROM stock").await
    }

    /// Makes SQL and Redis disagree.
    pub async fn set_remaining(&self, units: i64) {
        let update = "UPDATE stock SET remaining = ?";
        let units = units.to_string();
        self.sql().await.execute(update, &[&units]).await;
    }

    /// One Redis command of the test's own.
    pub async fn redis(&self, command: &redis::Cmd) -> redis::Value {
        if !self.redis_url.contains(',') {
            let mut connection = weir_stack::redis::connect(&self.redis_url).await.unwrap();
            return command.query_async(&mut connection).await.unwrap();
        }
        let client = redis::cluster::ClusterClient::new(self.redis_url.split(',')).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    /// Claims a unit for `name` as a gateway does.
    pub async fn claim(&self, sale: &str, name: &str) -> Ticket {
        self.claim_at(sale, name, now_ms()).await
    }

    /// Claims a unit for `name` as a gateway does, while Redis' clock shows `now_ms`.
    pub async fn claim_at(&self, sale: &str, name: &str, now_ms: u64) -> Ticket {
        let claimed = self.try_claim_at(sale, name, now_ms).await;
        claimed.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// As [`World::claim_at`]; what a gateway hears if it gets none.
    pub async fn try_claim_at(
        &self,
        sale: &str,
        name: &str,
        now_ms: u64,
    ) -> Result<Ticket, ClaimReply> {
        let reply = self.try_claim(sale, name, None, 1, now_ms).await;
        self.ticket(sale, name, reply)
    }

    /// Claims a unit as a gateway does, for one of several orders that the user may have.
    pub async fn claim_with_cap(
        &self,
        sale: &str,
        name: &str,
        user_cap: u32,
    ) -> Result<Ticket, ClaimReply> {
        let reply = self.try_attempt(sale, name, None, user_cap).await;
        self.ticket(sale, name, reply)
    }

    /// What a gateway hears that asks for a claim now.
    pub async fn try_attempt(
        &self,
        sale: &str,
        name: &str,
        attempt: Option<AttemptTag>,
        user_cap: u32,
    ) -> ClaimReply {
        self.try_claim(sale, name, attempt, user_cap, now_ms())
            .await
    }

    async fn try_claim(
        &self,
        sale: &str,
        name: &str,
        attempt: Option<AttemptTag>,
        user_cap: u32,
        now_ms: u64,
    ) -> ClaimReply {
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap,
            quantity: 1,
            checks: Checks::default(),
        };
        let shard = home_shard(&user(name), SHARDS);
        self.try_terms(sale, shard, name, attempt, terms, now_ms)
            .await
    }

    /// Claims a unit of a sale of one shard, unless the user is blocked.
    pub async fn claim_as_gateways_do(&self, sale: &str, name: &str) -> Result<Ticket, ClaimReply> {
        let checks = Checks {
            blocked: true,
            ..Checks::default()
        };
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap: 1,
            quantity: 1,
            checks,
        };
        let reply = self.try_terms(sale, 0, name, None, terms, now_ms()).await;
        let ticket = self.ticket(sale, name, reply)?;
        Ok(Ticket { shard: 0, ..ticket })
    }

    async fn try_terms(
        &self,
        sale: &str,
        shard: u32,
        name: &str,
        attempt: Option<AttemptTag>,
        terms: ClaimTerms,
        now_ms: u64,
    ) -> ClaimReply {
        let (sale, user) = (id(sale), user(name));
        let group = claim::Group {
            keys: keys::ShardKeys::new(&self.prefix, &sale, shard),
            terms,
            users: vec![&user],
            attempts: vec![attempt],
        };
        let call = claim::call(&[group]);
        let reply = self.script_at(&call, now_ms).await;
        claim::parse(&reply, 1).unwrap()[0]
    }

    /// The ticket that a gateway makes of a grant.
    pub fn ticket(&self, sale: &str, name: &str, reply: ClaimReply) -> Result<Ticket, ClaimReply> {
        let (ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held)) = reply else {
            return Err(reply);
        };
        Ok(Ticket {
            sale: id(sale),
            shard: home_shard(&user(name), SHARDS),
            generation: held.generation,
            quantity: held.quantity,
            deadline_ms: held.deadline_ms,
            user: user(name),
        })
    }

    /// As [`World::script`], while Redis' clock shows `now_ms`.
    pub async fn script_at(&self, call: &Call, now_ms: u64) -> weir_resp::Value {
        let time = format!("{{'{}','{}'}}", now_ms / 1_000, now_ms % 1_000 * 1_000);
        let source = call.script.source.replace("redis.call('TIME')", &time);
        let script = Script {
            name: call.script.name,
            source: source.leak(),
        };
        let call = Call {
            script: Box::leak(Box::new(script)),
            ..call.clone()
        };
        self.script(&call).await
    }

    /// Runs a script over a connection of the test's own, in Weir's own encoding. Of a cluster it
    /// asks any node, which names the right one.
    pub async fn script(&self, call: &Call) -> weir_resp::Value {
        let first = self.redis_url.split(',').next().unwrap();
        let reply = run_script(first.strip_prefix("redis://").unwrap(), call).await;
        match &reply {
            weir_resp::Value::Error(error) if error.starts_with(b"MOVED ") => {
                let text = str::from_utf8(error).unwrap();
                run_script(text.rsplit(' ').next().unwrap(), call).await
            }
            _ => reply,
        }
    }

    pub async fn audit(&self, ticket: &Ticket) -> Audit {
        let audit = self
            .origin
            .sales()
            .ledger()
            .audit(&ticket.sale, ticket.shard)
            .await;
        audit.unwrap()
    }

    /// `POST /orders` with this claim.
    pub async fn order(&self, ticket: &Ticket) -> Answer {
        self.post_order(&claim_headers(ticket)).await
    }

    /// `POST /orders` with these headers.
    pub async fn post_order(&self, headers: &[(&str, Vec<u8>)]) -> Answer {
        let mut request = Request::post("/orders");
        for (name, value) in headers {
            request = request.header(*name, value.as_slice());
        }
        self.public(request.body(Body::empty()).unwrap()).await
    }

    /// A request of this user to the public port, as a gateway passes it on.
    pub async fn as_user(&self, name: &str, method: &str, path: &str) -> Answer {
        let ring = KeyRing::new(vec![key()]).unwrap();
        let signed = weir_sale::identity::sign(&ring, &user(name), now_ms());
        let request = Request::builder().method(method).uri(path);
        let request = request.header(USER, signed.value);
        let request = request.header(USER_SIGNATURE, signed.signature);
        self.public(request.body(Body::empty()).unwrap()).await
    }

    /// The same, with a body.
    pub async fn as_user_with(&self, name: &str, method: &str, path: &str, body: &Value) -> Answer {
        let ring = KeyRing::new(vec![key()]).unwrap();
        let signed = weir_sale::identity::sign(&ring, &user(name), now_ms());
        let request = Request::builder().method(method).uri(path);
        let request = request.header(USER, signed.value);
        let request = request.header(USER_SIGNATURE, signed.signature);
        self.public(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// Starts a payment of this order; its name.
    pub async fn start_payment(&self, name: &str, order_path: &str) -> String {
        let started = self
            .as_user(name, "POST", &format!("{order_path}/pay"))
            .await;
        assert!(started.status.is_success(), "{started:?}");
        started.body["payment"].as_str().unwrap().to_owned()
    }

    /// What the provider says of a payment, signed now with the key of now.
    pub async fn callback(&self, event: &str, payment: &str, state: &str) -> Answer {
        let body = json!({ "event": event, "payment": payment, "state": state }).to_string();
        let at_s = now_ms() / 1_000;
        self.callback_as("p1", PAYMENT_SECRET, at_s, &body, &body)
            .await
    }

    /// A callback of this body, with a signature of `signed`.
    pub async fn callback_as(
        &self,
        id: &str,
        secret: &str,
        at_s: u64,
        signed: &str,
        body: &str,
    ) -> Answer {
        let key = SigningKey::new(id, secret.as_bytes()).unwrap();
        let signature = key.sign(&format!("{at_s}.{signed}"));
        let request = Request::post("/payments/callback")
            .header(PAYMENT_TIMESTAMP, at_s.to_string())
            .header(PAYMENT_SIGNATURE, signature);
        self.public(request.body(Body::from(body.to_owned())).unwrap())
            .await
    }

    /// A user pays an order: starts a payment, and the provider says that it was made.
    pub async fn pay(&self, name: &str, order_path: &str) -> Answer {
        let payment = self.start_payment(name, order_path).await;
        self.callback(&format!("{payment}-paid"), &payment, "paid")
            .await
    }

    /// Makes and warms a sale that differs from [`sale_json`] in these members.
    pub async fn sale_with(&self, sale: &str, total: u64, members: Value) {
        let mut json = sale_json(sale, total);
        for (name, value) in members.as_object().unwrap() {
            json[name] = value.clone();
        }
        let made = self.admin("POST", "/sales", &json).await;
        assert_eq!(made.status, 201, "{made:?}");
        let path = format!("/sales/{sale}/warm");
        let warmed = self.admin("POST", &path, &Value::Null).await;
        assert_eq!(warmed.status, 200, "{warmed:?}");
    }

    /// A request to the public port.
    pub async fn public(&self, request: Request<Body>) -> Answer {
        answer(&self.app, request).await
    }

    /// A request to the admin port, with its token.
    pub async fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.admin_text(method, path, &body.to_string()).await
    }

    /// A request to the admin port, with its token and these headers.
    pub async fn admin_with(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        answer(&self.admin, request).await
    }

    /// What the admin port answers to a GET, as it is.
    pub async fn admin_bytes(&self, path: &str) -> Vec<u8> {
        let request = Request::get(path).header("authorization", format!("Bearer {TOKEN}"));
        bytes(&self.admin, request.body(Body::empty()).unwrap()).await
    }

    pub async fn admin_text(&self, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        self.admin_as(method, path, body, Some(&bearer)).await
    }

    /// A request to the admin port with this `authorization`.
    pub async fn admin_as(
        &self,
        method: &str,
        path: &str,
        body: &str,
        authorization: Option<&str>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        answer(&self.admin, request).await
    }
}

async fn bytes(router: &Router, request: Request<Body>) -> Vec<u8> {
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap();
    body.to_bytes().to_vec()
}

async fn run_script(address: &str, call: &Call) -> weir_resp::Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut out, mut input) = (Vec::new(), Vec::new());
    call.encode_eval(&mut out);
    stream.write_all(&out).await.unwrap();
    loop {
        stream.read_buf(&mut input).await.unwrap();
        match weir_resp::decode(&input) {
            Ok((value, _)) => return value,
            Err(weir_resp::DecodeError::Incomplete) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A row that either database can give.
pub trait SqlRow:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, MySqlRow> + Send + Unpin
{
}

impl<R> SqlRow for R where
    R: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, MySqlRow> + Send + Unpin
{
}

impl Sql {
    /// One statement with these values.
    pub async fn execute(&mut self, statement: &'static str, values: &[&str]) {
        match self {
            Self::Sqlite(sql) => {
                let query = values
                    .iter()
                    .fold(sqlx::query(statement), |q, v| q.bind(*v));
                query.execute(sql).await.unwrap();
            }
            Self::MySql(sql) => {
                let query = values
                    .iter()
                    .fold(sqlx::query(statement), |q, v| q.bind(*v));
                query.execute(sql).await.unwrap();
            }
        }
    }

    /// One statement with these bytes.
    pub async fn execute_bytes(&mut self, statement: &'static str, bytes: &[u8]) {
        match self {
            Self::Sqlite(sql) => drop(
                sqlx::query(statement)
                    .bind(bytes)
                    .execute(sql)
                    .await
                    .unwrap(),
            ),
            Self::MySql(sql) => drop(
                sqlx::query(statement)
                    .bind(bytes)
                    .execute(sql)
                    .await
                    .unwrap(),
            ),
        }
    }

    /// Ends what [`World::lock_database`] began.
    pub async fn unlock(mut self) {
        self.execute("ROLLBACK", &[]).await;
    }
}

async fn answer(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    Answer {
        status: head.status,
        headers: head.headers,
        body: match body.is_empty() {
            true => Value::Null,
            // Metrics are text.
            false => serde_json::from_slice(&body).unwrap_or_else(|_| text.clone().into()),
        },
    }
}
