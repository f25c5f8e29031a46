//! Edits and domains, read from Redis on ticks.
//!
//! A poll asks for what was added to the stream of changes since the last one, and begins with the last entry
//! that it knows: if that is not there any more, others have gone as well, and everything must be revalidated. Of the
//! document with the domains it asks for the beginning, where its version stands, and for its length; and for all
//! of it if these are others than before.

use weir_filter_kit::schedule::Schedule;
use weir_link::cache::LinkName;
use weir_resp::{Value, encode_command};
use weir_scripts::documents::domains::{BEGINNING_LEN, Outline};
use weir_scripts::keys;
use weir_scripts::streams::link_changes::{self, Change};

/// The most changes in one poll. If there are more, everything must be revalidated.
const CHANGES_MAX: usize = 2_000;

/// What is known of the stream of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cursor {
    /// Nothing: the last entry is to be found.
    Lost,
    /// It has no entry.
    Empty,
    /// Its last entry that was read.
    At(Vec<u8>),
}

/// When polls are due, and what they have found.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) schedule: Schedule,
    cursor: Cursor,
    /// The document as last read, good or bad.
    seen: Option<Outline>,
    /// Whether the next poll asks for the whole document.
    wants_document: bool,
}

/// What a poll has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PollResult {
    /// Links that were edited.
    pub(crate) changed: Vec<LinkName>,
    /// Whether others may have been.
    pub(crate) has_missed: bool,
    /// Another document with domains.
    pub(crate) domains: Option<Vec<u8>>,
}

/// A reply that is none to a poll.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Redis answered otherwise than asked: {0}")]
pub(crate) struct Unexpected(String);

impl Poller {
    pub(crate) fn new(interval_ms: u64) -> Self {
        Self {
            schedule: Schedule::new(interval_ms),
            cursor: Cursor::Lost,
            seen: None,
            wants_document: true,
        }
    }

    /// How many commands [`Poller::body`] has.
    pub(crate) fn commands(&self) -> usize {
        3 + usize::from(self.wants_document)
    }

    /// The poll's call.
    pub(crate) fn body(&self, key_prefix: &str) -> Vec<u8> {
        let (domains, changes) = (
            keys::link_domains(key_prefix),
            keys::link_changes(key_prefix),
        );
        let (last, count) = ((BEGINNING_LEN - 1).to_string(), CHANGES_MAX.to_string());
        let mut body = Vec::new();
        encode_command(
            &mut body,
            [b"GETRANGE".as_slice(), &domains, b"0", last.as_bytes()],
        );
        encode_command(&mut body, [b"STRLEN".as_slice(), &domains]);
        let (command, from, to, count): (&[u8], &[u8], &[u8], &[u8]) = match &self.cursor {
            Cursor::Lost => (b"XREVRANGE", b"+", b"-", b"1"),
            Cursor::Empty => (b"XRANGE", b"-", b"+", count.as_bytes()),
            Cursor::At(id) => (b"XRANGE", id, b"+", count.as_bytes()),
        };
        encode_command(&mut body, [command, &changes, from, to, b"COUNT", count]);
        if self.wants_document {
            encode_command(&mut body, [b"GET".as_slice(), &domains]);
        }
        body
    }

    /// Reads the replies.
    pub(crate) fn read(&mut self, replies: &[Value]) -> Result<PollResult, Unexpected> {
        let (beginning, length, changes, document) = match replies {
            [beginning, length, changes] => (beginning, length, changes, None),
            [beginning, length, changes, document] => (beginning, length, changes, Some(document)),
            _ => return Err(Unexpected(format!("{} replies", replies.len()))),
        };
        let (Value::Bulk(beginning), Value::Integer(length)) = (beginning, length) else {
            return Err(unexpected(beginning));
        };
        let mut result = self.read_changes(changes)?;
        match document {
            Some(Value::Bulk(document)) => {
                self.wants_document = false;
                self.seen = Some(Outline::of(document));
                result.domains = Some(document.clone());
            }
            Some(Value::Null) | None => self.look(beginning, *length),
            Some(other) => return Err(unexpected(other)),
        }
        self.schedule.reached();
        Ok(result)
    }

    /// Whether the document is another: then the next poll, which is due at once, asks for it. One that is gone
    /// counts on.
    fn look(&mut self, beginning: &[u8], length: i64) {
        let length = u64::try_from(length).unwrap_or(0);
        let is_seen = self.seen == Some(Outline::new(beginning, length));
        self.wants_document = length > 0 && !is_seen;
        if self.wants_document {
            self.schedule.again();
        }
    }

    fn read_changes(&mut self, reply: &Value) -> Result<PollResult, Unexpected> {
        let Value::Array(entries) = reply else {
            return Err(unexpected(reply));
        };
        let entries: Vec<Change<'_>> = entries
            .iter()
            .map(|entry| link_changes::read(entry).ok_or_else(|| unexpected(entry)))
            .collect::<Result<_, _>>()?;
        let last = entries.last().map(|entry| entry.id.to_vec());
        let (new, is_whole) = match &self.cursor {
            Cursor::Lost => (&[][..], false),
            Cursor::Empty => (&entries[..], true),
            Cursor::At(id) => match entries.split_first() {
                Some((first, new)) => (new, first.id == id.as_slice()),
                None => (&[][..], false),
            },
        };
        let is_whole = is_whole && entries.len() < CHANGES_MAX;
        let changed = match is_whole {
            true => {
                let links = new.iter().filter_map(|entry| entry.link.as_ref());
                links.map(LinkName::from).collect()
            }
            false => vec![],
        };
        self.cursor = match last {
            _ if entries.len() >= CHANGES_MAX => Cursor::Lost,
            Some(id) => Cursor::At(id),
            None => Cursor::Empty,
        };
        Ok(PollResult {
            changed,
            has_missed: !is_whole,
            domains: None,
        })
    }
}

fn unexpected(value: &Value) -> Unexpected {
    Unexpected(match value {
        Value::Error(error) => String::from_utf8_lossy(error).into_owned(),
        other => format!("{other:?}").chars().take(200).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn changes(entries: &[(&str, &str)]) -> Value {
        let entry = |(id, link): &(&str, &str)| {
            Value::Array(vec![bulk(id), Value::Array(vec![bulk("l"), bulk(link)])])
        };
        Value::Array(entries.iter().map(entry).collect())
    }

    /// A poll that finds these changes and an empty document.
    fn read(poller: &mut Poller, entries: &[(&str, &str)]) -> (Vec<String>, bool) {
        let replies = [bulk(""), Value::Integer(0), changes(entries)];
        let result = poller.read(&replies).unwrap();
        let text = |name: &LinkName| String::from_utf8(name.as_bytes().to_vec()).unwrap();
        (result.changed.iter().map(text).collect(), result.has_missed)
    }

    fn asks(poller: &Poller, command: &str) -> bool {
        let body = String::from_utf8(poller.body("weir")).unwrap();
        body.contains(command)
    }

    #[test]
    fn each_change_is_heard_of_once() {
        let mut poller = Poller::new(250);
        assert!(asks(&poller, "XREVRANGE\r\n"));
        assert_eq!(read(&mut poller, &[("5-0", "s/old")]), (vec![], true));
        assert!(asks(&poller, "\r\n5-0\r\n"));
        assert_eq!(read(&mut poller, &[("5-0", "s/old")]), (vec![], false));
        let new = [
            ("5-0", "s/old"),
            ("6-0", "s/abc"),
            ("6-1", "no link"),
            ("7-0", "s/abd"),
        ];
        let expected = vec!["s/abc".to_owned(), "s/abd".to_owned()];
        assert_eq!(read(&mut poller, &new), (expected, false));
        assert_eq!(read(&mut poller, &[("7-0", "s/abd")]), (vec![], false));
    }

    #[test]
    fn a_stream_that_begins_is_heard_from_its_beginning() {
        let mut poller = Poller::new(250);
        assert_eq!(read(&mut poller, &[]), (vec![], true));
        assert_eq!(read(&mut poller, &[]), (vec![], false));
        assert_eq!(
            read(&mut poller, &[("1-0", "s/abc")]),
            (vec!["s/abc".into()], false)
        );
    }

    #[test]
    fn changes_that_were_cut_off_or_lost_are_missed() {
        let mut poller = Poller::new(250);
        read(&mut poller, &[("5-0", "s/old")]);
        assert_eq!(read(&mut poller, &[("9-0", "s/abc")]), (vec![], true));
        assert_eq!(read(&mut poller, &[("9-0", "s/abc")]), (vec![], false));
        // Redis has lost all.
        assert_eq!(read(&mut poller, &[]), (vec![], true));
        assert_eq!(
            read(&mut poller, &[("1-0", "s/abc")]),
            (vec!["s/abc".into()], false)
        );
    }

    #[test]
    fn more_changes_than_a_poll_takes_make_all_stale_until_the_end_is_found() {
        let mut poller = Poller::new(250);
        read(&mut poller, &[("0-1", "s/old")]);
        let ids: Vec<String> = (1..=CHANGES_MAX).map(|n| format!("0-{n}")).collect();
        let many: Vec<_> = ids.iter().map(|id| (id.as_str(), "s/abc")).collect();
        assert_eq!(read(&mut poller, &many), (vec![], true));
        assert!(asks(&poller, "XREVRANGE\r\n"));
        // What was edited in between may have been read before its edit.
        assert_eq!(read(&mut poller, &[("9-9", "s/abc")]), (vec![], true));
    }

    #[test]
    fn a_document_is_fetched_when_it_is_another() {
        let mut poller = Poller::new(250);
        assert_eq!(poller.commands(), 4);
        let text = r#"{"version":1,"domains":[]}"#;
        let length = Value::Integer(text.len() as i64);
        let replies = [bulk(text), length.clone(), changes(&[]), bulk(text)];
        assert_eq!(
            poller.read(&replies).unwrap().domains.unwrap(),
            text.as_bytes()
        );
        assert_eq!(poller.commands(), 3);
        assert_eq!(poller.read(&replies[..3]).unwrap().domains, None);
        assert_eq!(poller.commands(), 3);
        let other = r#"{"version":2,"domains":[]}"#;
        poller.read(&[bulk(other), length, changes(&[])]).unwrap();
        assert_eq!(poller.commands(), 4);
        // One that is gone is no other one.
        poller.wants_document = false;
        poller
            .read(&[bulk(""), Value::Integer(0), changes(&[])])
            .unwrap();
        assert_eq!(poller.commands(), 3);
    }

    #[test]
    fn what_is_no_reply_is_refused_and_forgets_nothing() {
        let mut poller = Poller::new(250);
        read(&mut poller, &[("5-0", "s/old")]);
        let error = Value::Error(b"LOADING".to_vec());
        for replies in [
            &[][..],
            &[bulk(""), Value::Integer(0), error.clone()],
            &[error.clone(), Value::Integer(0), changes(&[])],
            &[bulk(""), Value::Integer(0), Value::Array(vec![bulk("x")])],
            &[
                bulk(""),
                Value::Integer(0),
                changes(&[("5-0", "s/old")]),
                error,
            ],
        ] {
            assert!(poller.read(replies).is_err());
        }
        assert_eq!(read(&mut poller, &[("5-0", "s/old")]), (vec![], false));
    }
}
