//! The promises of [`Store`], asked of every database there is.

use weir_core::sale::SaleState;
use weir_origin::new_sale::{NewSale, Payment};
use weir_origin::store::{OpenError, Placed, Shortage, SqlStore, Store};

use crate::support::{id, ticket};

fn is_new(placed: Placed) -> bool {
    matches!(placed, Placed::New(_))
}

fn new_sale(name: &str, total: u64, starts_at_ms: u64) -> NewSale {
    NewSale {
        id: id(name),
        title: "Ein Ä".to_owned(),
        total,
        shards: 4,
        user_cap: 3,
        starts_at_ms,
        ends_at_ms: starts_at_ms + 1_000,
        token: false,
        reservation: None,
        payment: Payment::AtOrder,
        warm_before_ms: None,
    }
}

/// Runs a part of the suite on an empty database of each kind.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}/weir.db", dir.path().display());
                let store = SqlStore::open(&url).await.unwrap();
                super::$name(&store).await;
                store.close().await;
            })*
        }
    };
}

on_every_store! {
    a_sale_is_made_once,
    sales_are_listed_and_published_in_order,
    a_sale_is_warmed_once,
    an_order_is_placed_once,
    a_failed_order_leaves_no_trace,
    a_fate_is_decided_once,
    all_units_can_be_ordered_and_no_more,
    a_claim_of_many_units_takes_them_all,
}

async fn a_sale_is_made_once(store: &dyn Store) {
    let new = new_sale("s", 10, 5_000);
    assert!(store.create_sale(&new, 7).await.unwrap());
    let other = new_sale("s", 99, 6_000);
    assert!(!store.create_sale(&other, 8).await.unwrap());
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    let stored = &totals.stored;
    assert_eq!((stored.total, stored.remaining), (10, 10));
    assert_eq!((stored.title.as_str(), stored.created_at_ms), ("Ein Ä", 7));
    assert_eq!(stored.sale.state, SaleState::Open);
    assert_eq!(stored.sale.starts_at_ms, 5_000);
    assert_eq!((totals.orders.active(), totals.units_deducted), (0, 0));
    assert!(!totals.has_outcomes);
    assert_eq!(store.sale(&id("t")).await.unwrap(), None);
}

async fn sales_are_listed_and_published_in_order(store: &dyn Store) {
    for (name, starts_at_ms) in [("b", 3_000), ("a", 1_000), ("c", 2_000)] {
        let new = new_sale(name, 1, starts_at_ms);
        store.create_sale(&new, 1).await.unwrap();
    }
    let listed = store.sales(2).await.unwrap();
    let names: Vec<_> = listed.iter().map(|s| s.sale.id.as_str()).collect();
    assert_eq!(names, ["b", "c"]);

    assert_eq!(store.catalogue(0, 9).await.unwrap(), []);
    for name in ["a", "b", "c"] {
        store.mark_warmed(&id(name), 9).await.unwrap();
    }
    let published = |sales: Vec<weir_core::sale::Sale>| -> Vec<String> {
        sales.into_iter().map(|sale| sale.id.into()).collect()
    };
    // `a` ends at 2000: not after it.
    let current = store.catalogue(2_000, 9).await.unwrap();
    assert_eq!(published(current), ["c", "b"]);
    let bounded = store.catalogue(0, 2).await.unwrap();
    assert_eq!(published(bounded), ["a", "c"]);
}

async fn a_sale_is_warmed_once(store: &dyn Store) {
    store.create_sale(&new_sale("s", 1, 1), 1).await.unwrap();
    store.mark_warmed(&id("s"), 5).await.unwrap();
    store.mark_warmed(&id("s"), 6).await.unwrap();
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert_eq!(stored.warmed_at_ms, Some(5));
}

async fn an_order_is_placed_once(store: &dyn Store) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let alices = ticket("s", "alice", 1);
    assert!(is_new(store.place(&alices, 2).await.unwrap()));
    assert!(matches!(
        store.place(&alices, 3).await.unwrap(),
        Placed::Again(_)
    ));
    let mut twin = ticket("s", "bob", 1);
    twin.shard = alices.shard;
    assert_eq!(store.place(&twin, 4).await.unwrap(), Placed::NameTaken);
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.units_deducted), (1, 1));
    assert_eq!(totals.stored.remaining, 4);
    assert!(totals.has_outcomes);
}

/// The last step fails: the rows of the steps before it are gone, as after a crash in between.
async fn a_failed_order_leaves_no_trace(store: &dyn Store) {
    let sold_out = Placed::Short(Shortage::SoldOut);
    let unknown = Placed::Short(Shortage::UnknownSale);
    store.create_sale(&new_sale("s", 0, 1), 1).await.unwrap();
    for _ in 0..2 {
        let placed = store.place(&ticket("s", "alice", 1), 2).await.unwrap();
        assert_eq!(placed, sold_out);
        let placed = store.place(&ticket("ghost", "alice", 1), 2).await.unwrap();
        assert_eq!(placed, unknown);
    }
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.has_outcomes), (0, false));
}

async fn a_fate_is_decided_once(store: &dyn Store) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let (void, ordered) = (ticket("s", "alice", 1), ticket("s", "alice", 2));
    assert!(store.void(&void, 2).await.unwrap());
    assert!(!store.void(&void, 3).await.unwrap());
    let placed = store.place(&void, 4).await.unwrap();
    assert_eq!(placed, Placed::Released { void: true });
    assert!(is_new(store.place(&ordered, 5).await.unwrap()));
    assert!(!store.void(&ordered, 6).await.unwrap());
    // A claim on a sale that is not there has a fate, too.
    assert!(store.void(&ticket("ghost", "alice", 1), 7).await.unwrap());
}

async fn all_units_can_be_ordered_and_no_more(store: &dyn Store) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let mut placed = Vec::new();
    for n in 0..8 {
        let ticket = ticket("s", &format!("user-{n}"), n);
        placed.push(store.place(&ticket, 2).await.unwrap());
    }
    let sold_out = Placed::Short(Shortage::SoldOut);
    assert_eq!(placed.iter().filter(|&p| *p == sold_out).count(), 3);
    assert_eq!(placed.into_iter().filter(|p| is_new(p.clone())).count(), 5);
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.units_deducted, totals.stored.remaining), (5, 0));
}

async fn a_claim_of_many_units_takes_them_all(store: &dyn Store) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let mut three = ticket("s", "alice", 1);
    three.quantity = 3;
    assert!(is_new(store.place(&three, 2).await.unwrap()));
    let mut more = ticket("s", "bob", 2);
    more.quantity = 3;
    let short = Placed::Short(Shortage::SoldOut);
    assert_eq!(store.place(&more, 2).await.unwrap(), short);
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.units_deducted), (1, 3));
    assert_eq!(totals.stored.remaining, 2);
}

#[tokio::test]
async fn a_database_survives_its_process_and_is_migrated_once() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    for new in [true, false] {
        let store = SqlStore::open(&url).await.unwrap();
        let _ = store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
        let placed = store.place(&ticket("s", "alice", 1), 2).await.unwrap();
        assert_eq!(is_new(placed), new);
        store.close().await;
    }
}

#[tokio::test]
async fn sqlite_itself_refuses_what_makes_no_sense() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    let store = SqlStore::open(&url).await.unwrap();
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
async fn only_files_of_sqlite_will_do() {
    let open = |url: &'static str| async move { SqlStore::open(url).await.unwrap_err() };
    let other = open("postgres://user:hush@host/weir").await;
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
