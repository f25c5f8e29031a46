//! A signed document.
//!
//! ```text
//! weir-feed;v1;<key id>;<HMAC-SHA256 in hex>
//! {"feed":"<kind>","at_ms":<time of the state>,"body":{…}}
//! ```
//!
//! The signature covers the second line and travels with it, so caches, edge stores and files preserve the document. It
//! also covers the kind, so that a document of one feed is not valid for another.

use alloc::format;
use alloc::string::{String, ToString};

use crate::key::{KeyRing, Purpose, SignatureError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::feed::DocumentRejection;

/// The maximum size of a document in bytes, which bounds an edge's memory.
pub const LEN_MAX: usize = 16 << 20;

/// How far a document may be ahead of an edge's clock, in milliseconds. Clocks synchronised by NTP differ by less.
pub const SKEW_MS: u64 = 5_000;

const HEAD: &str = "weir-feed;v1;";

/// The body of a document.
pub trait Content: Serialize + DeserializeOwned {
    /// The name of its feed.
    const KIND: &'static str;
}

/// A decoded document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<T> {
    /// When the content was current, by the origin's clock, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The content.
    pub body: T,
}

#[derive(Serialize)]
struct DocumentFields<'a, T> {
    feed: &'a str,
    at_ms: u64,
    body: &'a T,
}

#[derive(Deserialize)]
struct Read<T> {
    at_ms: u64,
    body: T,
}

/// Why a text is not a feed document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Longer than [`LEN_MAX`].
    #[error("is longer than {LEN_MAX} bytes")]
    TooLong,
    /// It does not consist of two lines.
    #[error("is not a feed document")]
    Malformed,
    /// No key of the ring has signed it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It belongs to another feed.
    #[error("belongs to the feed \"{0}\"")]
    Kind(String),
    /// The signed content does not fit this feed. The origin may be newer than the edge.
    #[error("has invalid content: {0}")]
    Body(String),
}

/// Writes a document, signed with the ring's first key.
///
/// # Errors
/// When JSON serialization fails.
pub fn seal<T: Content>(ring: &KeyRing, at_ms: u64, body: &T) -> serde_json::Result<String> {
    let feed = T::KIND;
    let json = serde_json::to_string(&DocumentFields { feed, at_ms, body })?;
    let signature = ring.sign_for(Purpose::Feed, &json);
    Ok(format!("{HEAD}{signature}\n{json}"))
}

/// Reads a document signed by one of the ring's keys.
///
/// # Errors
/// See [`DocumentError`]. The signature is checked before the content is read.
pub fn open<T: Content>(ring: &KeyRing, text: &[u8]) -> Result<Document<T>, DocumentError> {
    if text.len() > LEN_MAX {
        return Err(DocumentError::TooLong);
    }
    let text = core::str::from_utf8(text).map_err(|_| DocumentError::Malformed)?;
    let signed = text.strip_prefix(HEAD).ok_or(DocumentError::Malformed)?;
    let (signature, json) = signed.split_once('\n').ok_or(DocumentError::Malformed)?;
    ring.verify_for(Purpose::Feed, json, signature)?;
    let named: DocumentHeader = from_json(json)?;
    if named.feed != T::KIND {
        return Err(DocumentError::Kind(named.feed));
    }
    let Read { at_ms, body } = from_json::<Read<T>>(json)?;
    Ok(Document { at_ms, body })
}

#[derive(Deserialize)]
struct DocumentHeader {
    feed: String,
}

fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, DocumentError> {
    serde_json::from_str(json).map_err(|error| DocumentError::Body(error.to_string()))
}

/// Whether content of `at_ms` is still valid at `now_ms`, if it is valid for `fresh_ms`. Content from the future is
/// valid within [`SKEW_MS`].
pub fn is_current(at_ms: u64, fresh_ms: u64, now_ms: u64) -> bool {
    check_time(at_ms, now_ms).is_ok() && now_ms.saturating_sub(at_ms) <= fresh_ms
}

/// Rejects a document from the future.
///
/// # Errors
/// [`DocumentRejection::Future`].
pub fn check_time(at_ms: u64, now_ms: u64) -> Result<(), DocumentRejection> {
    match at_ms <= now_ms.saturating_add(SKEW_MS) {
        true => Ok(()),
        false => Err(DocumentRejection::Future),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::SigningKey;
    use alloc::vec;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Text(String);

    impl Content for Text {
        const KIND: &'static str = "text";
    }

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct OtherContent(String);

    impl Content for OtherContent {
        const KIND: &'static str = "other";
    }

    pub(crate) fn ring(keys: &[(&str, u8)]) -> KeyRing {
        let key = |&(id, byte): &(&str, u8)| SigningKey::new(id, &[byte; 32]).unwrap();
        KeyRing::new(keys.iter().map(key).collect()).unwrap()
    }

    fn sealed(ring: &KeyRing) -> String {
        seal(ring, 7, &Text("a\nb".into())).unwrap()
    }

    #[test]
    fn feed_document_round_trips() {
        let ring = ring(&[("e1", 1)]);
        let text = sealed(&ring);
        assert!(text.starts_with("weir-feed;v1;e1;"), "{text}");
        assert!(text.ends_with("\n{\"feed\":\"text\",\"at_ms\":7,\"body\":\"a\\nb\"}"));
        let document: Document<Text> = open(&ring, text.as_bytes()).unwrap();
        assert_eq!((document.at_ms, document.body.0.as_str()), (7, "a\nb"));
    }

    #[test]
    fn feed_secret_is_rotated_while_edges_read() {
        let (old, new) = (ring(&[("e0", 1)]), ring(&[("e1", 2)]));
        let both = ring(&[("e1", 2), ("e0", 1)]);
        for signer in [&old, &new, &both] {
            assert!(open::<Text>(&both, sealed(signer).as_bytes()).is_ok());
        }
        let refused = open::<Text>(&new, sealed(&old).as_bytes());
        assert_eq!(refused, Err(SignatureError::UnknownKey.into()));
        let forged = ring(&[("e1", 3)]);
        let refused = open::<Text>(&new, sealed(&forged).as_bytes());
        assert_eq!(refused, Err(SignatureError::Wrong.into()));
    }

    #[test]
    fn document_of_another_feed_or_purpose_is_refused() {
        let ring = ring(&[("e1", 1)]);
        let refused = open::<OtherContent>(&ring, sealed(&ring).as_bytes());
        assert_eq!(refused, Err(DocumentError::Kind("text".into())));
        // A signature of the same secret for another purpose is not valid.
        let json = "{\"feed\":\"text\",\"at_ms\":7,\"body\":\"\"}";
        for purpose in Purpose::ALL.into_iter().filter(|one| *one != Purpose::Feed) {
            let text = format!("{HEAD}{}\n{json}", ring.sign_for(purpose, json));
            let refused = open::<Text>(&ring, text.as_bytes());
            assert_eq!(refused, Err(SignatureError::Wrong.into()), "{purpose:?}");
        }
    }

    #[test]
    fn feed_is_current_until_its_age_limit_and_not_from_the_future() {
        for (now_ms, is) in [(1_000, true), (1_500, true), (1_501, false), (0, true)] {
            assert_eq!(is_current(1_000, 500, now_ms), is, "{now_ms}");
        }
        assert!(!is_current(SKEW_MS + 1, 500, 0), "the clock was set back");
        assert!(!is_current(0, 500, u64::MAX), "the clock was set ahead");
    }

    proptest! {
        /// Every change of a byte invalidates the document.
        #[test]
        fn changed_or_truncated_document_is_refused(at in 0_usize..200, byte: u8) {
            let ring = ring(&[("e1", 1)]);
            let text = sealed(&ring).into_bytes();
            let at = at % text.len();
            let mut changed = text.clone();
            changed[at] = byte;
            // Hex digits may have either case, so a change of case does not change the signature.
            let json = text.iter().rposition(|byte| *byte == b'\n').unwrap();
            let is_same = changed.eq_ignore_ascii_case(&text) && at < json;
            prop_assume!(changed != text && !is_same);
            prop_assert!(open::<Text>(&ring, &changed).is_err());
            let cut = text.get(..at).unwrap();
            prop_assert!(open::<Text>(&ring, cut).is_err());
        }

        #[test]
        fn no_bytes_panic_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let ring = ring(&[("e1", 1)]);
            prop_assert!(open::<Text>(&ring, &bytes).is_err());
            let headed = [HEAD.as_bytes(), &bytes].concat();
            prop_assert!(open::<Text>(&ring, &headed).is_err());
        }
    }

    #[test]
    fn oversized_feed_document_is_refused() {
        let long = vec![b'a'; LEN_MAX + 1];
        let refused = open::<Text>(&ring(&[("e1", 1)]), &long);
        assert_eq!(refused, Err(DocumentError::TooLong));
    }
}
