//! The Redis, the MariaDB and the PostgreSQL that the tests of one binary share.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use weir_stack::mariadb::MariaDbServer;
use weir_stack::postgres::PostgresServer;
use weir_stack::redis::{RedisServer, start_cluster};
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

use super::*;

/// A Redis for this caller only.
pub async fn redis(dir: &TempDir) -> RedisServer {
    let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
    let log = dir.path().join("redis.log");
    let port = ports::free().unwrap();
    RedisServer::start(&tool, port, dir.path(), &log)
        .await
        .unwrap()
}

/// A new empty database in the MariaDB that the tests of one binary share.
pub async fn mysql_url() -> String {
    static SERVER: OnceCell<(TempDir, MariaDbServer)> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::MariaDb::find_or_get(&mut SilentReporter).unwrap();
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

/// Tests survive the end of a process, but none ends the machine. Waiting for the disk takes most of their time.
const WITHOUT_DISK: &[&str] = &["fsync=off", "full_page_writes=off"];

/// A PostgreSQL for this caller only, with the settings that the origin needs.
pub async fn postgres(dir: &TempDir) -> PostgresServer {
    start_postgres(dir, &[]).await
}

async fn start_postgres(dir: &TempDir, settings: &'static [&'static str]) -> PostgresServer {
    let tool = tools::Postgres::find_or_get(&mut SilentReporter).unwrap();
    let log = dir.path().join("postgres.log");
    let port = ports::free().unwrap();
    PostgresServer::start(&tool, port, dir.path(), &log, settings)
        .await
        .unwrap()
}

/// A new empty database in the PostgreSQL that the tests of one binary share.
pub async fn postgres_url() -> String {
    static SERVER: OnceCell<(TempDir, PostgresServer)> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let server = start_postgres(&dir, WITHOUT_DISK).await;
        (dir, server)
    };
    let server = &SERVER.get_or_init(start).await.1;
    let admin = server.url("postgres");
    let mut sql = PgConnection::connect(&admin).await.unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let create = format!("CREATE DATABASE t{number}");
    let create = sqlx::raw_sql(sqlx::AssertSqlSafe(create));
    create.execute(&mut sql).await.unwrap();
    server.url(&format!("t{number}"))
}

/// The Redis that the tests of one binary share.
pub(super) async fn shared_redis() -> String {
    match backing() {
        Backing::SqliteAndSingle | Backing::PostgresAndSingle => shared_server().await,
        Backing::MySqlAndCluster => shared_cluster().await,
    }
}

/// The URLs of its nodes, separated by commas.
async fn shared_cluster() -> String {
    static NODES: OnceCell<(TempDir, Vec<RedisServer>)> = OnceCell::const_new();
    let start = || async {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
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
