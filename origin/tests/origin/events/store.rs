//! The SQL store of events: the same suite on SQLite and MariaDB.

use weir_origin::events::store::{
    CourseFilter, CourseOwner, CustomerRange, DeadFilter, DeadLetter, EventCursor, EventStore,
    Member, MemberChanges, Move, NewEvent, NewRetry, Progress, SegmentPut, SettledRetry,
    Settlement, Step, StoreBatch, StoredSegment, Trend, TrendFilter, TypeTrend,
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
    stored_events_are_counted_once_by_hour_and_type,
    profile_counts_the_latest_events_by_type,
    segment_is_evaluated_by_one_origin_in_the_order_of_customers,
    segment_chunk_ends_where_its_members_do,
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

async fn stored_events_are_counted_once_by_hour_and_type(store: &EventStore) {
    const HOUR_MS: u64 = 3_600_000;
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let at = |key: &str, position: u64, event_type: &str, at_ms: u64| NewEvent {
        event_type: event_type.to_owned(),
        at_ms,
        ..event(key, position)
    };
    let mut events: Vec<NewEvent> = (0..70)
        .map(|n| at(&format!("k{n}"), n, "view", HOUR_MS + n))
        .collect();
    events.push(at("cart", 70, "cart", 25 * HOUR_MS));
    let mut batch = StoreBatch {
        events,
        dead: Vec::new(),
    };
    store.store(to(0, 10), &batch).await.unwrap();
    // The same events, and one new one.
    batch.events.push(at("new", 71, "view", 26 * HOUR_MS - 1));
    store.store(to(10, 20), &batch).await.unwrap();
    let filter = TrendFilter {
        event_type: None,
        from_ms: 0,
        to_ms: 48 * HOUR_MS,
        step_ms: HOUR_MS,
    };
    let of = |event_type: &str, points: &[(u64, u64)]| TypeTrend {
        event_type: event_type.to_owned(),
        events: points.iter().map(|(_, events)| events).sum(),
        points: points.to_vec(),
    };
    let by_hour = store.counts().trend(filter).await.unwrap();
    let expected = Trend {
        types: vec![
            of("view", &[(HOUR_MS, 70), (25 * HOUR_MS, 1)]),
            of("cart", &[(25 * HOUR_MS, 1)]),
        ],
        is_complete: true,
    };
    assert_eq!(by_hour, expected);
    let by_day = TrendFilter {
        event_type: Some("view"),
        step_ms: 24 * HOUR_MS,
        ..filter
    };
    let by_day = store.counts().trend(by_day).await.unwrap();
    assert_eq!(by_day.types, [of("view", &[(0, 70), (24 * HOUR_MS, 1)])]);
    store.counts().clean_counts(2 * HOUR_MS).await.unwrap();
    let rest = store.counts().trend(filter).await.unwrap();
    assert_eq!(rest.types[0].events, 1, "{rest:?}");
}

async fn profile_counts_the_latest_events_by_type(store: &EventStore) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let of = |n: u64| NewEvent {
        event_type: if n < 3 { "cart" } else { "view" }.to_owned(),
        ..event(&format!("k{n}"), n)
    };
    let batch = StoreBatch {
        events: (0..10).map(of).collect(),
        dead: Vec::new(),
    };
    store.store(to(0, 10), &batch).await.unwrap();
    let types = store.customer_types("alice", 100).await.unwrap();
    let types: Vec<(&str, u64, u64, u64)> = types
        .iter()
        .map(|one| {
            (
                one.event_type.as_str(),
                one.events,
                one.first_ms,
                one.last_ms,
            )
        })
        .collect();
    assert_eq!(
        types,
        [("view", 7, 1_001, 1_004), ("cart", 3, 1_000, 1_001)]
    );
    let latest = store.customer_types("alice", 4).await.unwrap();
    assert_eq!((latest.len(), latest[0].events), (1, 4));
    assert_eq!(store.first_ms("alice").await.unwrap(), Some(1_000));
    assert_eq!(store.first_ms("nobody").await.unwrap(), None);
}

/// Stores `views` of each customer.
async fn views_of(store: &EventStore, customers: &[(&str, u64)]) {
    store.begin("store", SOURCE, 0, 1).await.unwrap();
    let mut events = Vec::new();
    for (customer, views) in customers {
        for n in 0..*views {
            let position = events.len() as u64;
            events.push(NewEvent {
                customer: Some((*customer).to_owned()),
                ..event(&format!("{customer}-{n}"), position)
            });
        }
    }
    events.push(NewEvent {
        customer: None,
        ..event("anonymous", 9_999)
    });
    let batch = StoreBatch {
        events,
        dead: Vec::new(),
    };
    store.store(to(0, 10), &batch).await.unwrap();
}

async fn segment_is_evaluated_by_one_origin_in_the_order_of_customers(store: &EventStore) {
    // 1,000 events end a chunk: alice and bob, then carl and dan.
    let views = [("alice", 300), ("bob", 900), ("carl", 2), ("dan", 1)];
    views_of(store, &views).await;
    let segments = store.segments();
    let put = segments.put_segment("seg", "{}", 100, 9).await.unwrap();
    assert_eq!(put, SegmentPut::Stored);
    assert_eq!(
        segments.lease_segment(99, 160).await.unwrap(),
        None,
        "not due"
    );
    let mut segment = segments.lease_segment(100, 160).await.unwrap().unwrap();
    assert_eq!(
        segments.lease_segment(159, 220).await.unwrap(),
        None,
        "leased"
    );
    assert!(segments.begin_run(&segment, 5_000).await.unwrap());
    assert!(!segments.begin_run(&segment, 6_000).await.unwrap(), "begun");
    segment.run_ms = 5_000;

    let range = segments.customer_range(&segment, "view").await.unwrap();
    assert_eq!((range.to.as_str(), range.is_last), ("bob", false));
    let counts = |range: CustomerRange, times| async move {
        let counts = segments.count_range("view", &range, times).await.unwrap();
        let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
        counts.sort();
        counts
    };
    let found = counts(range.clone(), (0, 5_000)).await;
    assert_eq!(found, [("alice".to_owned(), 300), ("bob".to_owned(), 900)]);
    // alice's last view was at 1,149 ms.
    let found = counts(range.clone(), (1_150, 5_000)).await;
    assert_eq!(found, [("bob".to_owned(), 900)]);
    let some = segments.count_customers("view", &["carl", "nobody"], (0, 5_000));
    let some = some.await.unwrap();
    assert_eq!((some.len(), some["carl"]), (1, 2));

    let changes = MemberChanges {
        entered: vec!["alice".to_owned(), "bob".to_owned()],
        ..MemberChanges::default()
    };
    let next = Progress::Chunk {
        leased_until_ms: 200,
    };
    let settle = async |segment: &StoredSegment, range: &CustomerRange, changes, progress| {
        let settled = segments.settle_chunk(segment, range, changes, 2, progress);
        settled.await.unwrap()
    };
    assert!(settle(&segment, &range, &changes, next).await);
    assert!(
        !settle(&segment, &range, &changes, next).await,
        "it went on"
    );

    // Another origin resumes after a crash.
    let mut segment = segments.lease_segment(200, 260).await.unwrap().unwrap();
    assert_eq!(
        (
            segment.run_ms,
            segment.run_customer.as_str(),
            segment.run_members
        ),
        (5_000, "bob", 2)
    );
    let range = segments.customer_range(&segment, "view").await.unwrap();
    assert!(range.is_last);
    let found = counts(range.clone(), (0, 5_000)).await;
    assert_eq!(found, [("carl".to_owned(), 2), ("dan".to_owned(), 1)]);
    let done = Progress::Done {
        due_ms: 9_000,
        is_complete: true,
    };
    assert!(settle(&segment, &range, &MemberChanges::default(), done).await);
    let names = |members: Vec<Member>| -> Vec<String> {
        members.into_iter().map(|one| one.customer).collect()
    };
    let members = segments.members("seg", "", 10).await.unwrap();
    assert_eq!(members[0].since_ms, 5_000);
    assert_eq!(names(members), ["alice", "bob"]);
    let after = segments.members("seg", "alice", 10).await.unwrap();
    assert_eq!(names(after), ["bob"]);
    let of_bob = segments.of_customer("bob").await.unwrap();
    assert_eq!(of_bob, [("seg".to_owned(), 5_000)]);
    assert_eq!(segments.lease_segment(8_999, 9_999).await.unwrap(), None);

    // A change restarts the evaluation, and the running evaluation stops.
    segment = segments.lease_segment(9_000, 9_060).await.unwrap().unwrap();
    assert_eq!((segment.members, segment.evaluated_ms), (2, Some(5_000)));
    segments
        .put_segment("seg", "{\"a\":1}", 9_001, 9)
        .await
        .unwrap();
    assert!(!segments.begin_run(&segment, 9_002).await.unwrap());
    let full = segments.put_segment("other", "{}", 9_003, 1).await.unwrap();
    assert_eq!(full, SegmentPut::TooMany);

    // A deleted segment blocks its name until its members are gone.
    assert!(segments.delete_segment("seg").await.unwrap());
    assert!(!segments.delete_segment("seg").await.unwrap());
    assert!(segments.segments().await.unwrap().is_empty());
    let put = segments.put_segment("seg", "{}", 9_004, 9).await.unwrap();
    assert_eq!(put, SegmentPut::Deleting);
    let segment = segments.lease_segment(9_005, 9_065).await.unwrap().unwrap();
    assert!(segment.is_deleted);
    assert!(segments.clean_segment("seg").await.unwrap());
    assert!(segments.of_customer("bob").await.unwrap().is_empty());
    let put = segments.put_segment("seg", "{}", 9_006, 9).await.unwrap();
    assert_eq!(put, SegmentPut::Stored);
}

async fn segment_chunk_ends_where_its_members_do(store: &EventStore) {
    views_of(store, &[("zoe", 1)]).await;
    let segments = store.segments();
    segments.put_segment("seg", "{}", 1, 9).await.unwrap();
    let mut segment = segments.lease_segment(1, 60).await.unwrap().unwrap();
    assert!(segments.begin_run(&segment, 5_000).await.unwrap());
    segment.run_ms = 5_000;
    let range = segments.customer_range(&segment, "view").await.unwrap();
    assert!(range.is_last);
    let many: Vec<String> = (0..1_500).map(|n| format!("m{n:04}")).collect();
    let changes = MemberChanges {
        entered: many.clone(),
        ..MemberChanges::default()
    };
    let next = Progress::Done {
        due_ms: 1,
        is_complete: true,
    };
    assert!(
        segments
            .settle_chunk(&segment, &range, &changes, 1_500, next)
            .await
            .unwrap()
    );
    let mut segment = segments.lease_segment(60, 120).await.unwrap().unwrap();
    assert!(segments.begin_run(&segment, 6_000).await.unwrap());
    (segment.run_ms, segment.run_customer) = (6_000, String::new());
    let range = segments.customer_range(&segment, "view").await.unwrap();
    assert_eq!((range.to.as_str(), range.is_last), ("m0999", false));
    let members = segments.members_in("seg", &range).await.unwrap();
    assert_eq!(members.len(), 1_000);
    let changes = MemberChanges {
        left: many[..1_000].to_vec(),
        sent: Vec::new(),
        ..MemberChanges::default()
    };
    let next = Progress::Chunk {
        leased_until_ms: 180,
    };
    let settled = segments.settle_chunk(&segment, &range, &changes, 0, next);
    assert!(settled.await.unwrap());
    let rest = segments.members("seg", "", 1_000).await.unwrap();
    assert_eq!((rest.len(), rest[0].customer.as_str()), (500, "m1000"));
    // Deletion goes in steps, too.
    assert!(segments.delete_segment("seg").await.unwrap());
    assert!(segments.clean_segment("seg").await.unwrap());
    assert!(segments.segment("seg").await.unwrap().is_none());
}
