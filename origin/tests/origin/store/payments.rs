//! Payment, cancellation and expiry of orders, and the resulting updates for Redis.

use super::*;

on_every_database! {
    SaleStore:
    order_is_paid_once,
    late_payment_is_refused_before_and_after_expiry,
    order_deducted_at_payment_may_be_sold_out,
    cancelled_order_returns_its_units_once,
    changes_are_sent_to_redis_until_applied,
    payment_and_expiry_exclude_each_other,
    many_cancellations_return_the_units_once,
    cancelled_holds_count_by_duration,
    hold_cancelled_after_its_end_counts_as_expired,
    cancelling_an_order_without_deadline_has_no_cooldown,
}

async fn order_is_paid_once(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    assert_eq!(
        (order.status, order.pay_by_ms),
        (OrderStatus::Unpaid, Some(150))
    );
    assert!(order.deducted);
    let pay = async |name: &str, now_ms| {
        store
            .payments()
            .pay(&order.id, &user(name), now_ms)
            .await
            .unwrap()
    };
    assert_eq!(pay("mallory", 110).await, PaymentOutcome::Unknown);
    let PaymentOutcome::Now(paid) = pay("alice", 149).await else {
        panic!("not paid");
    };
    assert_eq!((paid.status, paid.pay_by_ms), (OrderStatus::Paid, None));
    assert_eq!(pay("alice", 999).await, PaymentOutcome::Again(paid.clone()));
    assert_eq!(
        store
            .payments()
            .expire(HoldRules::default(), 999, 9)
            .await
            .unwrap(),
        []
    );
    let late = cancel(store, &order, 999).await;
    assert_eq!(late, CancelOutcome::Paid(paid.clone()));
    let read = store.order(&order.id, &user("alice")).await.unwrap();
    assert_eq!(read, Some(paid));
    assert_eq!(store.order(&order.id, &user("bob")).await.unwrap(), None);
    let totals = totals(store).await;
    assert_eq!((totals.orders.paid, totals.orders.unpaid), (1, 0));
    // Redis needs no update: the order's units were already gone.
    assert_eq!(store.unfollowed(9).await.unwrap(), []);
}

async fn late_payment_is_refused_before_and_after_expiry(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    let pay = async || {
        store
            .payments()
            .pay(&order.id, &user("alice"), 150)
            .await
            .unwrap()
    };
    assert_eq!(pay().await, PaymentOutcome::Expired);
    assert_eq!(totals(store).await.stored.remaining, 9);
    assert_eq!(
        store
            .payments()
            .expire(HoldRules::default(), 149, 9)
            .await
            .unwrap(),
        []
    );
    let expired = store
        .payments()
        .expire(HoldRules::default(), 150, 9)
        .await
        .unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].status, OrderStatus::Expired);
    assert_eq!(
        store
            .payments()
            .expire(HoldRules::default(), 150, 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(pay().await, PaymentOutcome::Expired);
    let totals = totals(store).await;
    assert_eq!((totals.orders.expired, totals.stored.remaining), (1, 10));
    let cancel = cancel(store, &order, 200).await;
    assert_eq!(cancel, CancelOutcome::Expired(expired[0].clone()));
}

async fn order_deducted_at_payment_may_be_sold_out(store: &SaleStore) {
    create_sale(store, 1, Payment::AtPayment).await;
    let first = ordered(store, "alice", 1).await;
    let second = ordered(store, "bob", 2).await;
    assert!(!first.deducted && first.pay_by_ms.is_none());
    let before = totals(store).await;
    assert_eq!((before.stored.remaining, before.units_deferred), (1, 2));
    let paid = store
        .payments()
        .pay(&first.id, &user("alice"), 200)
        .await
        .unwrap();
    assert!(matches!(&paid, PaymentOutcome::Now(order) if order.deducted));
    for _ in 0..2 {
        let none = store
            .payments()
            .pay(&second.id, &user("bob"), 200)
            .await
            .unwrap();
        assert_eq!(none, PaymentOutcome::SoldOut);
    }
    let after = totals(store).await;
    assert_eq!((after.stored.remaining, after.units_deferred), (0, 1));
    assert!(after.version > before.version);
    // It never had a unit, so none returns.
    let cancelled = cancel(store, &second, 201).await;
    assert!(matches!(cancelled, CancelOutcome::Now(order) if !order.deducted));
    assert_eq!(totals(store).await.stored.remaining, 0);
    let unfollowed = store.unfollowed(9).await.unwrap();
    let statuses: Vec<_> = unfollowed.iter().map(|order| order.status).collect();
    assert_eq!(statuses, [OrderStatus::Paid, OrderStatus::Cancelled]);
}

async fn cancelled_order_returns_its_units_once(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    let order = ordered(store, "alice", 1).await;
    let rules = HoldRules::default();
    let mallory = user("mallory");
    let foreign = store
        .payments()
        .cancel(&order.id, &mallory, rules, 200)
        .await;
    assert_eq!(foreign.unwrap(), CancelOutcome::Unknown);
    assert_eq!(totals(store).await.stored.remaining, 9);
    let CancelOutcome::Now(cancelled) = cancel(store, &order, 200).await else {
        panic!("not cancelled");
    };
    assert_eq!(
        cancel(store, &order, 200).await,
        CancelOutcome::Again(cancelled.clone())
    );
    assert_eq!(totals(store).await.stored.remaining, 10);
    let paid = store
        .payments()
        .pay(&order.id, &user("alice"), 201)
        .await
        .unwrap();
    assert_eq!(paid, PaymentOutcome::Cancelled);
    let again = store
        .claims()
        .place(&ticket("s", "alice", 1), 202)
        .await
        .unwrap();
    assert_eq!(again, OrderOutcome::Again(cancelled));
}

async fn changes_are_sent_to_redis_until_applied(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let first = ordered(store, "alice", 1).await;
    ordered(store, "bob", 2).await;
    assert_eq!(store.unfollowed(9).await.unwrap(), []);
    cancel(store, &first, 120).await;
    let expired = store
        .payments()
        .expire(HoldRules::default(), 150, 9)
        .await
        .unwrap();
    let unfollowed = store.unfollowed(9).await.unwrap();
    assert_eq!(unfollowed.len(), 2);
    assert_eq!(
        (&unfollowed[0].id, &unfollowed[1]),
        (&first.id, &expired[0])
    );
    assert_eq!(store.unfollowed(1).await.unwrap().len(), 1);
    for (status, remaining) in [(OrderStatus::Unpaid, 2), (OrderStatus::Cancelled, 1)] {
        store.mark_followed(&first.id, status).await.unwrap();
        assert_eq!(store.unfollowed(9).await.unwrap().len(), remaining);
    }
}

/// The clocks of two tasks may differ slightly: one is late, one is in time.
async fn payment_and_expiry_exclude_each_other(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    for generation in 0..10 {
        let order = ordered(store, &format!("user-{generation}"), generation).await;
        let owner = order.user.clone();
        let (paid, expired) = tokio::join!(
            store.payments().pay(&order.id, &owner, 149),
            store.payments().expire(HoldRules::default(), 150, 9)
        );
        let (paid, expired) = (paid.unwrap(), expired.unwrap().len());
        match paid {
            PaymentOutcome::Now(_) => assert_eq!(expired, 0),
            PaymentOutcome::Expired => assert_eq!(expired, 1),
            other => panic!("{other:?}"),
        }
    }
    let totals = totals(store).await;
    assert_eq!(totals.orders.paid + totals.orders.expired, 10);
    assert_eq!(totals.stored.remaining, totals.orders.expired);
}

async fn many_cancellations_return_the_units_once(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    let order = ordered(store, "alice", 1).await;
    let alice = user("alice");
    let rules = HoldRules::default();
    let calls = (0..20).map(|_| store.payments().cancel(&order.id, &alice, rules, 200));
    let answers = join_all(calls).await;
    let now = answers
        .iter()
        .filter(|a| matches!(a, Ok(CancelOutcome::Now(_))));
    assert_eq!(now.count(), 1);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(totals(store).await.stored.remaining, 10);
}

/// Cancels holds after `lasts_ms` each, as often as SQL permits. Returns the total time that the user held units.
async fn held_ms(store: &SaleStore, name: &str, lasts_ms: u64) -> u64 {
    let (owner, rules) = (user(name), HoldRules::default());
    let (mut now_ms, mut held_ms) = (100, 0);
    // Use generations of no other user.
    for generation in lasts_ms * 1_000.. {
        let ticket = ticket("s", name, generation);
        match store.claims().place(&ticket, now_ms).await.unwrap() {
            OrderOutcome::New(order) => {
                now_ms += lasts_ms;
                held_ms += lasts_ms;
                let cancelled = store
                    .payments()
                    .cancel(&order.id, &owner, rules, now_ms)
                    .await;
                assert!(
                    matches!(cancelled, Ok(CancelOutcome::Now(_))),
                    "{cancelled:?}"
                );
            }
            OrderOutcome::Short(Shortage::CoolingDown { wait_ms }) => {
                assert_eq!(wait_ms, rules.cooldown_ms);
                now_ms += wait_ms;
            }
            OrderOutcome::Short(Shortage::UnpaidHolds) => break,
            other => panic!("{other:?}"),
        }
    }
    held_ms
}

/// Three expired holds last 150 ms: cancelling, at any time, gains less than one whole hold.
async fn cancelled_holds_count_by_duration(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    for lasts_ms in [1, 24, 25, 26, 49, 50] {
        let held_ms = held_ms(store, &format!("user-{lasts_ms}"), lasts_ms).await;
        assert!(
            (150..200).contains(&held_ms),
            "{held_ms} ms by {lasts_ms} each"
        );
    }
    assert_eq!(totals(store).await.stored.remaining, 10);
}

/// No job has ended it yet when its user does.
async fn hold_cancelled_after_its_end_counts_as_expired(store: &SaleStore) {
    create_sale(store, 10, Payment::Hold { pay_within_ms: 50 }).await;
    let order = ordered(store, "alice", 1).await;
    let cancelled = cancel(store, &order, 9_000).await;
    assert!(matches!(cancelled, CancelOutcome::Now(_)));
    let again = store
        .claims()
        .place(&ticket("s", "alice", 2), 9_001)
        .await
        .unwrap();
    let wait_ms = HoldRules::default().cooldown_ms - 1;
    let cooling_down = OrderOutcome::Short(Shortage::CoolingDown { wait_ms });
    assert_eq!(again, cooling_down);
    // Once: the rest of the time does not count.
    let after_ms = 9_000 + HoldRules::default().cooldown_ms;
    let placed = store
        .claims()
        .place(&ticket("s", "alice", 3), after_ms)
        .await;
    let OrderOutcome::New(order) = placed.unwrap() else {
        panic!("the cooldown is over");
    };
    cancel(store, &order, after_ms + 49).await;
    let again = store
        .claims()
        .place(&ticket("s", "alice", 4), after_ms + 49)
        .await;
    assert!(is_new(again.unwrap()));
}

/// An order without a deadline does not count as a hold.
async fn cancelling_an_order_without_deadline_has_no_cooldown(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    for generation in 0..9 {
        let order = ordered(store, "alice", generation).await;
        cancel(store, &order, 9_000_000).await;
    }
}
