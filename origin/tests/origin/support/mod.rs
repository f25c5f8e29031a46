//! Shared by the tests: one Redis per binary, and a key prefix and a database per test.

mod claims;
pub mod contract;
pub mod requests;
mod servers;
mod sql;
mod world;

use std::path::PathBuf;
use std::sync::OnceLock;

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE};
use weir_base::id::{SaleId, UserId};
use weir_base::key::SigningKey;
use weir_origin::clock::now_ms;
use weir_sale::claim::Ticket;
use weir_sale::shard::home_shard;

use servers::shared_redis;
pub use servers::{mysql_url, postgres, postgres_url, redis};
pub use sql::Sql;
pub use world::World;

/// The path of the origin's binary.
pub fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || weir_stack::origin::ensure_built().unwrap();
    BUILT.get_or_init(built).clone()
}

/// Hold time of claims in the tests, in milliseconds.
pub const CLAIM_TTL_MS: u64 = 30_000;

pub const SECRET: &str = "claim-secret-claim-secret-claim-secret";
pub const PAYMENT_SECRET: &str = "payment-secret-payment-secret-payment";
pub const PREVIOUS_PAYMENT_SECRET: &str = "previous-secret-previous-secret-previous";
pub const TOKEN: &str = "admin-token-admin-token-admin-token";

/// Number of shards of sales created by [`World::sale`].
pub const SHARDS: u32 = 4;

/// The SQL database and Redis of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A SQLite file per test, and one Redis.
    SqliteAndSingle,
    /// A database per test in one MariaDB, and a Redis Cluster with three nodes.
    MySqlAndCluster,
    /// A database per test in one PostgreSQL, and one Redis.
    PostgresAndSingle,
}

/// The backing of this run: `cargo xtask test --all` runs the tests once with each.
pub fn backing() -> Backing {
    match std::env::var("WEIR_TEST_BACKING").as_deref() {
        Ok("mysql-and-cluster") => Backing::MySqlAndCluster,
        Ok("postgres") => Backing::PostgresAndSingle,
        Ok(other) => {
            panic!("WEIR_TEST_BACKING is mysql-and-cluster, postgres or not set, not {other:?}")
        }
        Err(_) => Backing::SqliteAndSingle,
    }
}

/// Runs tests of a store, each on an empty database of each kind.
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

        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                let url = crate::support::postgres_url().await;
                let database = weir_origin::origin::open_database(&url).await.unwrap();
                super::$name(&super::$store::new(database.clone())).await;
                database.close().await;
            })*
        }
    };
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The field `error` of problem details.
    pub fn code(&self) -> &str {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], self.status.as_u16());
        self.body["error"].as_str().unwrap()
    }

    pub fn detail(&self) -> &str {
        self.body["detail"].as_str().unwrap()
    }
}

pub fn key() -> SigningKey {
    SigningKey::new("k1", SECRET.as_bytes()).unwrap()
}

pub fn id(name: &str) -> SaleId {
    SaleId::new(name).unwrap()
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

/// A claim that exists in no shard.
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

/// A sale that is open now, as the admin API returns it.
pub fn sale_json(sale: &str, total: u64) -> Value {
    json!({
        "id": sale, "title": "A sale", "total": total, "shards": SHARDS, "user_cap": 1,
        "starts_at_ms": now_ms() - 1_000, "ends_at_ms": now_ms() + 600_000, "warm_before_ms": null,
    })
}
