//! Sales: created, listed, loaded, changed, switched.

use weir_origin::sales::store::StoredSale;
use weir_sale::challenge::Challenge;

use super::*;

on_every_database! {
    SaleStore:
    sale_is_created_once,
    sales_are_listed_and_published_in_order,
    sale_is_warmed_once,
    sale_is_stored_completely_and_editable_before_the_start,
    warm_sale_keeps_its_stock_fields,
    switches_are_stored,
    sales_are_due_at_their_time,
}

async fn sale_is_created_once(store: &SaleStore) {
    let new = new_sale("s", 10, 5_000);
    assert!(store.create_sale(&new, 7).await.unwrap());
    let other = new_sale("s", 99, 6_000);
    assert!(!store.create_sale(&other, 8).await.unwrap());
    let totals = store.totals(&id("s")).await.unwrap().unwrap();
    let stored = &totals.stored;
    assert_eq!((stored.fields.total, stored.remaining), (10, 10));
    assert_eq!(
        (stored.fields.title.as_str(), stored.created_at_ms),
        ("Ein Ä", 7)
    );
    assert_eq!(stored.sale.state, SaleState::Open);
    assert_eq!(stored.sale.starts_at_ms, 5_000);
    assert_eq!((totals.orders.active(), totals.units_deducted), (0, 0));
    assert!(!totals.has_outcomes);
    assert_eq!(store.sale(&id("t")).await.unwrap(), None);
}

async fn sales_are_listed_and_published_in_order(store: &SaleStore) {
    for (name, starts_at_ms) in [("b", 3_000), ("a", 1_000), ("c", 2_000)] {
        let new = new_sale(name, 1, starts_at_ms);
        store.create_sale(&new, 1).await.unwrap();
    }
    let names = |listed: Vec<StoredSale>| -> Vec<String> {
        listed.into_iter().map(|s| s.sale.id.into()).collect()
    };
    assert_eq!(names(store.sales(None, 2).await.unwrap()), ["b", "c"]);
    let c = id("c");
    let ends_at_ms = store.sale(&c).await.unwrap().unwrap().sale.ends_at_ms;
    let rest = store.sales(Some((ends_at_ms, &c)), 2).await.unwrap();
    assert_eq!(names(rest), ["a"]);

    let published = |sales: Vec<StoredSale>| -> Vec<(String, bool)> {
        let part = |stored: StoredSale| (stored.sale.id.into(), stored.sale.cold);
        sales.into_iter().map(part).collect()
    };
    let is = |name: &str, cold| (name.to_owned(), cold);
    store.warming().mark_warmed(&id("a"), 9).await.unwrap();
    let all = store.catalogue(0, 9).await.unwrap();
    assert_eq!(
        published(all),
        [is("a", false), is("c", true), is("b", true)]
    );
    // `a` ends at 2000, so it does not end after 2000.
    let current = store.catalogue(2_000, 9).await.unwrap();
    assert_eq!(published(current), [is("c", true), is("b", true)]);
    let bounded = store.catalogue(0, 2).await.unwrap();
    assert_eq!(published(bounded), [is("a", false), is("c", true)]);
}

async fn sale_is_warmed_once(store: &SaleStore) {
    store.create_sale(&new_sale("s", 1, 1), 1).await.unwrap();
    store.warming().mark_warmed(&id("s"), 5).await.unwrap();
    store.warming().mark_warmed(&id("s"), 6).await.unwrap();
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert_eq!(stored.warmed_at_ms, Some(5));
}

async fn sale_is_stored_completely_and_editable_before_the_start(store: &SaleStore) {
    let work = Challenge::ProofOfWork { bits: 18 };
    let mut new = NewSale {
        fields: SaleFields {
            token: true,
            challenge: Some(work),
            reservation: Some(Window {
                from_ms: 10,
                until_ms: 20,
            }),
            payment: Payment::Hold { pay_within_ms: 9 },
            warm_before_ms: Some(7),
            ..new_sale("s", 10, 5_000).fields
        },
        ..new_sale("s", 10, 5_000)
    };
    let unknown = store.update_sale(&new, 1).await.unwrap();
    assert_eq!(unknown, UpdateOutcome::Unknown);
    store.create_sale(&new, 1).await.unwrap();
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert!(stored.sale.token && stored.sale.reservation);
    assert_eq!(stored.sale.challenge, Some(work));
    assert_eq!(stored.fields.reservation, new.fields.reservation);
    assert_eq!(stored.fields.payment, new.fields.payment);
    assert_eq!(stored.fields.warm_before_ms, Some(7));
    new.fields.total = 4;
    new.fields.title = "Other".to_owned();
    new.fields.payment = Payment::AtPayment;
    new.fields.reservation = None;
    new.fields.challenge = Some(Challenge::Captcha {});
    new.fields.starts_at_ms = 5_500;
    assert_eq!(
        store.update_sale(&new, 4_999).await.unwrap(),
        UpdateOutcome::Done
    );
    // Again, with nothing to change.
    assert_eq!(
        store.update_sale(&new, 4_999).await.unwrap(),
        UpdateOutcome::Done
    );
    let stored = store.sale(&id("s")).await.unwrap().unwrap();
    assert_eq!((stored.fields.total, stored.remaining), (4, 4));
    assert_eq!(
        (stored.fields.title.as_str(), stored.fields.payment),
        ("Other", Payment::AtPayment)
    );
    assert_eq!(
        (stored.fields.reservation, stored.sale.starts_at_ms),
        (None, 5_500)
    );
    assert_eq!(stored.sale.challenge, new.fields.challenge);
    let late = store.update_sale(&new, 5_500).await.unwrap();
    assert_eq!(late, UpdateOutcome::Refused(EditRefusal::Started));
}

async fn warm_sale_keeps_its_stock_fields(store: &SaleStore) {
    let mut new = new_sale("s", 10, 5_000);
    store.create_sale(&new, 1).await.unwrap();
    store.warming().mark_warmed(&id("s"), 2).await.unwrap();
    new.fields.user_cap = 2;
    assert_eq!(
        store.update_sale(&new, 3).await.unwrap(),
        UpdateOutcome::Done
    );
    new.fields.total = 11;
    let refused = store.update_sale(&new, 3).await.unwrap();
    assert_eq!(refused, UpdateOutcome::Refused(EditRefusal::Warmed));
    new.fields.total = 10;
    // A gateway whose clock is ahead has admitted an order.
    assert!(is_new(
        store
            .claims()
            .place(&ticket("s", "alice", 1), 4)
            .await
            .unwrap()
    ));
    let refused = store.update_sale(&new, 5).await.unwrap();
    assert_eq!(refused, UpdateOutcome::Refused(EditRefusal::Started));
    assert_eq!(totals(store).await.stored.remaining, 9);
}

async fn switches_are_stored(store: &SaleStore) {
    create_sale(store, 1, Payment::AtOrder).await;
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

async fn sales_are_due_at_their_time(store: &SaleStore) {
    for (name, warm_before_ms) in [("a", Some(100)), ("b", None), ("c", Some(100))] {
        let new = NewSale {
            fields: SaleFields {
                warm_before_ms,
                ..new_sale(name, 1, 1_000).fields
            },
            ..new_sale(name, 1, 1_000)
        };
        store.create_sale(&new, 1).await.unwrap();
    }
    store.warming().mark_warmed(&id("c"), 5).await.unwrap();
    assert_eq!(store.warming().due_to_warm(899).await.unwrap(), []);
    assert_eq!(store.warming().due_to_warm(900).await.unwrap(), [id("a")]);
    assert_eq!(store.warming().due_to_warm(1_999).await.unwrap(), [id("a")]);
    assert_eq!(store.warming().due_to_warm(2_000).await.unwrap(), []);
}
