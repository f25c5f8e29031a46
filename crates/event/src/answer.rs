//! The response to a request with events.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

words! {
    /// The outcome of an event.
    pub enum Verdict {
        /// It is in the log and will be processed.
        Accepted = "accepted",
        /// It was already in the log.
        Duplicate = "duplicate",
        /// It is in the dead letters. A retry with the same event fails again.
        Rejected = "rejected",
    }
}

words! {
    /// Why an event was rejected.
    pub enum Reason {
        /// It is malformed: a member is missing, unknown or of another type.
        Invalid = "invalid",
        /// Its type is not registered.
        UnknownType = "unknown_type",
        /// Its attributes violate the schema of its type.
        Schema = "schema",
        /// It is longer than [`EVENT_LEN_MAX`](crate::limits::EVENT_LEN_MAX).
        TooLarge = "too_large",
        /// Its time is too far in the past or in the future.
        Clock = "clock",
        /// Another event has the same id.
        IdReused = "id_reused",
        /// It names a customer, which requires a server key.
        CustomerNotAllowed = "customer_not_allowed",
    }
}

/// Maximum length of a message, in bytes. Messages contain member names, which may be as long as an event.
pub const MESSAGE_LEN_MAX: usize = 512;

/// Why an event was rejected, for its verdict and for the dead letters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", reason.label())]
pub struct Rejection {
    /// The reason, for programs.
    pub reason: Reason,
    /// Reason and location, for people.
    pub message: String,
}

impl Rejection {
    /// A rejection for `reason`. Long messages are truncated.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_LEN_MAX {
            let rest = MESSAGE_LEN_MAX - LEFT_OUT.len();
            message.truncate(message.floor_char_boundary(rest));
            message.push_str(LEFT_OUT);
        }
        Self { reason, message }
    }
}

const LEFT_OUT: &str = "…";

/// The answer to an event batch. Its status is 202 for all verdicts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EventAnswer))]
pub struct Answer {
    /// Number of accepted events.
    pub accepted: usize,
    /// Number of duplicates.
    pub duplicates: usize,
    /// Number of rejected events.
    pub rejected: usize,
    /// One verdict per event, in the order of the body.
    pub verdicts: Vec<EventVerdict>,
    /// The gateway dropped all events: the person has not consented.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub dropped: bool,
    /// The gateway dropped all events: the visitor is not in the sample.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub sampled: bool,
}

/// The outcome of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EventAnswerVerdict))]
pub struct EventVerdict {
    /// The event's id, from the client or generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub id: Option<String>,
    /// Its outcome.
    #[cfg_attr(feature = "openapi", schema(schema_with = verdicts))]
    pub verdict: Verdict,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(required = false, schema_with = reasons))]
    pub reason: Option<Reason>,
    /// Reason and place, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
}

#[cfg(feature = "openapi")]
fn words<const N: usize>(
    description: &'static str,
    words: [&'static str; N],
) -> utoipa::openapi::Object {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(utoipa::openapi::schema::Type::String)
        .description(Some(description))
        .enum_values(Some(words))
        .build()
}

#[cfg(feature = "openapi")]
fn verdicts() -> utoipa::openapi::Object {
    words("Its outcome.", Verdict::ALL.map(Verdict::label))
}

#[cfg(feature = "openapi")]
fn reasons() -> utoipa::openapi::Object {
    words("Why it was rejected.", Reason::ALL.map(Reason::label))
}

impl Answer {
    /// The answer without consent.
    pub fn dropped() -> Self {
        Self {
            dropped: true,
            ..Self::default()
        }
    }

    /// The answer for a visitor outside the sample.
    pub fn sampled() -> Self {
        Self {
            sampled: true,
            ..Self::default()
        }
    }

    /// Adds the verdict of an event that was accepted or is a duplicate.
    pub fn take(&mut self, id: impl Into<String>, is_duplicate: bool) {
        let verdict = match is_duplicate {
            true => Verdict::Duplicate,
            false => Verdict::Accepted,
        };
        match is_duplicate {
            true => self.duplicates += 1,
            false => self.accepted += 1,
        }
        self.verdicts.push(EventVerdict {
            id: Some(id.into()),
            verdict,
            reason: None,
            message: None,
        });
    }

    /// Adds the verdict of a rejected event.
    pub fn reject(&mut self, id: Option<String>, rejection: Rejection) {
        self.rejected += 1;
        self.verdicts.push(EventVerdict {
            id,
            verdict: Verdict::Rejected,
            reason: Some(rejection.reason),
            message: Some(rejection.message),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_json_matches_the_contract() {
        let mut answer = Answer::default();
        answer.take("a", false);
        answer.take("b", true);
        let rejection = Rejection::new(Reason::IdReused, "another event has the id `c`");
        answer.reject(Some("c".into()), rejection);
        answer.reject(None, Rejection::new(Reason::Invalid, "is no object"));
        let json = serde_json::to_string(&answer).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"accepted":1,"duplicates":1,"rejected":2,"verdicts":["#,
                r#"{"id":"a","verdict":"accepted"},{"id":"b","verdict":"duplicate"},"#,
                r#"{"id":"c","verdict":"rejected","reason":"id_reused","message":"another event has the id `c`"},"#,
                r#"{"verdict":"rejected","reason":"invalid","message":"is no object"}]}"#
            )
        );
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer);
    }

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        for length in [510, 511, 512, 513, 5_000] {
            for text in [
                "x".repeat(length),
                alloc::format!("x{}", "ü".repeat(length / 2)),
            ] {
                let is_whole = text.len() <= MESSAGE_LEN_MAX;
                let message = Rejection::new(Reason::Invalid, text.clone()).message;
                assert!(message.len() <= MESSAGE_LEN_MAX);
                assert_eq!(message == text, is_whole);
                assert_eq!(message.ends_with(LEFT_OUT), !is_whole);
            }
        }
    }

    #[test]
    fn dropped_and_sampled_events_are_reported_in_the_response() {
        let json = |answer: &Answer| serde_json::to_string(answer).unwrap();
        let rest = r#"{"accepted":0,"duplicates":0,"rejected":0,"verdicts":[],"#;
        let dropped = json(&Answer::dropped());
        assert_eq!(dropped.strip_prefix(rest), Some(r#""dropped":true}"#));
        let sampled = json(&Answer::sampled());
        assert_eq!(sampled.strip_prefix(rest), Some(r#""sampled":true}"#));
    }
}
