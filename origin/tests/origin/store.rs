//! The promises of [`Store`], asked of every database there is.

use std::future::Future;

use weir_core::sale::{Degrade, SaleState};
use weir_origin::new_sale::{NewSale, Payment, Window};
use weir_origin::store::{
    self, Cancelled, EditRefusal, OpenError, OrderStatus, Paid, Placed, Reserved, SaleTotals,
    Score, Shortage, SqlStore, Store, StoredOrder, Updated,
};

use crate::support::{self, id, ticket, user};

/// All of them at once.
async fn join_all<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
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
                let store = store::open(&url).await.unwrap();
                super::$name(&*store).await;
                store.close().await;
            })*
        }

        mod mysql {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                let url = support::mysql_url().await;
                let store = store::open(&url).await.unwrap();
                super::$name(&*store).await;
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
    a_sale_is_stored_whole_and_changed_before_it_starts,
    what_is_on_redis_does_not_change,
    switches_are_kept,
    sales_are_due_when_their_time_has_come,
    a_user_cannot_have_more_than_the_cap,
    an_overdue_claim_is_released_or_its_order_told,
    an_order_is_paid_once,
    a_late_payment_is_refused_before_the_order_expires_and_after,
    an_order_that_takes_units_when_paid_may_find_none,
    a_cancelled_order_returns_its_units_once,
    redis_is_told_of_each_change_until_it_has_followed,
    a_shards_orders_come_in_pages,
    users_reserve_in_time_and_once,
    users_are_blocked_and_unblocked,
    users_come_in_pages,
    many_orders_at_once_sell_each_unit_once,
    one_user_at_once_keeps_to_the_cap,
    of_payment_and_expiry_one_wins,
    many_cancellations_return_the_units_once,
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

async fn made(store: &dyn Store, total: u64, payment: Payment) {
    let sale = NewSale {
        payment,
        ..new_sale("s", total, 1)
    };
    assert!(store.create_sale(&sale, 1).await.unwrap());
}

/// An order of the user's, at instant 100.
async fn ordered(store: &dyn Store, name: &str, generation: u64) -> StoredOrder {
    let ticket = ticket("s", name, generation);
    match store.place(&ticket, 100).await.unwrap() {
        Placed::New(order) => order,
        other => panic!("{other:?}"),
    }
}

async fn totals(store: &dyn Store) -> SaleTotals {
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    let sum = totals.stored.remaining + totals.units_deducted;
    assert_eq!(sum, totals.stored.total, "{totals:?}");
    totals
}

async fn a_sale_is_stored_whole_and_changed_before_it_starts(store: &dyn Store) {
    let mut new = NewSale {
        token: true,
        reservation: Some(Window {
            from_ms: 10,
            until_ms: 20,
        }),
        payment: Payment::Hold { pay_within_ms: 9 },
        warm_before_ms: Some(7),
        ..new_sale("s", 10, 5_000)
    };
    let unknown = store.update_sale(&new, 1).await.unwrap();
    assert_eq!(unknown, Updated::Unknown);
    store.create_sale(&new, 1).await.unwrap();
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert!(stored.sale.token && stored.sale.reservation);
    assert_eq!(stored.reservation, new.reservation);
    assert_eq!(stored.payment, new.payment);
    assert_eq!(stored.warm_before_ms, Some(7));
    new.total = 4;
    new.title = "Other".to_owned();
    new.payment = Payment::AtPayment;
    new.reservation = None;
    new.starts_at_ms = 5_500;
    assert_eq!(store.update_sale(&new, 4_999).await.unwrap(), Updated::Done);
    // Again, with nothing to change.
    assert_eq!(store.update_sale(&new, 4_999).await.unwrap(), Updated::Done);
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert_eq!((stored.total, stored.remaining), (4, 4));
    assert_eq!(
        (stored.title.as_str(), stored.payment),
        ("Other", Payment::AtPayment)
    );
    assert_eq!(
        (stored.reservation, stored.sale.starts_at_ms),
        (None, 5_500)
    );
    let late = store.update_sale(&new, 5_500).await.unwrap();
    assert_eq!(late, Updated::Refused(EditRefusal::Started));
}

async fn what_is_on_redis_does_not_change(store: &dyn Store) {
    let mut new = new_sale("s", 10, 5_000);
    store.create_sale(&new, 1).await.unwrap();
    store.mark_warmed(&id("s"), 2).await.unwrap();
    new.user_cap = 2;
    assert_eq!(store.update_sale(&new, 3).await.unwrap(), Updated::Done);
    new.total = 11;
    let refused = store.update_sale(&new, 3).await.unwrap();
    assert_eq!(refused, Updated::Refused(EditRefusal::Warmed));
    new.total = 10;
    // A gateway whose clock is ahead has let someone order.
    assert!(is_new(
        store.place(&ticket("s", "alice", 1), 4).await.unwrap()
    ));
    let refused = store.update_sale(&new, 5).await.unwrap();
    assert_eq!(refused, Updated::Refused(EditRefusal::Started));
    assert_eq!(totals(store).await.stored.remaining, 9);
}

async fn switches_are_kept(store: &dyn Store) {
    made(store, 1, Payment::AtOrder).await;
    let degrade = Degrade {
        skip_reservation: true,
        ..Degrade::default()
    };
    for _ in 0..2 {
        let set = store.set_state(&id("s"), SaleState::Drain, degrade).await;
        assert!(set.unwrap());
    }
    let sale = store.sale(&id("s")).await.unwrap().unwrap().sale;
    assert_eq!((sale.state, sale.degrade), (SaleState::Drain, degrade));
    let ghost = store
        .set_state(&id("ghost"), SaleState::Drain, degrade)
        .await;
    assert!(!ghost.unwrap());
    assert_eq!(store.global_switch().await.unwrap(), SaleState::Open);
    for state in [SaleState::Closed, SaleState::Closed, SaleState::Shadow] {
        store.set_global_switch(state).await.unwrap();
        assert_eq!(store.global_switch().await.unwrap(), state);
    }
}

async fn sales_are_due_when_their_time_has_come(store: &dyn Store) {
    for (name, warm_before_ms) in [("a", Some(100)), ("b", None), ("c", Some(100))] {
        let new = NewSale {
            warm_before_ms,
            ..new_sale(name, 1, 1_000)
        };
        store.create_sale(&new, 1).await.unwrap();
    }
    store.mark_warmed(&id("c"), 5).await.unwrap();
    assert_eq!(store.due_to_warm(899).await.unwrap(), []);
    assert_eq!(store.due_to_warm(900).await.unwrap(), [id("a")]);
    assert_eq!(store.due_to_warm(1_999).await.unwrap(), [id("a")]);
    assert_eq!(store.due_to_warm(2_000).await.unwrap(), []);
}

async fn a_user_cannot_have_more_than_the_cap(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    let capped = Placed::Short(Shortage::UserCap);
    let mut four = ticket("s", "bob", 9);
    four.quantity = 4;
    assert_eq!(store.place(&four, 1).await.unwrap(), capped);
    for generation in 0..3 {
        ordered(store, "alice", generation).await;
    }
    let more = ticket("s", "alice", 3);
    assert_eq!(store.place(&more, 2).await.unwrap(), capped);
    // A cancelled order no longer counts.
    let first = ticket("s", "alice", 0).claim_id();
    let cancelled = store
        .cancel(first.as_str(), &user("alice"), 3)
        .await
        .unwrap();
    assert!(matches!(cancelled, Cancelled::Now(_)));
    assert!(is_new(store.place(&more, 4).await.unwrap()));
    assert_eq!(totals(store).await.stored.remaining, 7);
}

async fn an_overdue_claim_is_released_or_its_order_told(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    let lost = ticket("s", "alice", 1);
    assert_eq!(store.release(&lost, 5).await.unwrap(), None);
    let released = Placed::Released { void: false };
    assert_eq!(
        store.release(&lost, 6).await.unwrap(),
        Some(released.clone())
    );
    assert_eq!(store.place(&lost, 7).await.unwrap(), released);
    let order = ordered(store, "alice", 2).await;
    let known = store.release(&ticket("s", "alice", 2), 8).await.unwrap();
    assert_eq!(known, Some(Placed::Again(order)));
    let void = ticket("s", "alice", 3);
    assert!(store.void(&void, 9).await.unwrap());
    let known = store.release(&void, 9).await.unwrap();
    assert_eq!(known, Some(Placed::Released { void: true }));
}

async fn an_order_is_paid_once(store: &dyn Store) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    assert_eq!(
        (order.status, order.pay_by_ms),
        (OrderStatus::Unpaid, Some(150))
    );
    assert!(order.deducted);
    let pay = async |name: &str, now_ms| store.pay(&order.id, &user(name), now_ms).await.unwrap();
    assert_eq!(pay("mallory", 110).await, Paid::Unknown);
    let Paid::Now(paid) = pay("alice", 149).await else {
        panic!("not paid");
    };
    assert_eq!((paid.status, paid.pay_by_ms), (OrderStatus::Paid, None));
    assert_eq!(pay("alice", 999).await, Paid::Again(paid.clone()));
    assert_eq!(store.expire(999, 9).await.unwrap(), []);
    let late = store.cancel(&order.id, &user("alice"), 999).await.unwrap();
    assert_eq!(late, Cancelled::Paid(paid.clone()));
    let read = store.order(&order.id, &user("alice")).await.unwrap();
    assert_eq!(read, Some(paid));
    assert_eq!(store.order(&order.id, &user("bob")).await.unwrap(), None);
    let totals = totals(store).await;
    assert_eq!((totals.orders.paid, totals.orders.unpaid), (1, 0));
    // Redis has nothing to follow: the order's units were gone before.
    assert_eq!(store.unfollowed(9).await.unwrap(), []);
}

async fn a_late_payment_is_refused_before_the_order_expires_and_after(store: &dyn Store) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    let pay = async || store.pay(&order.id, &user("alice"), 150).await.unwrap();
    assert_eq!(pay().await, Paid::Expired);
    assert_eq!(totals(store).await.stored.remaining, 9);
    assert_eq!(store.expire(149, 9).await.unwrap(), []);
    let expired = store.expire(150, 9).await.unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].status, OrderStatus::Expired);
    assert_eq!(store.expire(150, 9).await.unwrap(), []);
    assert_eq!(pay().await, Paid::Expired);
    let totals = totals(store).await;
    assert_eq!((totals.orders.expired, totals.stored.remaining), (1, 10));
    let cancel = store.cancel(&order.id, &user("alice"), 200).await.unwrap();
    assert_eq!(cancel, Cancelled::Expired(expired[0].clone()));
}

async fn an_order_that_takes_units_when_paid_may_find_none(store: &dyn Store) {
    made(store, 1, Payment::AtPayment).await;
    let first = ordered(store, "alice", 1).await;
    let second = ordered(store, "bob", 2).await;
    assert!(!first.deducted && first.pay_by_ms.is_none());
    let before = totals(store).await;
    assert_eq!((before.stored.remaining, before.units_deferred), (1, 2));
    let paid = store.pay(&first.id, &user("alice"), 200).await.unwrap();
    assert!(matches!(&paid, Paid::Now(order) if order.deducted));
    for _ in 0..2 {
        let none = store.pay(&second.id, &user("bob"), 200).await.unwrap();
        assert_eq!(none, Paid::SoldOut);
    }
    let after = totals(store).await;
    assert_eq!((after.stored.remaining, after.units_deferred), (0, 1));
    assert!(after.version > before.version);
    // It never had a unit, so none comes back.
    let cancelled = store.cancel(&second.id, &user("bob"), 201).await.unwrap();
    assert!(matches!(cancelled, Cancelled::Now(order) if !order.deducted));
    assert_eq!(totals(store).await.stored.remaining, 0);
    let unfollowed = store.unfollowed(9).await.unwrap();
    let statuses: Vec<_> = unfollowed.iter().map(|order| order.status).collect();
    assert_eq!(statuses, [OrderStatus::Paid, OrderStatus::Cancelled]);
}

async fn a_cancelled_order_returns_its_units_once(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    let order = ordered(store, "alice", 1).await;
    let cancel = async |name: &str| store.cancel(&order.id, &user(name), 200).await.unwrap();
    assert_eq!(cancel("mallory").await, Cancelled::Unknown);
    assert_eq!(totals(store).await.stored.remaining, 9);
    let Cancelled::Now(cancelled) = cancel("alice").await else {
        panic!("not cancelled");
    };
    assert_eq!(cancel("alice").await, Cancelled::Again(cancelled.clone()));
    assert_eq!(totals(store).await.stored.remaining, 10);
    let paid = store.pay(&order.id, &user("alice"), 201).await.unwrap();
    assert_eq!(paid, Paid::Cancelled);
    let again = store.place(&ticket("s", "alice", 1), 202).await.unwrap();
    assert_eq!(again, Placed::Again(cancelled));
}

async fn redis_is_told_of_each_change_until_it_has_followed(store: &dyn Store) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let first = ordered(store, "alice", 1).await;
    ordered(store, "bob", 2).await;
    assert_eq!(store.unfollowed(9).await.unwrap(), []);
    store.cancel(&first.id, &user("alice"), 120).await.unwrap();
    let expired = store.expire(150, 9).await.unwrap();
    let unfollowed = store.unfollowed(9).await.unwrap();
    assert_eq!(unfollowed.len(), 2);
    assert_eq!(
        (&unfollowed[0].id, &unfollowed[1]),
        (&first.id, &expired[0])
    );
    assert_eq!(store.unfollowed(1).await.unwrap().len(), 1);
    for (status, left) in [(OrderStatus::Unpaid, 2), (OrderStatus::Cancelled, 1)] {
        store.mark_followed(&first.id, status).await.unwrap();
        assert_eq!(store.unfollowed(9).await.unwrap().len(), left);
    }
}

async fn a_shards_orders_come_in_pages(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    for generation in [5, 3, 9] {
        ordered(store, "alice", generation).await;
    }
    let shard = ticket("s", "alice", 3).shard;
    let cancelled = ticket("s", "alice", 9).claim_id();
    store
        .cancel(cancelled.as_str(), &user("alice"), 200)
        .await
        .unwrap();
    let page = async |after, limit| {
        let page = store
            .orders_page(&id("s"), shard, after, limit)
            .await
            .unwrap();
        page.iter()
            .map(|(_, order)| order.generation)
            .collect::<Vec<_>>()
    };
    assert_eq!(page(0, 1).await, [3]);
    assert_eq!(page(0, 9).await, [3, 5]);
    assert_eq!(page(3, 9).await, [5]);
    assert!(page(5, 9).await.is_empty());
}

async fn users_reserve_in_time_and_once(store: &dyn Store) {
    made(store, 1, Payment::AtOrder).await;
    let window = Window {
        from_ms: 10,
        until_ms: 20,
    };
    let with = NewSale {
        reservation: Some(window),
        ..new_sale("r", 1, 100)
    };
    store.create_sale(&with, 1).await.unwrap();
    let reserve = async |sale: &str, name: &str, now_ms| {
        store.reserve(&id(sale), &user(name), now_ms).await.unwrap()
    };
    assert_eq!(reserve("ghost", "alice", 15).await, Reserved::Unknown);
    assert_eq!(reserve("s", "alice", 15).await, Reserved::NoReservation);
    assert_eq!(
        reserve("r", "alice", 9).await,
        Reserved::NotOpen { wait_ms: 1 }
    );
    assert_eq!(reserve("r", "alice", 10).await, Reserved::Now);
    assert_eq!(reserve("r", "alice", 19).await, Reserved::Again);
    assert_eq!(reserve("r", "Alice", 19).await, Reserved::Now);
    assert_eq!(reserve("r", "bob", 20).await, Reserved::Closed);
    let pending = store.reservations_to_score(9).await.unwrap();
    assert_eq!((pending.len(), pending[0].at_ms), (2, 10));
    assert_eq!(pending[0].user, user("alice"));
    let bad = Score {
        score: 90,
        block: true,
    };
    assert!(
        store
            .set_score(&id("r"), &user("alice"), bad, 21)
            .await
            .unwrap()
    );
    assert!(
        !store
            .set_score(&id("r"), &user("bob"), bad, 21)
            .await
            .unwrap()
    );
    assert_eq!(store.reservations_to_score(9).await.unwrap().len(), 1);
    let blocked = store.blocked_page(&id("r"), None, 9).await.unwrap();
    assert_eq!(blocked, [user("alice")]);
}

async fn users_are_blocked_and_unblocked(store: &dyn Store) {
    let block = async || {
        store
            .block(&id("s"), &user("eve"), "by hand", 1)
            .await
            .unwrap()
    };
    let unblock = async || store.unblock(&id("s"), &user("eve")).await.unwrap();
    assert!(block().await);
    assert!(!block().await);
    assert!(unblock().await);
    assert!(!unblock().await);
    assert_eq!(store.blocked_page(&id("s"), None, 9).await.unwrap(), []);
}

async fn users_come_in_pages(store: &dyn Store) {
    for name in ["b", "a", "B", "c"] {
        store.block(&id("s"), &user(name), "x", 1).await.unwrap();
    }
    let page = store.blocked_page(&id("s"), None, 3).await.unwrap();
    assert_eq!(page, ["B", "a", "b"].map(user));
    let rest = store.blocked_page(&id("s"), page.last(), 3).await.unwrap();
    assert_eq!(rest, [user("c")]);
}

async fn many_orders_at_once_sell_each_unit_once(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    let tickets = (0..100).map(|n| ticket("s", &format!("user-{n}"), n));
    let tickets: Vec<_> = tickets.collect();
    // Each twice, as a retry that overtakes the first try.
    let calls = tickets.iter().chain(&tickets).map(|t| store.place(t, 2));
    let placed = join_all(calls).await;
    let new = placed
        .into_iter()
        .filter(|p| is_new(p.as_ref().unwrap().clone()));
    assert_eq!(new.count(), 10);
    let totals = totals(store).await;
    assert_eq!((totals.orders.unpaid, totals.stored.remaining), (10, 0));
}

async fn one_user_at_once_keeps_to_the_cap(store: &dyn Store) {
    made(store, 100, Payment::AtPayment).await;
    let tickets: Vec<_> = (0..20).map(|n| ticket("s", "alice", n)).collect();
    join_all(tickets.iter().map(|t| store.place(t, 2))).await;
    assert_eq!(totals(store).await.orders.unpaid, 3);
}

/// A clock between two of the origin's tasks may differ by a moment: one says late, one in time.
async fn of_payment_and_expiry_one_wins(store: &dyn Store) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    for generation in 0..10 {
        let order = ordered(store, &format!("user-{generation}"), generation).await;
        let owner = order.user.clone();
        let (paid, expired) = tokio::join!(store.pay(&order.id, &owner, 149), store.expire(150, 9));
        let (paid, expired) = (paid.unwrap(), expired.unwrap().len());
        match paid {
            Paid::Now(_) => assert_eq!(expired, 0),
            Paid::Expired => assert_eq!(expired, 1),
            other => panic!("{other:?}"),
        }
    }
    let totals = totals(store).await;
    assert_eq!(totals.orders.paid + totals.orders.expired, 10);
    assert_eq!(totals.stored.remaining, totals.orders.expired);
}

async fn many_cancellations_return_the_units_once(store: &dyn Store) {
    made(store, 10, Payment::AtOrder).await;
    let order = ordered(store, "alice", 1).await;
    let alice = user("alice");
    let calls = (0..20).map(|_| store.cancel(&order.id, &alice, 200));
    let answers = join_all(calls).await;
    let now = answers
        .iter()
        .filter(|a| matches!(a, Ok(Cancelled::Now(_))));
    assert_eq!(now.count(), 1);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(totals(store).await.stored.remaining, 10);
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
