//! Guarantees that the origin adds to PostgreSQL's own.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::Barrier;
use weir_origin::origin::open_database;
use weir_origin::sql::{OpenError, retried, sql};

use crate::support::{postgres, postgres_url};

#[tokio::test]
async fn deadlocked_transactions_are_repeated() {
    let database = open_database(&postgres_url().await).await.unwrap();
    for name in ["a", "b"] {
        let insert = sql("INSERT INTO settings (name, value) VALUES (?, '')").text(name);
        assert!(database.insert(insert).await.unwrap());
    }
    let both_hold_a_lock = Barrier::new(2);
    let change = async |first: &'static str, second: &'static str| {
        let tries = AtomicU32::new(0);
        let update = |name| sql("UPDATE settings SET value = 'c' WHERE name = ?").text(name);
        let once = async || {
            let mut tx = database.begin().await?;
            tx.execute(update(first)).await?;
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                both_hold_a_lock.wait().await;
            }
            tx.execute(update(second)).await?;
            tx.commit().await
        };
        retried(once).await.unwrap();
        tries.load(Ordering::Relaxed)
    };
    let (one, other) = tokio::join!(change("a", "b"), change("b", "a"));
    assert_eq!(one + other, 3);
}

#[tokio::test]
async fn existing_key_does_not_end_the_transaction() {
    let database = open_database(&postgres_url().await).await.unwrap();
    let one = |name| sql("INSERT INTO settings (name, value) VALUES (?, '')").text(name);
    let two = |first, second| {
        let insert = sql("INSERT INTO settings (name, value) VALUES (?, ''), (?, '')");
        insert.text(first).text(second)
    };
    let mut tx = database.begin().await.unwrap();
    assert!(tx.insert(one("a")).await.unwrap());
    assert!(!tx.insert(one("a")).await.unwrap());
    assert!(!tx.insert_all(two("b", "a")).await.unwrap());
    assert!(tx.insert_all(two("b", "c")).await.unwrap());
    tx.commit().await.unwrap();
    let select = sql("SELECT COUNT(*) AS n FROM settings");
    let row = database.one(select).await.unwrap().unwrap();
    assert_eq!(row.signed("n").unwrap(), 3);
}

#[tokio::test]
async fn standby_is_refused_until_its_promotion() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = postgres(&dir).await;
    let url = server.url("postgres");
    let database = open_database(&url).await.unwrap();
    server.process().kill();
    server.start_as_standby().await.unwrap();
    let refused: OpenError = open_database(&url).await.unwrap_err();
    assert!(refused.is_away(), "{refused}");
    database.ping().await.unwrap_err();
    let mut sql = PgConnection::connect(&url).await.unwrap();
    let promote = sqlx::query("SELECT pg_promote()");
    promote.execute(&mut sql).await.unwrap();
    database.ping().await.unwrap();
    open_database(&url).await.unwrap();
}

#[tokio::test]
async fn other_encodings_are_refused() {
    let url = postgres_url().await;
    let mut sql = PgConnection::connect(&url).await.unwrap();
    let create = "CREATE DATABASE other ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' \
        LC_CTYPE 'C' LOCALE_PROVIDER libc";
    sqlx::raw_sql(create).execute(&mut sql).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let refused = open_database(&format!("{server}/other")).await.unwrap_err();
    assert!(
        matches!(&refused, OpenError::Encoding(name) if name == "LATIN1"),
        "{refused}"
    );
}
