//! The idempotency key of a purchase attempt, which makes retries safe.
//!
//! It is the value of the request header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a quoted
//! string, or, as many clients send it, the same without quotes.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};
use weir_base::hash::stable_hash;
use weir_base::id::{IdError, check};

/// A key: 1 to [`IdempotencyKey::LEN_MAX`] letters, digits and `-_.~:+/=@`, enough for UUIDs, ULIDs and Base64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

/// The key's hash, which Redis stores with the user, so that a long key costs no more than a short one. If two keys of
/// one user have equal tags, they count as one key; other users are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptTag(u64);

impl IdempotencyKey {
    /// The maximum length of a key in bytes, without quotes.
    pub const LEN_MAX: usize = 128;

    /// Reads the header's value.
    ///
    /// # Errors
    /// See [`IdError`].
    pub fn read(value: &[u8]) -> Result<Self, IdError> {
        let value = value.trim_ascii();
        let unquoted = value
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""));
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:+/=@".contains(&byte);
        check(unquoted.unwrap_or(value), Self::LEN_MAX, allowed).map(|key| Self(key.into()))
    }

    /// The key as text, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key's tag in Redis.
    pub fn tag(&self) -> AttemptTag {
        AttemptTag(stable_hash(self.0.as_bytes()))
    }
}

impl AttemptTag {
    /// Parses the output of [`fmt::Display`].
    pub fn from_hex(digits: &str) -> Option<Self> {
        u64::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for AttemptTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn read(value: &str) -> Result<IdempotencyKey, IdError> {
        IdempotencyKey::read(value.as_bytes())
    }

    #[test]
    fn idempotency_key_is_equal_with_and_without_quotes() {
        let uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
        let quoted = read(&alloc::format!("\"{uuid}\"")).unwrap();
        assert_eq!(quoted.as_str(), uuid);
        assert_eq!(read(uuid).unwrap(), quoted);
        assert_eq!(read(uuid).unwrap().tag(), quoted.tag());
        let tag = quoted.tag();
        assert_eq!(AttemptTag::from_hex(&alloc::format!("{tag}")), Some(tag));
        assert_ne!(read("a").unwrap().tag(), read("b").unwrap().tag());
    }

    #[test]
    fn invalid_idempotency_key_is_refused() {
        for (value, error) in [
            ("", IdError::Empty),
            ("\"\"", IdError::Empty),
            ("a b", IdError::Byte { at: 1 }),
            // Two headers, as proxies join them.
            ("a,b", IdError::Byte { at: 1 }),
            ("\"a", IdError::Byte { at: 0 }),
            ("a;b=1", IdError::Byte { at: 1 }),
            ("é", IdError::Byte { at: 0 }),
        ] {
            assert_eq!(read(value).unwrap_err(), error, "{value}");
        }
        assert!(IdempotencyKey::read(&[b'a'; 128]).is_ok());
        let long = IdempotencyKey::read(&[b'a'; 129]);
        assert_eq!(long.unwrap_err(), IdError::TooLong { max: 128 });
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(value: Vec<u8>) {
            let _ = IdempotencyKey::read(&value);
        }
    }
}
