//! Lists in Cassandra: one write per version, folds, and waits during an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::cmd;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use weir_base::id::UserId;
use weir_history::{COLD_MS, DAY_MS, Owner, Sku, ViewedProduct};
use weir_origin::clock::now_ms;
use weir_origin::history::cql::CqlStore;
use weir_origin::history::model::cold::{ColdStore, StoredList};
use weir_origin::history::{History, Settings, View};
use weir_stack::cassandra::CassandraServer;
use weir_stack::report::SilentReporter;
use weir_stack::tools;

use crate::support::World;

/// Time limit of a wait: Cassandra restarts meanwhile.
const LIMIT: Duration = Duration::from_secs(180);

async fn cassandra() -> (TempDir, CassandraServer) {
    let dir = tempfile::tempdir().unwrap();
    let tool = tools::Cassandra::find_or_get(&mut SilentReporter).unwrap();
    let log = dir.path().join("cassandra.log");
    let server = CassandraServer::start(&tool, dir.path(), &log)
        .await
        .unwrap();
    (dir, server)
}

fn url(server: &CassandraServer) -> String {
    format!("cql://{}/shop?replicas=1", server.address())
}

async fn until(subject: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_connected(store: &dyn ColdStore) {
    until("a connection", async || {
        store.read(&user("nobody")).await.is_ok()
    })
    .await;
}

fn user(name: &str) -> Owner {
    Owner::user(&UserId::new(name).unwrap())
}

fn views(pairs: &[(u64, u64)]) -> Vec<ViewedProduct> {
    let observed = |(sku, at_ms): &(u64, u64)| ViewedProduct {
        sku: Sku::from(*sku),
        at_ms: *at_ms,
    };
    pairs.iter().map(observed).collect()
}

/// A test's session.
async fn session(server: &CassandraServer) -> Session {
    SessionBuilder::new()
        .known_node(server.address())
        .build()
        .await
        .unwrap()
}

/// The TTL of a list in Cassandra, in seconds.
async fn life_s(session: &Session, owner: &Owner) -> Option<i32> {
    let select = "SELECT ttl(value) FROM shop.history_cold WHERE owner_key = ?";
    let key = weir_history::cold::key(owner);
    let rows = session.query_unpaged(select, (key,)).await.unwrap();
    let rows = rows.into_rows_result().unwrap();
    let row = rows.maybe_first_row::<(Option<i32>,)>().unwrap();
    row.and_then(|(life_s,)| life_s)
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_written_once_per_version_and_expires() {
    let (_dir, server) = cassandra().await;
    let store = CqlStore::open(&url(&server), Arc::new(now_ms)).unwrap();
    until_connected(&store).await;
    let (alice, now) = (user("alice"), now_ms());
    let (one, two) = (views(&[(1, now - 9)]), views(&[(2, now - 5), (1, now - 9)]));
    assert_eq!(store.read(&alice).await.unwrap(), StoredList::default());
    assert!(store.write(&alice, None, &[]).await.unwrap());
    assert!(store.write(&alice, None, &one).await.unwrap());
    assert!(!store.write(&alice, None, &two).await.unwrap());
    let first = store.read(&alice).await.unwrap();
    assert_eq!(first.views, one);
    assert!(store.write(&alice, first.version, &two).await.unwrap());
    assert!(!store.write(&alice, first.version, &one).await.unwrap());
    let second = store.read(&alice).await.unwrap();
    assert_eq!(second.views, two);
    assert_eq!(second.version, first.version.map(|version| version + 1));
    // Deleted, only at its version. An earlier reader then cannot overwrite a newer list.
    assert!(!store.write(&alice, first.version, &[]).await.unwrap());
    assert!(store.write(&alice, second.version, &[]).await.unwrap());
    assert!(!store.write(&alice, second.version, &one).await.unwrap());
    assert!(store.write(&alice, None, &one).await.unwrap());
    store.forget(&alice).await.unwrap();
    store.forget(&alice).await.unwrap();
    assert_eq!(store.read(&alice).await.unwrap(), StoredList::default());
    assert_eq!(store.forget_older(now, 10).await.unwrap(), 0);

    // A list with an old view expires soon, one with a new view in 62 days; a later view extends its life.
    let session = session(&server).await;
    let bob = user("bob");
    assert!(
        store
            .write(&bob, None, &views(&[(1, now - COLD_MS + 60_000)]))
            .await
            .unwrap()
    );
    let short = life_s(&session, &bob).await.unwrap();
    assert!((1..=61).contains(&short), "{short}");
    let version = store.read(&bob).await.unwrap().version;
    assert!(
        store
            .write(&bob, version, &views(&[(1, now)]))
            .await
            .unwrap()
    );
    let long = i64::from(life_s(&session, &bob).await.unwrap());
    let most = COLD_MS as i64 / 1_000;
    assert!((most - 600..=most).contains(&long), "{long}");
    assert!(
        store
            .write(&user("carol"), None, &views(&[(1, now - COLD_MS + 1_000)]))
            .await
            .unwrap()
    );
    until("it has ended", async || {
        store.read(&user("carol")).await.unwrap() == StoredList::default()
    })
    .await;

    // Two writers: each version is written by one of them.
    let dave = user("dave");
    let mut writers = Vec::new();
    for n in 0..8_u64 {
        let (store, dave) = (store.clone(), dave.clone());
        writers.push(tokio::spawn(async move {
            for _ in 0..100 {
                let stored = store.read(&dave).await.unwrap();
                let mut all = stored.views.clone();
                all.insert(
                    0,
                    ViewedProduct {
                        sku: Sku::from(n),
                        at_ms: now + n,
                    },
                );
                all.sort_unstable_by(ViewedProduct::newest_first);
                // Contention may cause a timeout: the result is unknown, so it is read again.
                match store.write(&dave, stored.version, &all).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(_) => {
                        let is_there = |product: &ViewedProduct| product.sku == Sku::from(n);
                        if store.read(&dave).await.unwrap().views.iter().any(is_there) {
                            return;
                        }
                    }
                }
            }
            panic!("never written");
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let mut skus: Vec<Sku> = store
        .read(&dave)
        .await
        .unwrap()
        .views
        .into_iter()
        .map(|product| product.sku)
        .collect();
    skus.dedup();
    assert_eq!(skus.len(), 8, "a writer has written over another: {skus:?}");
}

/// A clock that the test sets.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn set(&self, settings: &mut Settings) {
        let clock = self.0.clone();
        settings.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    }
}

async fn list(history: &History, owner: &Owner) -> (Vec<u64>, bool) {
    let page = history.list(owner, 200, None).await.unwrap();
    let sku = |item: &weir_origin::history::read::Item| item.observed.sku.as_str().parse().unwrap();
    (page.items.iter().map(sku).collect(), page.is_complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn fold_waits_without_cassandra_and_reads_follow_the_switch() {
    let (_dir, mut server) = cassandra().await;
    let world = World::new().await;
    let noon = now_ms() / DAY_MS * DAY_MS + DAY_MS / 2;
    let clock = Clock(Arc::new(AtomicU64::new(noon)));
    let history = |has_cold_reads| {
        let store = CqlStore::open(&url(&server), Arc::new(now_ms)).unwrap();
        let clock = clock.clone();
        world.history(move |settings| {
            clock.set(settings);
            settings.has_cold_reads = has_cold_reads;
            settings.cold = Some(Arc::new(store));
        })
    };
    let (all, hot_only) = (history(true).await, history(false).await);
    until_connected(all.cold()).await;
    let stop = CancellationToken::new();
    all.fold(&stop).await.unwrap();
    let alice = user("alice");
    let view = |sku: u64, at_ms| View {
        owner: alice.clone(),
        sku: Sku::from(sku),
        at_ms,
    };
    all.record(&[view(1, noon - 9), view(2, noon - 5)])
        .await
        .unwrap();
    clock.0.fetch_add(DAY_MS, Ordering::Relaxed);

    server.process().kill();
    for _ in 0..2 {
        all.fold(&stop).await.unwrap_err();
        // The lease of the previous holder has expired.
        clock.0.fetch_add(60_000, Ordering::Relaxed);
    }
    // Without the cold store, the answer contains the views in Redis without removed ones. It is marked as incomplete,
    // unless cold reads are off.
    all.delete(&alice, &[Sku::from(1)]).await.unwrap();
    assert_eq!(list(&all, &alice).await, (vec![2], false));
    assert_eq!(list(&hot_only, &alice).await, (vec![2], true));

    server.start_again().await.unwrap();
    until("the fold goes on", async || {
        // Like the background job: a holder loses its part of a day after a while.
        clock.0.fetch_add(60_000, Ordering::Relaxed);
        all.fold(&stop).await.is_ok() && !all.cold().read(&alice).await.unwrap().views.is_empty()
    })
    .await;
    assert_eq!(
        all.cold().read(&alice).await.unwrap().views,
        views(&[(2, noon - 5)])
    );
    // Redis loses all data: the cold store has the views, and deleted ones stay deleted.
    for key in world.keys("h:*").await {
        world.redis(cmd("DEL").arg(key)).await;
    }
    assert_eq!(list(&hot_only, &alice).await, (vec![], true));
    assert_eq!(list(&all, &alice).await, (vec![2], true));
}

#[tokio::test]
async fn store_that_never_started_is_reported_and_blocks_nothing() {
    let world = World::new().await;
    let store = CqlStore::open("cql://127.0.0.1:1/shop", Arc::new(now_ms)).unwrap();
    let history = world
        .history(|settings| settings.cold = Some(Arc::new(store)))
        .await;
    let alice = user("alice");
    let view = View {
        owner: alice.clone(),
        sku: Sku::from(1),
        at_ms: now_ms(),
    };
    history.record(&[view]).await.unwrap();
    assert_eq!(list(&history, &alice).await, (vec![1], false));
    let reply = history.cold().read(&alice).await.unwrap_err().to_string();
    assert!(reply.contains("not connected yet"), "{reply}");
}
