//! Events pulled from third-party tables on real SQLite, MariaDB and PostgreSQL.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, SqlitePool};
use weir_origin::background::Backoff;
use weir_origin::events::groups::{Delivery, HandleFuture, Handler, NewGroup, Outcome};
use weir_origin::events::pull::{Destination, Pull, TableSource};

use super::*;
use crate::support::{Sql, mysql_url, postgres_url};

const CREATE: &str = "CREATE TABLE shop_orders (id BIGINT PRIMARY KEY, customer VARCHAR(64))";
const INSERT: &str = "INSERT INTO shop_orders (id, customer) VALUES (?, ?)";

const SQLITE_QUERY: &str = "
    SELECT id AS position,
        CASE customer WHEN 'broken' THEN '{\"type\"' WHEN 'nobody' THEN NULL
        ELSE json_object('id', 'order-' || id, 'type', 'view', 'customer', customer) END AS event
    FROM shop_orders WHERE id > {cursor} ORDER BY id LIMIT {limit}";

const MYSQL_QUERY: &str = "
    SELECT id AS position,
        CASE customer WHEN 'broken' THEN '{\"type\"' WHEN 'nobody' THEN NULL
        ELSE JSON_OBJECT('id', CONCAT('order-', id), 'type', 'view', 'customer', customer) END AS event
    FROM shop_orders WHERE id > {cursor} ORDER BY id LIMIT {limit}";

const POSTGRES_QUERY: &str = "
    SELECT id AS position,
        CASE customer WHEN 'broken' THEN '{\"type\"' WHEN 'nobody' THEN NULL
        ELSE json_build_object('id', 'order-' || id, 'type', 'view', 'customer', customer)::TEXT END AS event
    FROM shop_orders WHERE id > {cursor} ORDER BY id LIMIT {limit}";

/// A table in a database that is not the origin's.
struct Shop {
    url: String,
    query: &'static str,
    _dir: tempfile::TempDir,
}

impl Shop {
    async fn in_sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.db");
        let options = SqliteConnectOptions::new().filename(&path);
        let pool = SqlitePool::connect_with(options.create_if_missing(true)).await;
        pool.unwrap().close().await;
        let shop = Self {
            url: format!("sqlite://{}", path.display()),
            query: SQLITE_QUERY,
            _dir: dir,
        };
        shop.sql().await.execute(CREATE, &[]).await;
        shop
    }

    async fn in_mariadb() -> Self {
        let shop = Self {
            url: mysql_url().await,
            query: MYSQL_QUERY,
            _dir: tempfile::tempdir().unwrap(),
        };
        shop.sql().await.execute(CREATE, &[]).await;
        shop
    }

    async fn in_postgres() -> Self {
        let shop = Self {
            url: postgres_url().await,
            query: POSTGRES_QUERY,
            _dir: tempfile::tempdir().unwrap(),
        };
        shop.sql().await.execute(CREATE, &[]).await;
        shop
    }

    /// A connection to the shop's database.
    async fn sql(&self) -> Sql {
        match self.query {
            SQLITE_QUERY => Sql::Sqlite(SqliteConnection::connect(&self.url).await.unwrap()),
            MYSQL_QUERY => Sql::MariaDb(MySqlConnection::connect(&self.url).await.unwrap()),
            _ => Sql::Postgres(PgConnection::connect(&self.url).await.unwrap()),
        }
    }

    async fn sell(&self, orders: impl IntoIterator<Item = u32>) {
        let mut sql = self.sql().await;
        for order in orders {
            sql.execute(INSERT, &[&order.to_string(), "alice"]).await;
        }
    }

    fn pull(&self) -> Pull {
        let source = TableSource::new(&self.url, self.query, 300_000, Arc::new(now_ms));
        Pull {
            name: KeyName::new("shop").unwrap(),
            every: Duration::from_millis(20),
            backoff: Backoff::constant(Duration::from_millis(20)),
            source: Arc::new(source.unwrap()),
            destination: Destination::Log,
        }
    }
}

/// How often each event was in the log.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<Mutex<BTreeMap<String, usize>>>);

impl Handler for Counting {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
        Box::pin(async move {
            let mut counts = self.0.lock().unwrap();
            let count = |event: &Delivery| {
                let id = event.envelope.id.as_str().to_owned();
                *counts.entry(id).or_default() += 1;
                Outcome::Done
            };
            events.iter().map(count).collect()
        })
    }
}

impl Counting {
    fn group(&self) -> NewGroup {
        NewGroup::new("counting", Arc::new(self.clone()))
    }

    /// Waits for this many events, each once in the log.
    async fn until_each_once(&self, count: usize) {
        until("counted", async || self.0.lock().unwrap().len() >= count).await;
        let counts = self.0.lock().unwrap();
        assert_eq!(counts.len(), count);
        let doubled: Vec<_> = counts.iter().filter(|(_, n)| **n != 1).collect();
        assert!(doubled.is_empty(), "{doubled:?}");
    }
}

async fn pulled(world: &World, n: usize) -> Value {
    let body = world.admin("GET", "/events/pulls", &Value::Null).await.body;
    body["pulls"][n].clone()
}

async fn until_at(world: &World, cursor: &str) {
    until(&format!("at {cursor}"), async || {
        pulled(world, 0).await["cursor"] == cursor
    })
    .await;
}

/// Waits until SQL has the positions of the collector and the group. An earlier stop may repeat the last step.
async fn until_noted(world: &World) {
    for _ in 0..2 {
        let before = pulled(world, 0).await["fetched_at_ms"].clone();
        until("another round", async || {
            pulled(world, 0).await["fetched_at_ms"] != before
        })
        .await;
    }
    until_caught_up(world, "counting").await;
}

/// A world with a type `view`, then this collector and a counting group.
async fn pulling(world: World, pull: Pull, counting: &Counting) -> World {
    let group = counting.group();
    world
        .with_events_again(|settings| {
            settings.pulls.push(pull);
            settings.groups.push(group);
        })
        .await
}

async fn late_rows_are_fetched_exactly_once(shop: Shop) {
    let counting = Counting::default();
    shop.sell((1..=4).chain(7..=20)).await;
    let world = pulling(world(|_| {}).await, shop.pull(), &counting).await;
    until_at(&world, "20").await;
    counting.until_each_once(18).await;
    // Rows with smaller numbers that appear after greater ones were taken.
    shop.sell([6]).await;
    counting.until_each_once(19).await;
    until_noted(&world).await;
    // Another process also finds late rows.
    let world = pulling(world, shop.pull(), &counting).await;
    shop.sell([21]).await;
    until_at(&world, "21").await;
    shop.sell([5]).await;
    counting.until_each_once(21).await;
    until_caught_up(&world, "store").await;
    assert_eq!(stored(&world, "alice").await.len(), 21);
    assert!(dead_letters(&world, "").await.is_empty());
}

#[tokio::test]
async fn late_rows_of_sqlite_are_pulled_exactly_once() {
    late_rows_are_fetched_exactly_once(Shop::in_sqlite().await).await;
}

#[tokio::test]
async fn late_rows_of_mariadb_are_pulled_exactly_once() {
    late_rows_are_fetched_exactly_once(Shop::in_mariadb().await).await;
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn late_rows_are_pulled_exactly_once() {
        late_rows_are_fetched_exactly_once(Shop::in_postgres().await).await;
    }
}

#[tokio::test]
async fn late_commit_loses_no_row() {
    let shop = Shop::in_mariadb().await;
    let mut slow = shop.sql().await;
    slow.execute("START TRANSACTION", &[]).await;
    slow.execute(INSERT, &["2", "alice"]).await;
    shop.sell([1, 3]).await;
    let counting = Counting::default();
    let world = pulling(world(|_| {}).await, shop.pull(), &counting).await;
    until_at(&world, "3").await;
    counting.until_each_once(2).await;
    slow.execute("COMMIT", &[]).await;
    counting.until_each_once(3).await;
}

#[tokio::test]
async fn long_table_with_gaps_is_pulled_page_by_page() {
    let shop = Shop::in_sqlite().await;
    let fill = "
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
        INSERT INTO shop_orders SELECT i, 'alice' FROM n WHERE i % 10 <> 0";
    shop.sql().await.execute(fill, &[]).await;
    let counting = Counting::default();
    let world = pulling(world(|_| {}).await, shop.pull(), &counting).await;
    counting.until_each_once(5_400).await;
    shop.sell([10, 3_000]).await;
    counting.until_each_once(5_402).await;
    until_at(&world, "5999").await;
}

#[tokio::test]
async fn invalid_rows_become_dead_letters_and_block_nothing() {
    let shop = Shop::in_sqlite().await;
    let mut sql = shop.sql().await;
    sql.execute(INSERT, &["1", "broken"]).await;
    sql.execute(INSERT, &["2", "nobody"]).await;
    shop.sell([3]).await;
    let counting = Counting::default();
    let world = pulling(world(|_| {}).await, shop.pull(), &counting).await;
    counting.until_each_once(1).await;
    let letters = until_dead(&world, "reason=invalid", 2).await;
    let mut texts: Vec<&str> = letters
        .iter()
        .map(|letter| letter["sent"]["event"].as_str().unwrap())
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, [r#""{\"type\"""#, "null"]);
}

#[tokio::test]
async fn failing_table_is_reported_and_stops_no_other() {
    let (broken, shop) = (Shop::in_sqlite().await, Shop::in_mariadb().await);
    let unordered = "
        SELECT id AS position, '{}' AS event FROM shop_orders
        WHERE id > {cursor} ORDER BY id DESC LIMIT {limit}";
    broken.sell([1, 2]).await;
    shop.sell([1]).await;
    let source = TableSource::new(&broken.url, unordered, 1_000, Arc::new(now_ms));
    let first = Pull {
        name: KeyName::new("broken").unwrap(),
        source: Arc::new(source.unwrap()),
        ..shop.pull()
    };
    let counting = Counting::default();
    let world = world(|_| {}).await;
    let world = world
        .with_events_again(|settings| {
            settings.pulls.extend([first, shop.pull()]);
            settings.groups.push(counting.group());
        })
        .await;
    counting.until_each_once(1).await;
    until("a failure is told", async || {
        pulled(&world, 0).await["failures"] != 0
    })
    .await;
    let response = pulled(&world, 0).await;
    let error = response["error"].as_str().unwrap();
    assert!(error.contains("must be ordered by position"), "{error}");
    assert_eq!(response["cursor"], "");
    assert_eq!(pulled(&world, 1).await["failures"], 0);

    // The table disappears and returns.
    let mut sql = shop.sql().await;
    sql.execute("RENAME TABLE shop_orders TO away", &[]).await;
    until("the other fails", async || {
        pulled(&world, 1).await["failures"] != 0
    })
    .await;
    sql.execute("RENAME TABLE away TO shop_orders", &[]).await;
    shop.sell([2]).await;
    counting.until_each_once(2).await;
    until("it works again", async || {
        pulled(&world, 1).await["failures"] == 0
    })
    .await;
}

#[tokio::test]
async fn pull_query_that_writes_is_refused() {
    let shop = Shop::in_sqlite().await;
    let maria = Shop::in_mariadb().await;
    for shop in [&shop, &maria] {
        let foreign = weir_origin::sql::foreign::ForeignDatabase::new(&shop.url).unwrap();
        let write = "INSERT INTO shop_orders (id) VALUES (?)";
        let refused = foreign.rows(write, &[1]).await.unwrap_err().to_string();
        let is_said = refused.contains("readonly") || refused.contains("READ ONLY");
        assert!(is_said, "{refused}");
    }
}
