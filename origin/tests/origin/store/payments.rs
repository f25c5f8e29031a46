//! Orders are paid, cancelled or expire, and Redis is told.

use super::*;
use weir_origin::sales::store::HoldRules;

on_every_database! {
    SaleStore:
    an_order_is_paid_once,
    a_late_payment_is_refused_before_the_order_expires_and_after,
    an_order_that_takes_units_when_paid_may_find_none,
    a_cancelled_order_returns_its_units_once,
    redis_is_told_of_each_change_until_it_has_followed,
    of_payment_and_expiry_one_wins,
    many_cancellations_return_the_units_once,
}

async fn an_order_is_paid_once(store: &SaleStore) {
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
    assert_eq!(
        store.expire(HoldRules::default(), 999, 9).await.unwrap(),
        []
    );
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

async fn a_late_payment_is_refused_before_the_order_expires_and_after(store: &SaleStore) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    let pay = async || store.pay(&order.id, &user("alice"), 150).await.unwrap();
    assert_eq!(pay().await, Paid::Expired);
    assert_eq!(totals(store).await.stored.remaining, 9);
    assert_eq!(
        store.expire(HoldRules::default(), 149, 9).await.unwrap(),
        []
    );
    let expired = store.expire(HoldRules::default(), 150, 9).await.unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].status, OrderStatus::Expired);
    assert_eq!(
        store.expire(HoldRules::default(), 150, 9).await.unwrap(),
        []
    );
    assert_eq!(pay().await, Paid::Expired);
    let totals = totals(store).await;
    assert_eq!((totals.orders.expired, totals.stored.remaining), (1, 10));
    let cancel = store.cancel(&order.id, &user("alice"), 200).await.unwrap();
    assert_eq!(cancel, Cancelled::Expired(expired[0].clone()));
}

async fn an_order_that_takes_units_when_paid_may_find_none(store: &SaleStore) {
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

async fn a_cancelled_order_returns_its_units_once(store: &SaleStore) {
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

async fn redis_is_told_of_each_change_until_it_has_followed(store: &SaleStore) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let first = ordered(store, "alice", 1).await;
    ordered(store, "bob", 2).await;
    assert_eq!(store.unfollowed(9).await.unwrap(), []);
    store.cancel(&first.id, &user("alice"), 120).await.unwrap();
    let expired = store.expire(HoldRules::default(), 150, 9).await.unwrap();
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

/// A clock between two of the origin's tasks may differ by a moment: one says late, one in time.
async fn of_payment_and_expiry_one_wins(store: &SaleStore) {
    made(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    for generation in 0..10 {
        let order = ordered(store, &format!("user-{generation}"), generation).await;
        let owner = order.user.clone();
        let (paid, expired) = tokio::join!(
            store.pay(&order.id, &owner, 149),
            store.expire(HoldRules::default(), 150, 9)
        );
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

async fn many_cancellations_return_the_units_once(store: &SaleStore) {
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
