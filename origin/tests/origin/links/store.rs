//! The cold store of links: the same suite on SQLite and MariaDB.

use weir_link::code::{Code, DomainId, Length};
use weir_link::record::Link;
use weir_link::segment::Segment;
use weir_log::Position;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::store::{
    Action, Change, EndedLink, Entry, LinkCursor, LinkStore, NewLink, StoredLink,
};

use super::{id, new_link, tagged};

on_every_database! {
    LinkStore:
    log_is_drained_once_together_with_its_position,
    taken_code_is_skipped_and_reported,
    void_entry_removes_only_its_own_link,
    upper_and_lower_case_are_different_codes,
    edit_applies_only_to_the_version_read,
    links_are_listed_newest_first_page_by_page,
    tags_follow_edits,
    clicks_extend_the_lifetime_up_to_the_links_end,
    ended_link_is_removed_with_its_statistics_and_history,
    segment_belongs_to_one_origin_in_its_round,
    earlier_overlapping_reservation_is_reported,
    number_stays_reserved_in_the_last_round_or_recently,
    chosen_numbers_are_reported_by_segment,
    one_of_many_codes_is_found,
    numbering_is_recorded_once,
}

const LOG: &str = "0123456789abcdef0123456789abcdef";

fn at(byte: u64) -> Position {
    Position { file: 3, byte }
}

fn names(links: &[StoredLink]) -> Vec<String> {
    links.iter().map(|link| link.id.to_string()).collect()
}

async fn stored(store: &LinkStore, name: &str) -> StoredLink {
    store.link(&id(name)).await.unwrap().unwrap()
}

async fn edited(store: &LinkStore, before: &StoredLink, action: Action, now_ms: u64) -> bool {
    let mut link = before.link.clone();
    link.version += 1;
    link.target = format!("https://example.com/{}", link.version);
    let change = Change {
        before,
        link: &link,
        labels: &before.labels,
        action,
        now_ms,
    };
    store.edits().change(change).await.unwrap()
}

async fn log_is_drained_once_together_with_its_position(store: &LinkStore) {
    let before = store.log().log_position(LOG).await.unwrap();
    assert_eq!(before, Position::default());
    // More rows than one statement takes, and some more.
    let created = |n: u64| Entry::Made(tagged(&format!("s/code-{n}"), n, &["a", "ü"]));
    let entries: Vec<Entry> = (0..150).map(created).collect();
    assert_eq!(store.log().drain(LOG, at(9), &entries).await.unwrap(), 0);
    assert_eq!(store.log().log_position(LOG).await.unwrap(), at(9));
    let link = stored(store, "s/code-149").await;
    assert_eq!(link.link.target, "https://example.com/s/code-149?a=\"1\"");
    assert_eq!(link.labels.tags, ["a", "ü"]);
    assert_eq!((link.created_at_ms, link.changed_at_ms), (149, 149));
    assert_eq!(link.expires_at_ms, Some(1_149));
    // A crash after the transaction: a repetition changes nothing.
    assert_eq!(store.log().drain(LOG, at(9), &entries).await.unwrap(), 150);
    assert_eq!(store.list(None, None, 999).await.unwrap().len(), 150);
    assert_eq!(store.list(Some("ü"), None, 999).await.unwrap().len(), 150);
    store.log().drain(LOG, at(10), &[]).await.unwrap();
    assert_eq!(store.log().log_position(LOG).await.unwrap(), at(10));
}

async fn taken_code_is_skipped_and_reported(store: &LinkStore) {
    assert!(store.log().insert(&new_link("s/code-70", 1)).await.unwrap());
    assert!(!store.log().insert(&new_link("s/code-70", 2)).await.unwrap());
    let created = |n: u64| Entry::Made(new_link(&format!("s/code-{n}"), 100 + n));
    let entries: Vec<Entry> = (0..128).map(created).collect();
    assert_eq!(store.log().drain(LOG, at(1), &entries).await.unwrap(), 1);
    assert_eq!(stored(store, "s/code-70").await.created_at_ms, 1);
    assert_eq!(store.list(None, None, 999).await.unwrap().len(), 128);
}

async fn void_entry_removes_only_its_own_link(store: &LinkStore) {
    let (ours, theirs) = (tagged("s/abc", 5, &["a"]), new_link("s/def", 6));
    let their_double = NewLink {
        record: "0 0 {\"t\":\"https://other.example/\"}".into(),
        ..theirs.clone()
    };
    store.log().insert(&theirs).await.unwrap();
    let entries = [
        Entry::Made(ours.clone()),
        Entry::Made(their_double.clone()),
        Entry::Void(ours),
        Entry::Void(their_double),
        Entry::Made(new_link("s/ghi", 7)),
    ];
    assert_eq!(store.log().drain(LOG, at(1), &entries).await.unwrap(), 1);
    let remaining = store.list(None, None, 9).await.unwrap();
    assert_eq!(names(&remaining), ["s/ghi", "s/def"]);
    assert!(store.list(Some("a"), None, 9).await.unwrap().is_empty());
    // An edited link stays: its creation was acknowledged.
    let def = stored(store, "s/def").await;
    assert!(edited(store, &def, Action::Edit, 8).await);
    store
        .log()
        .drain(LOG, at(2), &[Entry::Void(theirs)])
        .await
        .unwrap();
    assert_eq!(stored(store, "s/def").await.link.version, 2);
}

async fn upper_and_lower_case_are_different_codes(store: &LinkStore) {
    for name in ["s/abcde", "s/ABCDE", "s/aBcDe", "t/abcde"] {
        assert!(
            store.log().insert(&new_link(name, 1)).await.unwrap(),
            "{name}"
        );
    }
    assert_eq!(store.link(&id("s/Abcde")).await.unwrap(), None);
}

async fn edit_applies_only_to_the_version_read(store: &LinkStore) {
    store.log().insert(&new_link("s/abc", 10)).await.unwrap();
    assert!(store.history(&id("s/abc")).await.unwrap().is_empty());
    let first = stored(store, "s/abc").await;
    assert!(edited(store, &first, Action::Edit, 20).await);
    assert!(!edited(store, &first, Action::Edit, 21).await);
    let second = stored(store, "s/abc").await;
    assert_eq!((second.link.version, second.changed_at_ms), (2, 20));
    assert_eq!(second.expires_at_ms, Some(1_020));
    assert!(edited(store, &second, Action::Delete, 30).await);
    assert_eq!(store.link(&id("s/abc")).await.unwrap(), None);
    // Its code stays taken.
    assert!(!store.log().insert(&new_link("s/abc", 31)).await.unwrap());

    let history = store.history(&id("s/abc")).await.unwrap();
    let past: Vec<_> = history
        .iter()
        .map(|past| (past.action, past.link.version, past.at_ms))
        .collect();
    let expected = [
        (Action::Create, 1, 10),
        (Action::Edit, 2, 20),
        (Action::Delete, 3, 30),
    ];
    assert_eq!(past, expected);
    assert_eq!(history[0].link, first.link);

    let unpublished = store.edits().unpublished(25, 9).await.unwrap();
    assert_eq!(unpublished, [(id("s/abc"), 2)]);
    store.edits().mark_published(&id("s/abc"), 2).await.unwrap();
    let unpublished = store.edits().unpublished(99, 9).await.unwrap();
    assert_eq!(unpublished, [(id("s/abc"), 3)]);
}

async fn links_are_listed_newest_first_page_by_page(store: &LinkStore) {
    for (name, created_at_ms) in [
        ("s/aaa", 1),
        ("s/bbb", 2),
        ("t/aaa", 2),
        ("s/ccc", 2),
        ("s/ddd", 3),
    ] {
        let link = tagged(name, created_at_ms, &["x"]);
        store.log().insert(&link).await.unwrap();
    }
    store.log().insert(&new_link("s/eee", 2)).await.unwrap();
    let expected = ["s/ddd", "t/aaa", "s/ccc", "s/bbb", "s/aaa"];
    let (mut observed, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Some("x"), after.as_ref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(LinkCursor {
            created_at_ms: last.created_at_ms,
            id: last.id.clone(),
        });
        observed.extend(names(&page));
    }
    assert_eq!(observed, expected);
    let after = LinkCursor {
        created_at_ms: 2,
        id: id("s/eee"),
    };
    let rest = store.list(None, Some(&after), 9).await.unwrap();
    assert_eq!(names(&rest), ["s/ccc", "s/bbb", "s/aaa"]);
}

async fn tags_follow_edits(store: &LinkStore) {
    store
        .log()
        .insert(&tagged("s/abc", 1, &["a", "b"]))
        .await
        .unwrap();
    let before = stored(store, "s/abc").await;
    let link = Link {
        version: 2,
        ..before.link.clone()
    };
    let labels = Labels::tagged(vec!["b".to_owned(), "c".to_owned()]);
    let change = Change {
        before: &before,
        link: &link,
        labels: &labels,
        action: Action::Edit,
        now_ms: 2,
    };
    assert!(store.edits().change(change).await.unwrap());
    for (tag, count) in [("a", 0), ("b", 1), ("c", 1)] {
        let tagged = store.list(Some(tag), None, 9).await.unwrap();
        assert_eq!(tagged.len(), count, "{tag}");
    }
}

async fn clicks_extend_the_lifetime_up_to_the_links_end(store: &LinkStore) {
    let own_end = NewLink {
        ends_at_ms: 1_500,
        ..new_link("s/own", 0)
    };
    let for_ever = NewLink {
        life_ms: 0,
        ..new_link("s/ever", 0)
    };
    for link in [&new_link("s/abc", 0), &own_end, &for_ever] {
        store.log().insert(link).await.unwrap();
    }
    let clicked = |ms| ["s/abc", "s/own", "s/ever", "s/none"].map(|name| (id(name), ms));
    store.ends().touch(&clicked(700)).await.unwrap();
    // An older click that is reported later does not shorten the life.
    store.ends().touch(&clicked(600)).await.unwrap();
    let ends = |link: StoredLink| link.expires_at_ms;
    assert_eq!(ends(stored(store, "s/abc").await), Some(1_700));
    assert_eq!(ends(stored(store, "s/own").await), Some(1_500));
    assert_eq!(ends(stored(store, "s/ever").await), None);
}

async fn ended_link_is_removed_with_its_statistics_and_history(store: &LinkStore) {
    for (name, ms) in [("s/aaa", 0), ("s/bbb", 10), ("s/ccc", 20), ("s/ddd", 30)] {
        let link = tagged(name, ms, &["x"]);
        store.log().insert(&link).await.unwrap();
    }
    let aaa = stored(store, "s/aaa").await;
    assert!(edited(store, &aaa, Action::Delete, 5).await);
    let ended = store.ends().ended(0, 1_020, 9).await.unwrap();
    let expected = [("s/aaa", 5, true), ("s/bbb", 1_010, false)];
    let expected = expected.map(|(name, expires_at_ms, is_deleted)| EndedLink {
        id: id(name),
        expires_at_ms,
        is_deleted,
    });
    assert_eq!(ended, expected);
    assert_eq!(
        store.ends().ended(6, 1_021, 1).await.unwrap(),
        expected[1..]
    );

    // A click comes between the scan and the removal.
    store.ends().touch(&[(id("s/bbb"), 500)]).await.unwrap();
    assert_eq!(store.ends().remove(&ended).await.unwrap(), 1);
    assert!(store.history(&id("s/aaa")).await.unwrap().is_empty());
    assert!(store.edits().unpublished(99, 9).await.unwrap().is_empty());
    // The code is free again.
    assert!(
        store
            .log()
            .insert(&tagged("s/aaa", 40, &["x"]))
            .await
            .unwrap()
    );
    let tagged = store.list(Some("x"), None, 9).await.unwrap();
    assert_eq!(names(&tagged), ["s/aaa", "s/ddd", "s/ccc", "s/bbb"]);

    let ccc = EndedLink {
        id: id("s/ccc"),
        expires_at_ms: 1_020,
        is_deleted: false,
    };
    store.ends().prolong(&[(ccc.clone(), 5_000)]).await.unwrap();
    assert_eq!(store.ends().remove(&[ccc]).await.unwrap(), 0);
    assert_eq!(stored(store, "s/ccc").await.expires_at_ms, Some(5_000));
}

fn segment(round: u64, start: u64) -> Segment {
    Segment {
        length: Length::MIN,
        round,
        start,
        len: 10,
    }
}

async fn segment_belongs_to_one_origin_in_its_round(store: &LinkStore) {
    assert_eq!(
        store.segments().last_segment(Length::MIN).await.unwrap(),
        None
    );
    let segments = [segment(0, 0), segment(0, 10), segment(0, 0)];
    let reserved = store.segments().reserve(&segments, 5).await.unwrap();
    assert_eq!(reserved, [true, true, false]);
    let other = Segment {
        length: Length::MAX,
        ..segment(0, 0)
    };
    let segments = [segment(0, 10), segment(1, 0), other];
    let reserved = store.segments().reserve(&segments, 6).await.unwrap();
    assert_eq!(reserved, [false, true, true]);
    let last = store.segments().last_segment(Length::MIN).await.unwrap();
    assert_eq!(last, Some(segment(1, 0)));
    assert!(
        !store
            .segments()
            .is_round_open(Length::MIN, 1)
            .await
            .unwrap()
    );
    for now_ms in [7, 8] {
        store
            .segments()
            .open_round(Length::MIN, 1, now_ms)
            .await
            .unwrap();
    }
    assert!(
        store
            .segments()
            .is_round_open(Length::MIN, 1)
            .await
            .unwrap()
    );
    assert!(
        !store
            .segments()
            .is_round_open(Length::MAX, 1)
            .await
            .unwrap()
    );
}

async fn earlier_overlapping_reservation_is_reported(store: &LinkStore) {
    store.segments().reserve(&[segment(0, 0)], 5).await.unwrap();
    store.segments().reserve(&[segment(1, 0)], 9).await.unwrap();
    let before = async |round, start| {
        store
            .segments()
            .reserved_before(&segment(round, start))
            .await
            .unwrap()
    };
    assert_eq!(before(0, 0).await, None);
    assert_eq!(before(1, 0).await, Some(5));
    assert_eq!(before(2, 0).await, Some(9));
    assert_eq!(before(2, 9).await, Some(9));
    assert_eq!(before(2, 10).await, None);
}

async fn number_stays_reserved_in_the_last_round_or_recently(store: &LinkStore) {
    let is_reserved = async |index, since| {
        store
            .segments()
            .is_reserved(Length::MIN, index, since)
            .await
            .unwrap()
    };
    assert!(!is_reserved(0, 0).await);
    store.segments().reserve(&[segment(0, 0)], 5).await.unwrap();
    assert!(is_reserved(9, 100).await);
    assert!(!is_reserved(10, 0).await);
    store
        .segments()
        .reserve(&[segment(1, 20)], 9)
        .await
        .unwrap();
    assert!(!is_reserved(9, 5).await);
    assert!(is_reserved(9, 4).await);
    assert!(is_reserved(20, 100).await);
}

async fn chosen_numbers_are_reported_by_segment(store: &LinkStore) {
    let (s, t) = (DomainId::new("s").unwrap(), DomainId::new("t").unwrap());
    for (index, domain) in [(9, &s), (10, &s), (10, &t), (10, &t), (19, &s), (20, &s)] {
        let added = store.segments().add_custom(Length::MIN, index, domain);
        added.await.unwrap();
    }
    store
        .segments()
        .add_custom(Length::MAX, 11, &s)
        .await
        .unwrap();
    store
        .segments()
        .remove_custom(Length::MIN, 19, &s)
        .await
        .unwrap();
    let customs = store.segments().customs(&segment(0, 10)).await.unwrap();
    assert_eq!(customs, [10, 10]);
}

async fn one_of_many_codes_is_found(store: &LinkStore) {
    store
        .log()
        .insert(&new_link("s/code-142", 1))
        .await
        .unwrap();
    let (s, t) = (DomainId::new("s").unwrap(), DomainId::new("t").unwrap());
    let codes = |n: std::ops::Range<u32>| -> Vec<Code> {
        n.map(|n| Code::new(format!("code-{n}")).unwrap()).collect()
    };
    assert!(store.has_any(&s, &codes(0..143)).await.unwrap());
    assert!(!store.has_any(&s, &codes(0..142)).await.unwrap());
    assert!(!store.has_any(&t, &codes(0..143)).await.unwrap());
    assert!(!store.has_any(&s, &[]).await.unwrap());
}

async fn numbering_is_recorded_once(store: &LinkStore) {
    assert_eq!(store.segments().numbering("plain").await.unwrap(), "plain");
    assert_eq!(store.segments().numbering("0123").await.unwrap(), "plain");
    let s = DomainId::new("s").unwrap();
    let t = DomainId::new("t").unwrap();
    store
        .segments()
        .domains(std::slice::from_ref(&t))
        .await
        .unwrap();
    let all = store
        .segments()
        .domains(&[s.clone(), t.clone()])
        .await
        .unwrap();
    assert_eq!(all, [s, t]);
}
