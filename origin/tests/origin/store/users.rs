//! Reservations, blocks and pages of users.

use super::*;

on_every_database! {
    SaleStore:
    users_reserve_once_within_the_window,
    failed_check_moves_to_the_end_of_the_queue,
    users_are_blocked_and_unblocked,
    users_are_listed_in_pages,
}

async fn users_reserve_once_within_the_window(store: &SaleStore) {
    create_sale(store, 1, Payment::AtOrder).await;
    let window = Window {
        from_ms: 10,
        until_ms: 20,
    };
    let with = NewSale {
        fields: SaleFields {
            reservation: Some(window),
            ..new_sale("r", 1, 100).fields
        },
        ..new_sale("r", 1, 100)
    };
    store.create_sale(&with, 1).await.unwrap();
    let reserve = async |sale: &str, name: &str, now_ms| {
        store
            .reservations()
            .reserve(&id(sale), &user(name), now_ms)
            .await
            .unwrap()
    };
    assert_eq!(
        reserve("ghost", "alice", 15).await,
        ReservationOutcome::Unknown
    );
    assert_eq!(
        reserve("s", "alice", 15).await,
        ReservationOutcome::NoReservation
    );
    assert_eq!(
        reserve("r", "alice", 9).await,
        ReservationOutcome::NotOpen { wait_ms: 1 }
    );
    assert_eq!(reserve("r", "alice", 10).await, ReservationOutcome::Now);
    assert_eq!(reserve("r", "alice", 19).await, ReservationOutcome::Again);
    assert_eq!(reserve("r", "Alice", 19).await, ReservationOutcome::Now);
    assert_eq!(reserve("r", "bob", 20).await, ReservationOutcome::Closed);
    let pending = store
        .reservations()
        .reservations_to_score(19, 9)
        .await
        .unwrap();
    assert_eq!((pending.len(), pending[0].at_ms), (2, 10));
    assert_eq!(pending[0].user, user("alice"));
    let bad = Score {
        score: 90,
        block: true,
    };
    assert!(
        store
            .reservations()
            .set_score(&id("r"), &user("alice"), bad, 21)
            .await
            .unwrap()
    );
    assert!(
        !store
            .reservations()
            .set_score(&id("r"), &user("bob"), bad, 21)
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .reservations()
            .reservations_to_score(19, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    let blocked = store
        .reservations()
        .blocked_page(&id("r"), None, 9)
        .await
        .unwrap();
    assert_eq!(blocked, [user("alice")]);
}

async fn failed_check_moves_to_the_end_of_the_queue(store: &SaleStore) {
    let window = Window {
        from_ms: 0,
        until_ms: 20,
    };
    let sale = NewSale {
        fields: SaleFields {
            reservation: Some(window),
            ..new_sale("r", 1, 100).fields
        },
        ..new_sale("r", 1, 100)
    };
    store.create_sale(&sale, 1).await.unwrap();
    for (name, now_ms) in [("alice", 1), ("bob", 2)] {
        store
            .reservations()
            .reserve(&id("r"), &user(name), now_ms)
            .await
            .unwrap();
    }
    let next = async |now_ms| {
        let next = store
            .reservations()
            .reservations_to_score(now_ms, 9)
            .await
            .unwrap();
        let displayed = next
            .into_iter()
            .map(|u| (u.user.as_str().to_owned(), u.failed_checks));
        displayed.collect::<Vec<(String, u32)>>()
    };
    let (alice, bob) = ("alice".to_owned(), "bob".to_owned());
    assert_eq!(next(1).await, [(alice.clone(), 0)]);
    assert_eq!(next(2).await, [(alice.clone(), 0), (bob.clone(), 0)]);
    store
        .reservations()
        .postpone_check(&id("r"), &user("alice"), 10)
        .await
        .unwrap();
    assert_eq!(next(9).await, [(bob.clone(), 0)]);
    assert_eq!(next(10).await, [(bob, 0), (alice, 1)]);
}

async fn users_are_blocked_and_unblocked(store: &SaleStore) {
    let block = async || {
        store
            .reservations()
            .block(&id("s"), &user("eve"), "by hand", 1)
            .await
            .unwrap()
    };
    let unblock = async || {
        store
            .reservations()
            .unblock(&id("s"), &user("eve"))
            .await
            .unwrap()
    };
    assert!(block().await);
    assert!(!block().await);
    assert!(unblock().await);
    assert!(!unblock().await);
    assert_eq!(
        store
            .reservations()
            .blocked_page(&id("s"), None, 9)
            .await
            .unwrap(),
        []
    );
}

async fn users_are_listed_in_pages(store: &SaleStore) {
    for name in ["b", "a", "B", "c"] {
        store
            .reservations()
            .block(&id("s"), &user(name), "x", 1)
            .await
            .unwrap();
    }
    let page = store
        .reservations()
        .blocked_page(&id("s"), None, 3)
        .await
        .unwrap();
    assert_eq!(page, ["B", "a", "b"].map(user));
    let rest = store
        .reservations()
        .blocked_page(&id("s"), page.last(), 3)
        .await
        .unwrap();
    assert_eq!(rest, [user("c")]);
}
