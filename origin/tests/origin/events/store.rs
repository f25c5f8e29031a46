//! The SQL store of events: the same suite on SQLite and MariaDB.

use weir_origin::events::store::{
    CourseFilter, CourseOwner, DeadFilter, DeadLetter, EventCursor, EventStore, Move, NewEvent,
    NewRetry, SettledRetry, Settlement, Step, StoreBatch,
};

on_every_database! {
    EventStore:
    group_moves_only_from_its_current_position,
    events_are_stored_once_with_their_position,
    course_has_a_single_order,
    retry_is_due_once_earlier_ones_are_done,
    dead_letter_is_stored_once_and_listed_newest_first,
    type_edit_needs_the_version_that_was_read,
    unit_is_requested_once,
}

const SOURCE: &str = "0123456789abcdef0123456789abcdef";

fn to(from: u64, to: u64) -> Move<'static> {
    Move {
        group: "store",
        source: SOURCE,
        from,
        to,
        now_ms: 7,
    }
}

fn event(key: &str, position: u64) -> NewEvent {
    NewEvent {
        row_key: key.to_owned(),
        event_type: "view".to_owned(),
        customer: Some("alice".to_owned()),
        visitor: None,
        at_ms: 1_000 + position / 2,
        received_ms: 2_000,
        position,
        fingerprint: "00".to_owned(),
        envelope: vec![0, 159, 146, 150],
        expires_at_ms: 3_000 + position,
    }
}

fn letter(id: &str, group: &str, dead_at_ms: u64) -> DeadLetter {
    DeadLetter {
        id: id.to_owned(),
        group: group.to_owned(),
        reason: "schema".to_owned(),
        message: "é".repeat(600),
        content: "{}".to_owned(),
        dead_at_ms,
        edited_at_ms: None,
    }
}

const ALL: CourseFilter<'static> = CourseFilter {
    event_type: None,
    from_ms: 0,
    to_ms: u64::MAX,
    latest_first: false,
    after: None,
    limit: 1_000,
};

async fn group_moves_only_from_its_current_position(store: &EventStore) {
    assert_eq!(
        store.step(to(0, 10)).await.unwrap(),
        Step::Moved,
        "it is nowhere"
    );
    store.begin("store", SOURCE, 5, 1).await.unwrap();
    store.begin("store", SOURCE, 9, 1).await.unwrap();
    assert_eq!(store.position("store", SOURCE).await.unwrap(), Some(5));
    assert_eq!(store.step(to(5, 10)).await.unwrap(), Step::Taken);
    assert_eq!(store.step(to(5, 11)).await.unwrap(), Step::Moved);
    store.seek("store", SOURCE, 3, 1).await.unwrap();
    store.seek("other", SOURCE, 4, 1).await.unwrap();
    assert_eq!(store.position("store", SOURCE).await.unwrap(), Some(3));
    assert_eq!(store.position("other", SOURCE).await.unwrap(), Some(4));
    for is_paused in [true, true, false] {
        store.set_paused("store", is_paused, 1).await.unwrap();
        let control = store.control("store", SOURCE).await.unwrap();
        assert_eq!((control.is_paused, control.position), (is_paused, Some(3)));
    }
    assert!(!store.is_paused("other").await.unwrap());
}

async fn events_are_stored_once_with_their_position(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let events: Vec<NewEvent> = (0..200).map(|n| event(&format!("k{n}"), n)).collect();
    let mut batch = StoreBatch {
        events,
        dead: vec![letter("d1", "", 1)],
    };
    let (step, stored) = store.store(to(0, 10), &batch).await.unwrap();
    assert_eq!((step, stored.new, stored.again), (Step::Taken, 200, 0));
    let (step, stored) = store.store(to(0, 20), &batch).await.unwrap();
    assert_eq!(
        (step, stored.new),
        (Step::Moved, 0),
        "somebody else has moved the group"
    );
    batch.events[7].fingerprint = "another".to_owned();
    batch.events.push(event("new", 500));
    let (_, stored) = store.store(to(10, 20), &batch).await.unwrap();
    assert_eq!((stored.new, stored.again, stored.reused), (1, 199, 1));
    let filter = DeadFilter {
        group: None,
        reason: None,
        after: None,
        limit: 9,
    };
    let letters = store.letters().dead_letters(filter).await.unwrap();
    let ids: Vec<&str> = letters.iter().map(|letter| letter.id.as_str()).collect();
    assert_eq!(ids, [&format!("store.{SOURCE}.7"), "d1"]);
    assert_eq!(
        store.event("k7").await.unwrap(),
        Some(vec![0, 159, 146, 150])
    );
    assert_eq!(store.clean_events(3_003, 3).await.unwrap(), 3);
    assert_eq!(store.clean_events(3_003, 3).await.unwrap(), 1);
    assert_eq!(store.event("k0").await.unwrap(), None);
}

async fn course_has_a_single_order(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let events = (0..10).rev().map(|n| event(&format!("k{n}"), n)).collect();
    let batch = StoreBatch {
        events,
        dead: vec![],
    };
    store.store(to(0, 10), &batch).await.unwrap();
    let places = async |filter: CourseFilter<'_>| -> Vec<u64> {
        let found = store
            .course(CourseOwner::Customer("alice"), filter)
            .await
            .unwrap();
        found.iter().map(|(place, _)| place.position).collect()
    };
    assert_eq!(places(ALL).await, (0..10).collect::<Vec<_>>());
    let after = |position| {
        Some(EventCursor {
            at_ms: 1_000 + position / 2,
            position,
        })
    };
    assert_eq!(
        places(CourseFilter {
            after: after(4),
            limit: 3,
            ..ALL
        })
        .await,
        [5, 6, 7]
    );
    let latest = CourseFilter {
        latest_first: true,
        limit: 3,
        ..ALL
    };
    assert_eq!(places(latest).await, [9, 8, 7]);
    assert_eq!(
        places(CourseFilter {
            after: after(7),
            ..latest
        })
        .await,
        [6, 5, 4]
    );
    assert_eq!(
        places(CourseFilter {
            from_ms: 1_001,
            to_ms: 1_002,
            ..ALL
        })
        .await,
        [2, 3]
    );
    assert!(
        places(CourseFilter {
            event_type: Some("cart"),
            ..ALL
        })
        .await
        .is_empty()
    );
    let visitor = store
        .course(CourseOwner::Visitor("alice"), ALL)
        .await
        .unwrap();
    assert!(visitor.is_empty());
}

fn retry(position: u64, unit: &str, due_ms: Option<u64>) -> NewRetry {
    NewRetry {
        position,
        unit: unit.to_owned(),
        envelope: vec![255, 0],
        received_ms: 100 + position,
        tries: u32::from(due_ms.is_some()),
        due_ms,
        error: "é".repeat(600),
    }
}

async fn retry_is_due_once_earlier_ones_are_done(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let rows = [
        retry(1, "c:alice", Some(50)),
        retry(2, "c:alice", None),
        retry(3, "c:bob", Some(40)),
        retry(4, "c:alice", None),
    ];
    store
        .retry_queue()
        .step_with(to(0, 10), &rows, &[])
        .await
        .unwrap();
    let units = store
        .retry_queue()
        .retried_units("store", SOURCE)
        .await
        .unwrap();
    let units: std::collections::BTreeMap<_, _> = units.into_iter().collect();
    assert_eq!((units["c:alice"], units["c:bob"]), (3, 1));
    assert_eq!(
        store.retry_queue().next_due("store", SOURCE).await.unwrap(),
        Some(40)
    );
    let counts = store.retry_queue().retry_counts("store").await.unwrap()[SOURCE];
    assert_eq!((counts.count, counts.oldest_ms), (4, Some(101)));
    let due = async |now_ms| -> Vec<u64> {
        let due = store
            .retry_queue()
            .due("store", SOURCE, now_ms, 9)
            .await
            .unwrap();
        due.iter().map(|retry| retry.position).collect()
    };
    assert!(due(39).await.is_empty());
    assert_eq!(due(60).await, [3, 1]);

    let again = Settlement::Again {
        due_ms: 70,
        error: "again".to_owned(),
    };
    let settled = [
        SettledRetry {
            retry: &rows[0],
            settlement: again,
        },
        SettledRetry {
            retry: &rows[2],
            settlement: Settlement::Done,
        },
    ];
    let remaining = store
        .retry_queue()
        .settle("store", SOURCE, &settled, 60)
        .await
        .unwrap();
    assert_eq!(remaining, [3, 0]);
    assert!(due(69).await.is_empty());
    let listed = store
        .retry_queue()
        .retries("store", SOURCE, None, 9)
        .await
        .unwrap();
    assert_eq!((listed[0].tries, listed[0].error.as_str()), (2, "again"));
    assert_eq!(
        store
            .retry_queue()
            .retry_now("store", SOURCE, 65)
            .await
            .unwrap(),
        1
    );
    assert_eq!(due(65).await, [1]);

    let dead = Settlement::Dead {
        letter: Box::new(letter("l1", "store", 70)),
        compensate_at_ms: Some(99),
    };
    let settled = [SettledRetry {
        retry: &rows[0],
        settlement: dead,
    }];
    assert_eq!(
        store
            .retry_queue()
            .settle("store", SOURCE, &settled, 70)
            .await
            .unwrap(),
        [2]
    );
    assert_eq!(
        due(70).await,
        [2],
        "the next one's turn, and not yet the one behind it"
    );
    assert_eq!(store.letters().dead_letter_count("store").await.unwrap(), 1);
    assert_eq!(
        store
            .replays()
            .compensations_due("store", 99, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        store
            .retry_queue()
            .revive("store", SOURCE, &retry(1, "c:alice", Some(70)), "l1")
            .await
            .unwrap()
    );
    assert!(
        !store
            .retry_queue()
            .revive("store", SOURCE, &retry(1, "c:alice", Some(70)), "l1")
            .await
            .unwrap()
    );
    assert_eq!(due(70).await, [1, 2]);
}

async fn dead_letter_is_stored_once_and_listed_newest_first(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let mut other = letter("d", "webhook", 30);
    other.reason = "tries".to_owned();
    let dead = vec![
        letter("a", "", 10),
        letter("b", "", 20),
        letter("c", "", 20),
        other,
    ];
    let batch = StoreBatch {
        events: vec![],
        dead,
    };
    store.store(to(0, 10), &batch).await.unwrap();
    store.store(to(10, 20), &batch).await.unwrap();
    let list = async |group: Option<&str>, reason: Option<&str>, after| -> Vec<String> {
        let filter = DeadFilter {
            group,
            reason,
            after,
            limit: 2,
        };
        let letters = store.letters().dead_letters(filter).await.unwrap();
        letters.into_iter().map(|letter| letter.id).collect()
    };
    assert_eq!(list(None, None, None).await, ["d", "c"]);
    assert_eq!(list(None, None, Some((20, "c"))).await, ["b", "a"]);
    assert_eq!(list(Some(""), None, None).await, ["c", "b"]);
    assert_eq!(list(Some("webhook"), None, None).await, ["d"]);
    assert_eq!(list(None, Some("tries"), None).await, ["d"]);
    assert!(
        store
            .letters()
            .edit_dead_letter("a", "{\"b\":1}", 40)
            .await
            .unwrap()
    );
    let edited = store.letters().dead_letter("a").await.unwrap().unwrap();
    assert_eq!(
        (edited.content.as_str(), edited.edited_at_ms),
        ("{\"b\":1}", Some(40))
    );
    assert_eq!(edited.message.chars().count(), 500);
    assert!(store.letters().delete_dead_letter("a").await.unwrap());
    assert!(!store.letters().delete_dead_letter("a").await.unwrap());
    assert_eq!(store.letters().clean_dead_letters(30).await.unwrap(), 2);
    assert_eq!(list(None, None, None).await, ["d"]);
}

async fn type_edit_needs_the_version_that_was_read(store: &EventStore) {
    assert!(
        store
            .registry()
            .put_type("view", "{}", None, 1)
            .await
            .unwrap()
    );
    assert!(
        !store
            .registry()
            .put_type("view", "{}", None, 2)
            .await
            .unwrap()
    );
    assert!(
        store
            .registry()
            .put_type("view", "{\"a\":1}", Some(1), 3)
            .await
            .unwrap()
    );
    assert!(
        !store
            .registry()
            .put_type("view", "{}", Some(1), 4)
            .await
            .unwrap()
    );
    let [existing] = &store.registry().types().await.unwrap()[..] else {
        panic!()
    };
    assert_eq!(
        (
            existing.version,
            existing.document.as_str(),
            existing.changed_at_ms
        ),
        (2, "{\"a\":1}", 3)
    );
    assert!(!store.registry().delete_type("view", 1).await.unwrap());
    assert!(store.registry().delete_type("view", 2).await.unwrap());
    assert!(store.registry().types().await.unwrap().is_empty());
}

async fn unit_is_requested_once(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let rows = [retry(1, "c:alice", Some(1)), retry(2, "c:alice", None)];
    let dead = |n: usize, at_ms: u64| SettledRetry {
        retry: &rows[n],
        settlement: Settlement::Dead {
            letter: Box::new(letter(&format!("l{n}"), "store", 1)),
            compensate_at_ms: Some(at_ms),
        },
    };
    store
        .retry_queue()
        .step_with(to(0, 1), &[], &[dead(0, 10)])
        .await
        .unwrap();
    let first = store
        .replays()
        .compensations_due("store", 10, 9)
        .await
        .unwrap();
    store
        .retry_queue()
        .step_with(to(1, 2), &[], &[dead(1, 20)])
        .await
        .unwrap();
    // It was requested again meanwhile, so the finished recomputation does not count.
    store
        .replays()
        .compensated("store", &first[0])
        .await
        .unwrap();
    let [requested] = &store.replays().compensations("store", "", 9).await.unwrap()[..] else {
        panic!()
    };
    assert_eq!((requested.due_ms, requested.tries), (Some(20), 0));
    store
        .replays()
        .postpone_compensation("store", requested, None, "it fails")
        .await
        .unwrap();
    let [given_up] = &store.replays().compensations("store", "", 9).await.unwrap()[..] else {
        panic!()
    };
    assert_eq!((given_up.due_ms, given_up.tries), (None, 1));
    assert!(
        store
            .replays()
            .compensations_due("store", u64::MAX, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        store.replays().compensation_count("store").await.unwrap(),
        1
    );
}
