//! Splits a body into events. It is an event, a list of events, or an object with a list and its sending time.
//!
//! ```json
//! {"sent_at_ms": 1700000000000, "events": [{"type": "view"}, …]}
//! ```

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::answer::Rejection;
use crate::event::{Event, id_of};
use crate::limits::{BODY_LEN_MAX, EVENTS_MAX};
use crate::name::EventId;

/// The supported values of `content-encoding`. The limit of an uncompressed body also applies to the decoded body.
pub const CONTENT_ENCODINGS: [&str; 3] = ["identity", "gzip", "zstd"];

/// The events of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The sending time by the client's clock, in milliseconds since the Unix epoch, if given.
    pub sent_at_ms: Option<u64>,
    /// The events in order: at least one, at most [`EVENTS_MAX`].
    pub events: Vec<RawEvent<'a>>,
}

/// One event of a body as unparsed JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// The original text.
    pub json: &'a str,
}

/// A body that cannot be split into events. The request gets this status instead of verdicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Not JSON, or not events. Status 400.
    #[error("the body is not a valid event batch: {0}")]
    Unreadable(String),
    /// No events. Status 400.
    #[error("the body has no events")]
    Empty,
    /// More than [`EVENTS_MAX`] events. Status 413.
    #[error("the body has {0} events, the maximum is {EVENTS_MAX}: split it")]
    TooMany(usize),
    /// Longer than [`BODY_LEN_MAX`]. Status 413.
    #[error("the body has {0} bytes, the maximum is {BODY_LEN_MAX}: split it")]
    TooLong(usize),
}

impl BatchError {
    /// The HTTP status.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Unreadable(_) | Self::Empty => 400,
            Self::TooMany(_) | Self::TooLong(_) => 413,
        }
    }
}

impl<'a> Batch<'a> {
    /// Splits a body. [`RawEvent::read`] parses each event.
    ///
    /// # Errors
    /// If the body as a whole is invalid.
    pub fn read(body: &'a [u8]) -> Result<Self, BatchError> {
        if body.len() > BODY_LEN_MAX {
            return Err(BatchError::TooLong(body.len()));
        }
        let batch = Self::cut(body).map_err(|error| BatchError::Unreadable(error.to_string()))?;
        let count = batch.list.count;
        match count {
            0 => Err(BatchError::Empty),
            1..=EVENTS_MAX => Ok(Self {
                sent_at_ms: batch.sent_at_ms,
                events: batch.list.events,
            }),
            _ => Err(BatchError::TooMany(count)),
        }
    }

    fn cut(body: &'a [u8]) -> Result<Parts<'a>, serde_json::Error> {
        if body.trim_ascii_start().first() == Some(&b'[') {
            let list = serde_json::from_slice(body)?;
            let sent_at_ms = None;
            return Ok(Parts { sent_at_ms, list });
        }
        let members: HasEvents = serde_json::from_slice(body)?;
        if members.events.is_some() {
            return serde_json::from_slice(body);
        }
        let one: &RawValue = serde_json::from_slice(body)?;
        Ok(Parts {
            sent_at_ms: None,
            list: List::from_raw(one),
        })
    }
}

impl RawEvent<'_> {
    /// Parses the event.
    ///
    /// # Errors
    /// If the event is invalid, with the location.
    pub fn read(&self) -> Result<Event, Rejection> {
        Event::read(self.json)
    }

    /// The id of an invalid event, if it can be parsed.
    pub fn id(&self) -> Option<EventId> {
        id_of(self.json)
    }
}

/// Whether an object is a list of events or one event.
#[derive(Deserialize)]
struct HasEvents {
    events: Option<IgnoredAny>,
}

/// The object with a list of events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts<'a> {
    sent_at_ms: Option<u64>,
    #[serde(borrow, rename = "events")]
    list: List<'a>,
}

/// A list of events: at most [`EVENTS_MAX`] are stored, and all are counted.
struct List<'a> {
    events: Vec<RawEvent<'a>>,
    count: usize,
}

impl<'a> List<'a> {
    fn from_raw(one: &'a RawValue) -> Self {
        let json = one.get();
        Self {
            events: [RawEvent { json }].into(),
            count: 1,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for List<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<'de>, A::Error> {
        let mut events = Vec::new();
        while events.len() < EVENTS_MAX {
            let Some(raw) = seq.next_element::<&RawValue>()? else {
                let count = events.len();
                return Ok(List { events, count });
            };
            events.push(RawEvent { json: raw.get() });
        }
        let mut count = events.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(List { events, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::{events, written};
    use alloc::format;
    use alloc::vec;
    use proptest::prelude::*;

    fn texts(body: &str) -> Vec<&str> {
        let batch = Batch::read(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
        batch.events.iter().map(|sent| sent.json).collect()
    }

    #[test]
    fn body_is_one_event_or_a_list_of_events() {
        let (a, b) = (r#"{"type":"a"}"#, r#"{ "type": "b" }"#);
        assert_eq!(texts(&format!(" {a}\n")), [a]);
        assert_eq!(texts(&format!("[{a} , {b}]")), [a, b]);
        let body = format!(r#"{{"sent_at_ms":7,"events":[{a},{b}]}}"#);
        assert_eq!(texts(&body), [a, b]);
        assert_eq!(Batch::read(body.as_bytes()).unwrap().sent_at_ms, Some(7));
    }

    #[test]
    fn invalid_event_does_not_affect_others_in_the_batch() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(r#"[{{"type":"a"}},7,{{"type":"b","x":{deep}}},{{"type":"c"}}]"#);
        let batch = Batch::read(body.as_bytes()).unwrap();
        let read: Vec<bool> = batch
            .events
            .iter()
            .map(|sent| sent.read().is_ok())
            .collect();
        assert_eq!(read, [true, false, false, true]);
    }

    #[test]
    fn malformed_body_is_refused_as_a_whole() {
        let check = |body: &[u8], status: u16| {
            let error = Batch::read(body).expect_err("a refusal");
            assert_eq!(error.status(), status, "{error}");
        };
        for bad in [
            "",
            "nonsense",
            "[",
            r#"[{"type":"a"}"#,
            r#"[{"type":"a"},]"#,
            r#"{"events":[],"colour":1}"#,
            r#"{"events":[{"type":"a"}],"colour":1}"#,
            r#"{"events":{"type":"a"}}"#,
            r#"{"events":[{"type":"a"}],"sent_at_ms":"now"}"#,
            r#"{"type":"a"} {"type":"b"}"#,
            r#"{"type":"a""#,
            "[]",
            r#"{"events":[]}"#,
            "7",
            "null",
        ] {
            check(bad.as_bytes(), 400);
        }
        check(b"[{\"type\":\"\xff\"}]", 400);
        check(b"\xef\xbb\xbf[{\"type\":\"a\"}]", 400);
        check(&vec![b' '; BODY_LEN_MAX + 1], 413);
    }

    #[test]
    fn batch_above_the_event_limit_is_counted_and_refused() {
        let body = |count: usize| format!("[{}]", vec![r#"{"type":"a"}"#; count].join(","));
        assert_eq!(texts(&body(EVENTS_MAX)).len(), EVENTS_MAX);
        let error = Batch::read(body(10_000).as_bytes()).unwrap_err();
        assert_eq!(error, BatchError::TooMany(10_000));
        assert_eq!(error.status(), 413);
    }

    proptest! {
        #[test]
        fn event_list_is_split_into_its_original_texts(events in prop::collection::vec(events(), 1..6), sent_at_ms: u64) {
            let texts: Vec<String> = events.iter().map(written).collect();
            let list = texts.join(",");
            let body = format!(r#"{{"events":[{list}],"sent_at_ms":{sent_at_ms}}}"#);
            let batch = Batch::read(body.as_bytes()).unwrap();
            prop_assert_eq!(batch.sent_at_ms, Some(sent_at_ms));
            let read: Vec<_> = batch.events.iter().map(|sent| sent.read().unwrap().fingerprint()).collect();
            let expected: Vec<_> = events.iter().map(Event::fingerprint).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn no_bytes_panic_the_reader(body: Vec<u8>) {
            if let Ok(batch) = Batch::read(&body) {
                batch.events.iter().for_each(|sent| drop((sent.read(), sent.id())));
            }
        }
    }
}
