//! The guarantees of [`SaleStore`], on every supported database.

use std::future::Future;

use weir_origin::origin::open_database;
use weir_origin::sales::model::sale::{NewSale, Payment, SaleFields, Window};
use weir_origin::sales::store::{
    CancelOutcome, EditRefusal, HoldRules, OrderOutcome, OrderStatus, PaymentOutcome,
    ReservationOutcome, SaleStore, SaleTotals, Score, Shortage, StoredOrder, UpdateOutcome,
};
use weir_origin::sql::{OpenError, sql};
use weir_sale::sale::{Degrade, SaleState};

use crate::support::{id, ticket, user};

/// Runs all calls at once.
pub async fn join_all<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.map(Box::pin).map(Some).collect();
    let mut answers: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            let Some(future) = call else { continue };
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                (*call, *answer) = (None, Some(value));
            }
        }
        match calls.iter().all(Option::is_none) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn is_new(placed: OrderOutcome) -> bool {
    matches!(placed, OrderOutcome::New(_))
}

fn new_sale(name: &str, total: u64, starts_at_ms: u64) -> NewSale {
    let sale = serde_json::json!({
        "id": name, "title": "Ein Ä", "total": total, "shards": 4, "user_cap": 3,
        "starts_at_ms": starts_at_ms, "ends_at_ms": starts_at_ms + 1_000, "warm_before_ms": null,
    });
    serde_json::from_value(sale).unwrap()
}

async fn create_sale(store: &SaleStore, total: u64, payment: Payment) {
    let sale = NewSale {
        fields: SaleFields {
            payment,
            ..new_sale("s", total, 1).fields
        },
        ..new_sale("s", total, 1)
    };
    assert!(store.create_sale(&sale, 1).await.unwrap());
}

/// Creates an order of the user at time 100.
async fn ordered(store: &SaleStore, name: &str, generation: u64) -> StoredOrder {
    let ticket = ticket("s", name, generation);
    match store.claims().place(&ticket, 100).await.unwrap() {
        OrderOutcome::New(order) => order,
        other => panic!("{other:?}"),
    }
}

/// Cancels an order by its user.
async fn cancel(store: &SaleStore, order: &StoredOrder, now_ms: u64) -> CancelOutcome {
    let rules = HoldRules::default();
    let cancelled = store
        .payments()
        .cancel(&order.id, &order.user, rules, now_ms)
        .await;
    cancelled.unwrap()
}

async fn totals(store: &SaleStore) -> SaleTotals {
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    let sum = totals.stored.remaining + totals.units_deducted;
    assert_eq!(sum, totals.stored.fields.total, "{totals:?}");
    totals
}

mod clicks;
mod orders;
mod payments;
mod sales;
mod users;

#[tokio::test]
async fn database_outlives_its_process_and_is_migrated_once() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    for new in [true, false] {
        let database = open_database(&url).await.unwrap();
        let store = SaleStore::new(database.clone());
        let _ = store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
        let placed = store
            .claims()
            .place(&ticket("s", "alice", 1), 2)
            .await
            .unwrap();
        assert_eq!(is_new(placed), new);
        database.close().await;
    }
}

/// An origin of the previous minor version must start on a schema of the next one, for a rollback.
async fn older_origin_runs_on_a_newer_schema(url: &str) {
    let database = open_database(url).await.unwrap();
    for newer in [
        "ALTER TABLE sales ADD COLUMN newer INTEGER NOT NULL DEFAULT 0",
        "INSERT INTO schema_sales (version, description, success, checksum, execution_time)
         SELECT 999, 'newer', success, checksum, 0 FROM schema_sales WHERE version = 1",
    ] {
        database.execute(sql(newer)).await.unwrap();
    }
    database.close().await;
    let store = SaleStore::new(open_database(url).await.unwrap());
    create_sale(&store, 5, Payment::AtOrder).await;
    ordered(&store, "alice", 1).await;
}

mod sqlite {
    #[tokio::test]
    async fn older_origin_runs_on_a_newer_schema() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/weir.db", dir.path().display());
        super::older_origin_runs_on_a_newer_schema(&url).await;
    }
}

mod mysql {
    #[tokio::test]
    async fn older_origin_runs_on_a_newer_schema() {
        super::older_origin_runs_on_a_newer_schema(&crate::support::mysql_url().await).await;
    }
}

mod postgres {
    #[tokio::test]
    async fn older_origin_runs_on_a_newer_schema() {
        super::older_origin_runs_on_a_newer_schema(&crate::support::postgres_url().await).await;
    }
}

#[tokio::test]
async fn sqlite_constraints_refuse_invalid_values() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    let store = SaleStore::new(open_database(&url).await.unwrap());
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let sql = sqlx::SqlitePool::connect(&url).await.unwrap();
    for forbidden in [
        "UPDATE stock SET remaining = -1",
        "UPDATE stock SET remaining = 'many'",
        "UPDATE sales SET state = 'ajar'",
    ] {
        let refused = sqlx::query(forbidden).execute(&sql).await;
        assert!(refused.is_err(), "{forbidden}");
    }
}

#[tokio::test]
async fn unsupported_database_urls_are_refused() {
    let open = |url: &'static str| async move { open_database(url).await.unwrap_err() };
    let other = open("oracle://user:hush@host/weir").await;
    assert!(matches!(other, OpenError::Unknown), "{other}");
    assert!(!format!("{other} {other:?}").contains("hush"));
    for url in ["sqlite::memory:", "sqlite://weir.db?mode=memory"] {
        let error = open(url).await;
        assert!(matches!(error, OpenError::InMemory), "{error}");
    }
    let broken = open("sqlite://weir.db?color=red").await;
    assert!(matches!(broken, OpenError::Url(_)), "{broken}");
    let absent = open("sqlite:///no/such/folder/weir.db").await;
    assert!(matches!(absent, OpenError::Connect(_)), "{absent}");
}
