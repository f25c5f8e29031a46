//! Records of the event log: accepted events and refused events. Both go to one log. A mixed body therefore waits for
//! one disk sync, and is acknowledged when all of it is durable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use weir_event::address::Network;
use weir_event::consent::Consent;
use weir_event::envelope::{Envelope, EnvelopeError};
use weir_event::name::KeyName;
use weir_event::partition::partition;
use weir_event::stamps::{Kind, Stamps};

use crate::log::NewRecord;

/// The first byte of a record is its kind.
const EVENT: u8 = b'e';
const REFUSED: u8 = b'r';

/// The partition of refused events, which have no order.
const REFUSED_PARTITION: u16 = u16::MAX;

/// Maximum stored length of a refused event, in bytes. A longer event is cut and cannot be resent.
pub const REFUSED_LEN_MAX: usize = 64 << 10;

/// A record of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRecord {
    /// An event.
    Event(Box<Envelope>),
    /// A refused event.
    Refused(Box<RefusedEvent>),
}

/// An event that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEvent {
    /// Reason code.
    pub reason: String,
    /// Reason in a sentence.
    pub message: String,
    /// The event as sent.
    #[serde(flatten)]
    pub sent: SentEvent,
}

/// An event as sent, with its gateway metadata: everything needed to validate it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SentEvent {
    /// The event's JSON, or the invalid text.
    pub event: String,
    /// Whether it is truncated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Send time by the client's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sent_at_ms: Option<u64>,
    /// The signed-in user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user: Option<String>,
    /// The name of its key.
    pub key: String,
    /// The kind of its key.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// Receipt time.
    pub received_ms: u64,
    /// Client address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub address: Option<String>,
    /// Consent of the person.
    #[schema(value_type = String)]
    pub consent: Consent,
}

/// Why bytes are not a record of this log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The envelope is invalid.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The refused event cannot be decoded.
    #[error("cannot read a refused event: {0}")]
    Refused(String),
    /// The first byte is unknown.
    #[error("the record is neither an event nor a refused event")]
    Kind,
}

impl LogRecord {
    /// Encodes the record for the log.
    pub fn encode(&self, partitions: u16) -> NewRecord {
        match self {
            Self::Event(envelope) => {
                let mut payload = vec![EVENT];
                envelope.encode_into(&mut payload);
                let partition = partition(&envelope.partition_key(), partitions);
                NewRecord { partition, payload }
            }
            Self::Refused(refused) => {
                let mut payload = vec![REFUSED];
                // Strings and numbers only, so the encoding cannot fail.
                payload.extend(serde_json::to_vec(refused).unwrap_or_default());
                NewRecord {
                    partition: REFUSED_PARTITION,
                    payload,
                }
            }
        }
    }

    /// Decodes a record of the log.
    ///
    /// # Errors
    /// If the bytes are not a record.
    pub fn decode(payload: &[u8]) -> Result<Self, RecordError> {
        match payload.split_first() {
            Some((&EVENT, rest)) => Ok(Self::Event(Box::new(Envelope::decode(rest)?))),
            Some((&REFUSED, rest)) => serde_json::from_slice(rest)
                .map(|refused| Self::Refused(Box::new(refused)))
                .map_err(|error| RecordError::Refused(error.to_string())),
            _ => Err(RecordError::Kind),
        }
    }
}

impl SentEvent {
    /// Creates the event with its gateway metadata. Without consent it drops names and addresses, and keeps only text
    /// that can be parsed.
    pub fn new(event: &str, stamps: &Stamps, user: Option<&str>, sent_at_ms: Option<u64>) -> Self {
        let is_known = stamps.consent == Consent::Full;
        let event = match is_known {
            true => event.to_owned(),
            false => anonymised(event),
        };
        let is_cut = event.len() > REFUSED_LEN_MAX;
        let end = event.floor_char_boundary(REFUSED_LEN_MAX.min(event.len()));
        Self {
            event: event.get(..end).unwrap_or_default().to_owned(),
            is_cut,
            sent_at_ms,
            user: user.filter(|_| is_known).map(str::to_owned),
            key: stamps.key.as_str().to_owned(),
            kind: stamps.kind,
            received_ms: stamps.received_ms,
            address: stamps
                .address
                .filter(|_| is_known)
                .map(|network| network.to_string()),
            consent: stamps.consent,
        }
    }

    /// The event's gateway metadata; `None` if Weir did not write it.
    pub fn stamps(&self) -> Option<Stamps> {
        let address: Option<Network> = match &self.address {
            Some(address) => Some(address.parse().ok()?),
            None => None,
        };
        Some(Stamps {
            key: KeyName::new(&self.key).ok()?,
            kind: self.kind,
            received_ms: self.received_ms,
            address,
            consent: self.consent,
        })
    }
}

/// The event without its person; empty if the event is not a JSON object.
fn anonymised(event: &str) -> String {
    // Values keep their original text, so a number that was refused for its digits stays the same.
    let Ok(mut members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(event) else {
        return String::new();
    };
    for member in ["customer", "visitor"] {
        members.remove(member);
    }
    serde_json::to_string(&members).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(consent: Consent) -> Stamps {
        Stamps {
            key: KeyName::new("web").unwrap(),
            kind: Kind::Browser,
            received_ms: 7,
            address: Some("203.0.113.0/24".parse().unwrap()),
            consent,
        }
    }

    #[test]
    fn refused_event_round_trips_with_its_stamps() {
        let stamps = stamps(Consent::Full);
        let sent = SentEvent::new("{\"type\":7}", &stamps, Some("u1"), Some(5));
        assert_eq!(sent.stamps(), Some(stamps));
        let record = LogRecord::Refused(Box::new(RefusedEvent {
            reason: "invalid".into(),
            message: "type: is a number".into(),
            sent,
        }));
        let encoded = record.encode(50);
        assert_eq!(LogRecord::decode(&encoded.payload), Ok(record));
    }

    #[test]
    fn anonymous_event_is_stored_without_user_names() {
        let stamps = stamps(Consent::Anonymous);
        let text = r#"{"type":"view","customer":"alice","visitor":"bob"}"#;
        let sent = SentEvent::new(text, &stamps, Some("alice"), None);
        assert_eq!(sent.event, r#"{"type":"view"}"#);
        assert_eq!((sent.user, sent.address), (None, None));
        let cut = SentEvent::new(r#"{"visitor":"bob""#, &stamps, None, None);
        assert_eq!(cut.event, "");
    }

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let text = "é".repeat(REFUSED_LEN_MAX);
        let sent = SentEvent::new(&text, &stamps(Consent::Full), None, None);
        assert!(sent.is_cut && sent.event.len() <= REFUSED_LEN_MAX);
    }

    #[test]
    fn invalid_bytes_are_not_decoded_as_a_record() {
        for bytes in [&b""[..], b"x", b"e", b"r{}", b"r"] {
            assert!(LogRecord::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
