//! Polls Redis for edits and domains on ticks.
//!
//! A poll reads the stream of changes from the last entry that it has seen. If that entry is gone, others are gone too,
//! and everything must be revalidated. Of the document with the domains, a poll reads the first bytes, which contain
//! its version, and its length. If these have changed, the next poll reads the whole document.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::cache::LinkName;
use crate::redis::domains::{BEGINNING_LEN, Outline};
use crate::redis::keys;
use crate::redis::link_changes::{self, Change};
use weir_base::resp::{Value, encode_command};
use weir_engine::poll::Schedule;
use weir_engine::redis::Failure;
use weir_engine::{BatchId, Effects};

/// Maximum changes in one poll. If there are more, everything must be revalidated.
const CHANGES_MAX: usize = 2_000;

/// Timeout of a poll, in milliseconds.
const POLL_TIMEOUT_MS: u64 = 1_000;

/// The position in the stream of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cursor {
    /// Unknown: the last entry must be read.
    Lost,
    /// The stream is empty.
    Empty,
    /// The last entry that was read.
    At(Vec<u8>),
}

/// Schedules polls and reads their replies.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) schedule: Schedule,
    domains_key: Vec<u8>,
    changes_key: Vec<u8>,
    cursor: Cursor,
    /// The last document that was read, valid or not.
    observed: Option<Outline>,
    /// Whether the next poll reads the whole document.
    wants_document: bool,
}

/// The result of a poll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PollResult {
    /// Edited links.
    pub(crate) changed: Vec<LinkName>,
    /// Whether changes may have been missed.
    pub(crate) has_missed: bool,
    /// A new document with domains.
    pub(crate) domains: Option<Vec<u8>>,
}

/// Why a poll failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PollError {
    /// No reply.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The reply has an unexpected shape.
    #[error("unexpected reply of Redis: {0}")]
    Unexpected(String),
}

impl Poller {
    pub(crate) fn new(interval_ms: u64, key_prefix: &str) -> Self {
        Self {
            schedule: Schedule::new(interval_ms),
            domains_key: keys::link_domains(key_prefix),
            changes_key: keys::link_changes(key_prefix),
            cursor: Cursor::Lost,
            observed: None,
            wants_document: true,
        }
    }

    /// Sends a poll if one is due.
    pub(crate) fn poll(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.schedule.is_due(now_ms) {
            let batch = effects.call(POLL_TIMEOUT_MS, now_ms, |out| self.write(out));
            self.schedule.sent(batch);
        }
    }

    /// Whether `batch`, which has ended, was the poll.
    pub(crate) fn completed(&mut self, batch: BatchId) -> bool {
        self.schedule.completed(batch)
    }

    /// The number of commands that [`Poller::write`] writes.
    pub(crate) fn commands(&self) -> usize {
        3 + usize::from(self.wants_document)
    }

    /// Writes the poll's commands.
    fn write(&self, out: &mut Vec<u8>) {
        let domains = self.domains_key.as_slice();
        let (last, count) = ((BEGINNING_LEN - 1).to_string(), CHANGES_MAX.to_string());
        encode_command(out, [b"GETRANGE", domains, b"0", last.as_bytes()]);
        encode_command(out, [b"STRLEN", domains]);
        let (command, from, to, count): (&[u8], &[u8], &[u8], &[u8]) = match &self.cursor {
            Cursor::Lost => (b"XREVRANGE", b"+", b"-", b"1"),
            Cursor::Empty => (b"XRANGE", b"-", b"+", count.as_bytes()),
            Cursor::At(id) => (b"XRANGE", id, b"+", count.as_bytes()),
        };
        encode_command(out, [command, &self.changes_key, from, to, b"COUNT", count]);
        if self.wants_document {
            encode_command(out, [b"GET", domains]);
        }
    }

    /// Reads the poll's replies.
    ///
    /// # Errors
    /// If the replies are missing or malformed. The state stays unchanged.
    pub(crate) fn read(
        &mut self,
        replies: &Result<Vec<Value>, Failure>,
    ) -> Result<PollResult, PollError> {
        match replies {
            Ok(replies) => self.read_replies(replies),
            Err(failure) => Err(failure.clone().into()),
        }
    }

    fn read_replies(&mut self, replies: &[Value]) -> Result<PollResult, PollError> {
        let (beginning, length, changes, document) = match replies {
            [beginning, length, changes] => (beginning, length, changes, None),
            [beginning, length, changes, document] => (beginning, length, changes, Some(document)),
            _ => {
                let count = format!("{} values", replies.len());
                return Err(PollError::Unexpected(count));
            }
        };
        let (Value::Bulk(beginning), Value::Integer(length)) = (beginning, length) else {
            return Err(unexpected(beginning));
        };
        let document = match document {
            Some(Value::Bulk(document)) => Some(document),
            Some(Value::Null) | None => None,
            Some(other) => return Err(unexpected(other)),
        };
        // Nothing may fail after this: changes are reported only once.
        let (changed, has_missed) = self.read_changes(changes)?;
        match document {
            Some(document) => self.note_document(document),
            None => self.compare(beginning, *length),
        }
        Ok(PollResult {
            changed,
            has_missed,
            domains: document.cloned(),
        })
    }

    fn note_document(&mut self, document: &[u8]) {
        self.wants_document = false;
        self.observed = Some(Outline::from_document(document));
    }

    /// Requests the whole document with an immediate poll if it has changed. If it is gone, the last one stays in use.
    fn compare(&mut self, beginning: &[u8], length: i64) {
        let length = u64::try_from(length).unwrap_or(0);
        let is_seen = self.observed == Some(Outline::new(beginning, length));
        self.wants_document = length > 0 && !is_seen;
        if self.wants_document {
            self.schedule.again();
        }
    }

    /// The edited links, and whether changes may have been missed.
    fn read_changes(&mut self, reply: &Value) -> Result<(Vec<LinkName>, bool), PollError> {
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
        Ok((changed, !is_whole))
    }
}

fn unexpected(value: &Value) -> PollError {
    PollError::Unexpected(match value {
        Value::Error(error) => String::from_utf8_lossy(error).into_owned(),
        other => format!("{other:?}").chars().take(200).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn changes(entries: &[(&str, &str)]) -> Value {
        let entry = |(id, link): &(&str, &str)| {
            Value::Array(vec![bulk(id), Value::Array(vec![bulk("l"), bulk(link)])])
        };
        Value::Array(entries.iter().map(entry).collect())
    }

    /// Reads a poll's replies with these changes and an empty document.
    fn read(poller: &mut Poller, entries: &[(&str, &str)]) -> (Vec<String>, bool) {
        let replies = [bulk(""), Value::Integer(0), changes(entries)];
        let result = poller.read_replies(&replies).unwrap();
        let text = |name: &LinkName| String::from_utf8(name.as_bytes().to_vec()).unwrap();
        (result.changed.iter().map(text).collect(), result.has_missed)
    }

    fn asks(poller: &Poller, command: &str) -> bool {
        let mut commands = vec![];
        poller.write(&mut commands);
        String::from_utf8(commands).unwrap().contains(command)
    }

    #[test]
    fn each_link_change_is_read_once() {
        let mut poller = Poller::new(250, "weir");
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
    fn new_change_stream_is_read_from_its_beginning() {
        let mut poller = Poller::new(250, "weir");
        assert_eq!(read(&mut poller, &[]), (vec![], true));
        assert_eq!(read(&mut poller, &[]), (vec![], false));
        assert_eq!(
            read(&mut poller, &[("1-0", "s/abc")]),
            (vec!["s/abc".into()], false)
        );
    }

    #[test]
    fn truncated_or_lost_changes_are_detected() {
        let mut poller = Poller::new(250, "weir");
        read(&mut poller, &[("5-0", "s/old")]);
        assert_eq!(read(&mut poller, &[("9-0", "s/abc")]), (vec![], true));
        assert_eq!(read(&mut poller, &[("9-0", "s/abc")]), (vec![], false));
        // Redis has lost everything.
        assert_eq!(read(&mut poller, &[]), (vec![], true));
        assert_eq!(
            read(&mut poller, &[("1-0", "s/abc")]),
            (vec!["s/abc".into()], false)
        );
    }

    #[test]
    fn poll_overflow_marks_all_stale_until_the_end_is_reached() {
        let mut poller = Poller::new(250, "weir");
        read(&mut poller, &[("0-1", "s/old")]);
        let ids: Vec<String> = (1..=CHANGES_MAX).map(|n| format!("0-{n}")).collect();
        let many: Vec<_> = ids.iter().map(|id| (id.as_str(), "s/abc")).collect();
        assert_eq!(read(&mut poller, &many), (vec![], true));
        assert!(asks(&poller, "XREVRANGE\r\n"));
        // A link may have been read before an edit in between.
        assert_eq!(read(&mut poller, &[("9-9", "s/abc")]), (vec![], true));
    }

    #[test]
    fn changed_domains_document_is_fetched() {
        let mut poller = Poller::new(250, "weir");
        assert_eq!(poller.commands(), 4);
        assert!(asks(&poller, "\r\n0\r\n$2\r\n63\r\n"), "64 bytes of it");
        let text = r#"{"version":1,"domains":[]}"#;
        let length = Value::Integer(text.len() as i64);
        let replies = [bulk(text), length.clone(), changes(&[]), bulk(text)];
        assert_eq!(
            poller.read_replies(&replies).unwrap().domains.unwrap(),
            text.as_bytes()
        );
        assert_eq!(poller.commands(), 3);
        assert_eq!(poller.read_replies(&replies[..3]).unwrap().domains, None);
        assert_eq!(poller.commands(), 3);
        let other = r#"{"version":2,"domains":[]}"#;
        poller
            .read_replies(&[bulk(other), length, changes(&[])])
            .unwrap();
        assert_eq!(poller.commands(), 4);
        // A deleted document does not count as another one.
        poller.wants_document = false;
        poller
            .read_replies(&[bulk(""), Value::Integer(0), changes(&[])])
            .unwrap();
        assert_eq!(poller.commands(), 3);
    }

    #[test]
    fn invalid_poll_reply_is_rejected_and_keeps_the_state() {
        let mut poller = Poller::new(250, "weir");
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
                changes(&[("5-0", "s/old"), ("6-0", "s/abc")]),
                error,
            ],
        ] {
            assert!(poller.read_replies(replies).is_err());
        }
        let entries = [("5-0", "s/old"), ("6-0", "s/abc")];
        assert_eq!(read(&mut poller, &entries), (vec!["s/abc".into()], false));
    }
}
