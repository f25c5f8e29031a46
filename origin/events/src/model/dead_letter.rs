//! Dead letters: what of an event is kept that nobody could take.

use serde::{Deserialize, Serialize};
use weir_event::answer::Reason;
use weir_event::envelope::Envelope;

use super::record::{LogRecord, RecordError, RefusedEvent, SentEvent};
use crate::log::Record;
use crate::store::{DeadLetter, NewEvent, Retry, STORE_GROUP};

/// The reason of a record that is no event and nothing that was refused: of another version, most likely.
pub const UNREADABLE: &str = "unreadable";

/// The reason of an event that its group has tried often enough.
pub const TRIES: &str = "tries";

/// The reason of an event that its group has refused.
pub const REFUSED: &str = "refused";

/// The reason of an event behind which too many of its customer wait.
pub const CROWDED: &str = "crowded";

/// What a dead letter holds, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterContent {
    /// It was refused when it came.
    Sent(SentEvent),
    /// A group has given it up.
    GivenUp {
        /// The source that it was read from.
        source: String,
        /// And where.
        position: u64,
        /// When it was received.
        received_ms: u64,
        /// The event's envelope, in hexadecimal digits.
        envelope: String,
    },
    /// Nobody can read it.
    Record {
        /// The record, in hexadecimal digits.
        payload: String,
    },
}

impl DeadLetterContent {
    /// As SQL has it.
    pub fn to_json(&self) -> String {
        // Texts and numbers: there is nothing in it that JSON cannot say.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As SQL had it.
    ///
    /// # Errors
    /// When no Weir has written it.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }
}

/// A name that is the same whoever reads the record again.
fn id(group: &str, source: &str, position: u64) -> String {
    let group = if group.is_empty() { "collect" } else { group };
    format!("{group}.{source}.{position}")
}

/// The dead letter of what was refused when it came.
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

/// The dead letter of what is no record.
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

/// The dead letter of an event whose id is another's.
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

/// The events among records, with the place of each; what is none is told to `other`.
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
