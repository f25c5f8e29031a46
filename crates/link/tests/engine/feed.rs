//! The link feed and its readers, on a model of the origin with edits, repeated reads, crashes and delays.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_base::feed::DocumentRejection;
use weir_base::feed::document::Document;
use weir_link::code::LinkId;
use weir_link::feed::{Cursor, Entry, Links, Page, Source, State, is_for_edges};
use weir_link::record::{Link, PasswordGuard};

const NOW_MS: u64 = 1_000_000;

/// The origin: every link with its number, and the last number.
#[derive(Default)]
struct Origin {
    links: BTreeMap<LinkId, (u64, State)>,
    seq: u64,
}

fn id(number: u8) -> LinkId {
    format!("s/abc{number}").parse().unwrap()
}

fn source() -> Source {
    Source::new("f1").unwrap()
}

impl Origin {
    fn change(&mut self, number: u8, state: State) {
        self.seq += 1;
        self.links.insert(id(number), (self.seq, state));
    }

    fn page(&self, after: u64, limit: usize, at_ms: u64) -> Document<Page> {
        let behind = self.links.iter().filter(|(_, (seq, _))| *seq > after);
        let entry = |(id, (seq, state)): (&LinkId, &(u64, State))| Entry {
            seq: *seq,
            id: id.clone(),
            state: state.clone(),
        };
        let mut links: Vec<Entry> = behind.map(entry).collect();
        links.sort_by_key(|entry| entry.seq);
        let is_last = links.len() <= limit;
        links.truncate(limit);
        let next = links.last().map_or(after, |entry| entry.seq);
        let body = Page {
            source: source(),
            after,
            next,
            is_last,
            links,
        };
        Document { at_ms, body }
    }

    fn after(links: &Links) -> u64 {
        let cursor = links.progress.cursor.as_ref();
        cursor.map_or(0, |cursor| cursor.seq)
    }
}

fn state(number: u8) -> State {
    match number % 4 {
        0 => State::Gone,
        1 => State::AtGateway,
        _ => State::Record(format!("0 0 {{\"t\":\"https://{number}.example/\"}}")),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change(u8, u8),
    /// Reads a page with this many links.
    Read(usize),
    /// Replays an earlier page.
    Replay(prop::sample::Index),
    /// The edge crashes after writing some of a page, before writing its progress.
    Die(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..6, any::<u8>()).prop_map(|(id, state)| Step::Change(id, state)),
        (1_usize..4).prop_map(Step::Read),
        any::<prop::sample::Index>().prop_map(Step::Replay),
        (1_usize..4).prop_map(Step::Die),
    ]
}

proptest! {
    /// An edge that keeps reading finally has the origin's state, and never goes backwards.
    #[test]
    fn edge_that_keeps_reading_reaches_the_origin_state(steps in prop::collection::vec(step(), 0..60)) {
        let (mut origin, mut edge) = (Origin::default(), Links::default());
        let mut pages = vec![origin.page(0, 3, 0)];
        for (index, step) in (1..).zip(steps) {
            let before = edge.clone();
            match step {
                Step::Change(number, of) => origin.change(number, state(of)),
                Step::Read(limit) => {
                    let page = origin.page(Origin::after(&edge), limit, index);
                    prop_assert_eq!(edge.take(&page, NOW_MS), Ok(()));
                    pages.push(page);
                }
                Step::Replay(which) => {
                    let page = which.get(&pages);
                    // Only the next page, for the first time, may be accepted.
                    if page.body.after != Origin::after(&edge) {
                        prop_assert_eq!(edge.take(page, NOW_MS), Err(DocumentRejection::Elsewhere));
                        prop_assert_eq!(&edge, &before);
                    }
                }
                Step::Die(limit) => {
                    let page = origin.page(Origin::after(&edge), limit, index);
                    edge.take(&page, NOW_MS).unwrap();
                    edge.progress = before.progress.clone();
                }
            }
            prop_assert!(Origin::after(&edge) >= Origin::after(&before));
            prop_assert!(edge.progress.whole_at_ms >= before.progress.whole_at_ms);
        }
        for _ in 0..10 {
            edge.take(&origin.page(Origin::after(&edge), 3, 1_000), NOW_MS).unwrap();
        }
        for (id, (_, state)) in &origin.links {
            prop_assert_eq!(edge.find(id), Some(state));
        }
        prop_assert_eq!(edge.progress.whole_at_ms, 1_000);
    }

    #[test]
    fn arbitrary_text_never_panics_the_cursor_parser(text in ".{0,60}", seq: u64) {
        let _ = text.parse::<Cursor>();
        let cursor = Cursor { source: source(), seq };
        prop_assert_eq!(format!("{cursor}").parse(), Ok(cursor));
    }
}

#[test]
fn page_of_another_feed_position_or_time_is_rejected() {
    let (mut origin, mut edge) = (Origin::default(), Links::default());
    origin.change(1, state(2));
    edge.take(&origin.page(0, 3, 500), NOW_MS).unwrap();
    origin.change(1, State::Gone);
    let good = origin.page(1, 3, 600);
    let mut other = good.clone();
    other.body.source = Source::new("f2").unwrap();
    let mut older = good.clone();
    older.at_ms = 499;
    let mut future = good.clone();
    future.at_ms = NOW_MS + 5_001;
    let mut unordered = good.clone();
    unordered.body.links[0].seq = 1;
    for (page, error) in [
        (&other, DocumentRejection::Elsewhere),
        (&origin.page(0, 3, 600), DocumentRejection::Elsewhere),
        (&older, DocumentRejection::Older),
        (&future, DocumentRejection::Future),
        (&unordered, DocumentRejection::Elsewhere),
    ] {
        assert_eq!(edge.take(page, NOW_MS), Err(error), "{page:?}");
        assert_eq!(edge.find(&id(1)), Some(&state(2)));
    }
    edge.take(&good, NOW_MS).unwrap();
    assert_eq!(edge.find(&id(1)), Some(&State::Gone));
    edge.clear();
    assert_eq!(edge.find(&id(1)), None);
}

#[test]
fn edge_feed_omits_links_reserved_for_gateways() {
    let plain = Link::to("https://t.example/");
    assert!(is_for_edges(&plain));
    let counted = Link {
        max_clicks: 3,
        ..plain.clone()
    };
    let living = Link {
        life_ms: 1,
        ..plain.clone()
    };
    let guarded = Link {
        guard: Some(PasswordGuard::default()),
        ..plain.clone()
    };
    assert_eq!(
        State::with_objects(&guarded, "secret".into()),
        State::AtGateway
    );
    let tracked = Link {
        is_tracked: true,
        ..plain.clone()
    };
    for link in [counted, living, guarded, tracked] {
        assert!(!is_for_edges(&link));
        assert_eq!(State::for_link(&link, "secret".into()), State::AtGateway);
    }
    assert_eq!(
        State::for_link(&plain, "r".into()),
        State::Record("r".into())
    );
}

#[test]
fn feed_cursor_has_one_spelling() {
    for bad in [
        "",
        "f1",
        "f1.",
        "f1.+1",
        "f1.01",
        "F1.1",
        ".1",
        "f1.1.1",
        "f1.18446744073709551616",
    ] {
        assert!(bad.parse::<Cursor>().is_err(), "{bad}");
    }
    assert!(Source::new("a".repeat(33)).is_err());
}
