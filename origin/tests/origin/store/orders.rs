//! Claims become orders, each once, and never more than there are units.

use super::*;

on_every_database! {
    SaleStore:
    order_is_placed_once,
    failed_order_leaves_no_trace,
    claim_outcome_is_decided_once,
    all_units_can_be_ordered_and_no_more,
    claim_of_several_units_orders_all,
    user_cannot_exceed_the_cap,
    overdue_claim_is_released_or_its_order_reported,
    orders_of_a_shard_are_listed_in_pages,
    concurrent_orders_sell_each_unit_once,
    concurrent_orders_of_a_user_respect_the_cap,
}

async fn order_is_placed_once(store: &SaleStore) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let alices = ticket("s", "alice", 1);
    assert!(is_new(store.claims().place(&alices, 2).await.unwrap()));
    assert!(matches!(
        store.claims().place(&alices, 3).await.unwrap(),
        OrderOutcome::Again(_)
    ));
    let mut twin = ticket("s", "bob", 1);
    twin.shard = alices.shard;
    assert_eq!(
        store.claims().place(&twin, 4).await.unwrap(),
        OrderOutcome::NameTaken
    );
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.units_deducted), (1, 1));
    assert_eq!(totals.stored.remaining, 4);
    assert!(totals.has_outcomes);
}

/// The last step fails: the rows of earlier steps are gone, as after a crash in between.
async fn failed_order_leaves_no_trace(store: &SaleStore) {
    let sold_out = OrderOutcome::Short(Shortage::SoldOut);
    let unknown = OrderOutcome::Short(Shortage::UnknownSale);
    store.create_sale(&new_sale("s", 0, 1), 1).await.unwrap();
    for _ in 0..2 {
        let placed = store
            .claims()
            .place(&ticket("s", "alice", 1), 2)
            .await
            .unwrap();
        assert_eq!(placed, sold_out);
        let placed = store
            .claims()
            .place(&ticket("ghost", "alice", 1), 2)
            .await
            .unwrap();
        assert_eq!(placed, unknown);
    }
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.has_outcomes), (0, false));
}

async fn claim_outcome_is_decided_once(store: &SaleStore) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let (void, ordered) = (ticket("s", "alice", 1), ticket("s", "alice", 2));
    assert!(store.claims().void(&void, 2).await.unwrap());
    assert!(!store.claims().void(&void, 3).await.unwrap());
    let placed = store.claims().place(&void, 4).await.unwrap();
    assert_eq!(placed, OrderOutcome::Released { void: true });
    assert!(is_new(store.claims().place(&ordered, 5).await.unwrap()));
    assert!(!store.claims().void(&ordered, 6).await.unwrap());
    // A claim on a missing sale has an outcome, too.
    assert!(
        store
            .claims()
            .void(&ticket("ghost", "alice", 1), 7)
            .await
            .unwrap()
    );
}

async fn all_units_can_be_ordered_and_no_more(store: &SaleStore) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let mut placed = Vec::new();
    for n in 0..8 {
        let ticket = ticket("s", &format!("user-{n}"), n);
        placed.push(store.claims().place(&ticket, 2).await.unwrap());
    }
    let sold_out = OrderOutcome::Short(Shortage::SoldOut);
    assert_eq!(placed.iter().filter(|&p| *p == sold_out).count(), 3);
    assert_eq!(placed.into_iter().filter(|p| is_new(p.clone())).count(), 5);
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.units_deducted, totals.stored.remaining), (5, 0));
}

async fn claim_of_several_units_orders_all(store: &SaleStore) {
    store.create_sale(&new_sale("s", 5, 1), 1).await.unwrap();
    let mut three = ticket("s", "alice", 1);
    three.quantity = 3;
    assert!(is_new(store.claims().place(&three, 2).await.unwrap()));
    let mut more = ticket("s", "bob", 2);
    more.quantity = 3;
    let short = OrderOutcome::Short(Shortage::SoldOut);
    assert_eq!(store.claims().place(&more, 2).await.unwrap(), short);
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    assert_eq!((totals.orders.active(), totals.units_deducted), (1, 3));
    assert_eq!(totals.stored.remaining, 2);
}

async fn user_cannot_exceed_the_cap(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    let capped = OrderOutcome::Short(Shortage::UserCap);
    let mut four = ticket("s", "bob", 9);
    four.quantity = 4;
    assert_eq!(store.claims().place(&four, 1).await.unwrap(), capped);
    let first = ordered(store, "alice", 0).await;
    for generation in 1..3 {
        ordered(store, "alice", generation).await;
    }
    let more = ticket("s", "alice", 3);
    assert_eq!(store.claims().place(&more, 2).await.unwrap(), capped);
    // A cancelled order no longer counts.
    assert!(matches!(
        cancel(store, &first, 3).await,
        CancelOutcome::Now(_)
    ));
    assert!(is_new(store.claims().place(&more, 4).await.unwrap()));
    assert_eq!(totals(store).await.stored.remaining, 7);
}

async fn overdue_claim_is_released_or_its_order_reported(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    let lost = ticket("s", "alice", 1);
    assert_eq!(store.claims().release(&lost, 5).await.unwrap(), None);
    let released = OrderOutcome::Released { void: false };
    assert_eq!(
        store.claims().release(&lost, 6).await.unwrap(),
        Some(released.clone())
    );
    assert_eq!(store.claims().place(&lost, 7).await.unwrap(), released);
    let order = ordered(store, "alice", 2).await;
    let existing = store
        .claims()
        .release(&ticket("s", "alice", 2), 8)
        .await
        .unwrap();
    assert_eq!(existing, Some(OrderOutcome::Again(order)));
    let void = ticket("s", "alice", 3);
    assert!(store.claims().void(&void, 9).await.unwrap());
    let existing = store.claims().release(&void, 9).await.unwrap();
    assert_eq!(existing, Some(OrderOutcome::Released { void: true }));
}

async fn orders_of_a_shard_are_listed_in_pages(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    for generation in [5, 3, 9] {
        ordered(store, "alice", generation).await;
    }
    let shard = ticket("s", "alice", 3).shard;
    let cancelled = ticket("s", "alice", 9);
    let OrderOutcome::Again(cancelled) = store.claims().place(&cancelled, 101).await.unwrap()
    else {
        panic!("ordered before");
    };
    cancel(store, &cancelled, 200).await;
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

async fn concurrent_orders_sell_each_unit_once(store: &SaleStore) {
    create_sale(store, 10, Payment::AtOrder).await;
    let tickets = (0..100).map(|n| ticket("s", &format!("user-{n}"), n));
    let tickets: Vec<_> = tickets.collect();
    // Each twice, like a retry that overtakes the first attempt.
    let calls = tickets
        .iter()
        .chain(&tickets)
        .map(|t| store.claims().place(t, 2));
    let placed = join_all(calls).await;
    let new = placed
        .into_iter()
        .filter(|p| is_new(p.as_ref().unwrap().clone()));
    assert_eq!(new.count(), 10);
    let totals = totals(store).await;
    assert_eq!((totals.orders.unpaid, totals.stored.remaining), (10, 0));
}

async fn concurrent_orders_of_a_user_respect_the_cap(store: &SaleStore) {
    create_sale(store, 100, Payment::AtPayment).await;
    let tickets: Vec<_> = (0..20).map(|n| ticket("s", "alice", n)).collect();
    join_all(tickets.iter().map(|t| store.claims().place(t, 2))).await;
    assert_eq!(totals(store).await.orders.unpaid, 3);
}
