//! Dead letters: the stored remains of events that were refused or given up.

use serde::{Deserialize, Serialize};
use weir_event::answer::Reason;
use weir_event::envelope::Envelope;

use super::record::{LogRecord, RecordError, RefusedEvent, SentEvent};
use crate::log::Record;
use crate::store::{DeadLetter, NewEvent, Retry, STORE_GROUP};

/// Reason of a record that cannot be decoded, usually of another version.
pub const UNREADABLE: &str = "unreadable";

/// Reason of an event that failed after the last retry.
pub const TRIES: &str = "tries";

/// Reason of an event that its group refused.
pub const REFUSED: &str = "refused";

/// Reason of an event with too many events of its customer already in retry.
pub const CROWDED: &str = "crowded";

/// The content of a dead letter, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterContent {
    /// An event that was refused on arrival.
    Sent(SentEvent),
    /// An event that a group gave up.
    GivenUp {
        /// The source of its record.
        source: String,
        /// The position of its record.
        position: u64,
        /// Receipt time, in milliseconds since the Unix epoch.
        received_ms: u64,
        /// The event's envelope, in hexadecimal digits.
        envelope: String,
    },
    /// A record that cannot be decoded.
    Record {
        /// The record, in hexadecimal digits.
        payload: String,
    },
}

impl DeadLetterContent {
    /// Encodes the content as stored in SQL.
    pub fn to_json(&self) -> String {
        // Strings and numbers only, so the encoding cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decodes the content as stored in SQL.
    ///
    /// # Errors
    /// If the text is not a content written by Weir.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }
}

/// A deterministic id: each read of the same record gives the same id.
fn id(group: &str, source: &str, position: u64) -> String {
    let group = if group.is_empty() { "collect" } else { group };
    format!("{group}.{source}.{position}")
}

/// The dead letter of an event refused on arrival.
pub fn of_refused(source: &str, record: &Record, refused: RefusedEvent) -> DeadLetter {
    DeadLetter {
        id: id("", source, record.position),
        group: String::new(),
        reason: refused.reason,
        message: refused.message,
        content: DeadLetterContent::Sent(refused.sent).to_json(),
        dead_at_ms: record.time_ms,
        edited_at_ms: None,
    }
}

/// The dead letter of an unreadable record.
pub fn of_unreadable(source: &str, record: &Record, error: &RecordError) -> DeadLetter {
    let content = DeadLetterContent::Record {
        payload: hex::encode(&record.payload),
    };
    DeadLetter {
        id: id("", source, record.position),
        group: String::new(),
        reason: UNREADABLE.to_owned(),
        message: error.to_string(),
        content: content.to_json(),
        dead_at_ms: record.time_ms,
        edited_at_ms: None,
    }
}

/// The dead letter of an event that reuses the id of another event.
pub fn of_reused(source: &str, event: &NewEvent, now_ms: u64) -> DeadLetter {
    let content = DeadLetterContent::GivenUp {
        source: source.to_owned(),
        position: event.position,
        received_ms: event.received_ms,
        envelope: hex::encode(&event.envelope),
    };
    DeadLetter {
        id: id(STORE_GROUP, source, event.position),
        group: STORE_GROUP.to_owned(),
        reason: Reason::IdReused.label().to_owned(),
        message: "another event has its id: the first one is kept".to_owned(),
        content: content.to_json(),
        dead_at_ms: now_ms,
        edited_at_ms: None,
    }
}

/// The dead letter of an event that `group` has given up.
pub fn of_given_up(
    group: &str,
    source: &str,
    retry: &Retry,
    reason: &str,
    message: &str,
    now_ms: u64,
) -> DeadLetter {
    let content = DeadLetterContent::GivenUp {
        source: source.to_owned(),
        position: retry.position,
        received_ms: retry.received_ms,
        envelope: hex::encode(&retry.envelope),
    };
    DeadLetter {
        id: id(group, source, retry.position),
        group: group.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        content: content.to_json(),
        dead_at_ms: now_ms,
        edited_at_ms: None,
    }
}

/// The events among records, each with its record. Passes all other records to `other`.
pub fn events_of<'a>(
    records: &'a [Record],
    mut other: impl FnMut(&'a Record, Result<RefusedEvent, RecordError>),
) -> Vec<(&'a Record, Box<Envelope>)> {
    let mut events = Vec::with_capacity(records.len());
    for record in records {
        match LogRecord::decode(&record.payload) {
            Ok(LogRecord::Event(envelope)) => events.push((record, envelope)),
            Ok(LogRecord::Refused(refused)) => other(record, Ok(*refused)),
            Err(error) => other(record, Err(error)),
        }
    }
    events
}
