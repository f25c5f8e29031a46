//! Validated names from clients and configurations.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

/// A sale's name: 1 to [`SaleId::LEN_MAX`] of `a-z`, `0-9` and `-`.
///
/// The alphabet is this narrow because the name is part of paths, Redis hash tags and claim ids. In a hash tag, a `}`
/// would move the key to another slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SaleId(Arc<str>);

/// A user's name from the identity header: 1 to [`UserId::LEN_MAX`] visible ASCII bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserId(Arc<str>);

/// Why a name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It is empty.
    #[error("is empty")]
    Empty,
    /// It has more bytes than this kind of name may have.
    #[error("is longer than {max} bytes")]
    TooLong {
        /// The maximum for this kind of name.
        max: usize,
    },
    /// It contains a byte that this kind of name may not have.
    #[error("has an invalid byte at position {at}")]
    Byte {
        /// The byte's index, from 0.
        at: usize,
    },
}

/// Checks that `bytes` has 1 to `max` bytes, all of them ASCII and accepted by `allowed`.
///
/// # Errors
/// See [`IdError`].
pub fn check(bytes: &[u8], max: usize, allowed: fn(u8) -> bool) -> Result<&str, IdError> {
    if bytes.is_empty() {
        return Err(IdError::Empty);
    }
    if bytes.len() > max {
        return Err(IdError::TooLong { max });
    }
    if let Some(at) = bytes.iter().position(|&byte| !allowed(byte)) {
        return Err(IdError::Byte { at });
    }
    // All bytes are ASCII here, so this cannot fail; a failure would only reject the name.
    core::str::from_utf8(bytes).map_err(|error| IdError::Byte {
        at: error.valid_up_to(),
    })
}

impl SaleId {
    /// The maximum length in bytes.
    pub const LEN_MAX: usize = 64;

    /// Validates a sale's name.
    ///
    /// # Errors
    /// See [`IdError`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        check(bytes.as_ref(), Self::LEN_MAX, allowed).map(|name| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl UserId {
    /// The maximum length in bytes.
    pub const LEN_MAX: usize = 128;

    /// Validates a user's name.
    ///
    /// # Errors
    /// See [`IdError`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
        let visible = |byte: u8| byte.is_ascii_graphic();
        check(bytes.as_ref(), Self::LEN_MAX, visible).map(|name| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for SaleId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SaleId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for UserId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl From<UserId> for String {
    fn from(id: UserId) -> Self {
        id.as_str().into()
    }
}

impl From<SaleId> for String {
    fn from(id: SaleId) -> Self {
        id.as_str().into()
    }
}

impl fmt::Display for SaleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;

    #[test]
    fn sale_id_excludes_bytes_unsafe_in_keys_or_paths() {
        assert_eq!(SaleId::new("summer-24").unwrap().as_str(), "summer-24");
        assert_eq!(SaleId::new(""), Err(IdError::Empty));
        for bad in ["a}b", "a/b", "A", "a b", "ü", "a:b", "a;b"] {
            assert_eq!(
                SaleId::new(bad),
                Err(IdError::Byte {
                    at: usize::from(bad.starts_with('a'))
                })
            );
        }
        assert!(SaleId::new([b'a'; 64]).is_ok());
        assert_eq!(SaleId::new([b'a'; 65]), Err(IdError::TooLong { max: 64 }));
    }

    #[test]
    fn id_keeps_its_text_in_every_conversion() {
        let (sale, user) = (SaleId::new("a-1").unwrap(), UserId::new("u;1").unwrap());
        assert_eq!(format!("{sale} {user}"), "a-1 u;1");
        assert_eq!(user.as_str(), "u;1");
        assert_eq!(String::from(sale.clone()), "a-1");
        assert_eq!(SaleId::try_from(String::from("a-1")), Ok(sale.clone()));
        assert!(SaleId::try_from(String::from("A")).is_err());
        let sales = BTreeSet::from([sale]);
        assert!(sales.contains("a-1") && !sales.contains("a"));
    }

    #[test]
    fn user_id_is_visible_ascii_of_bounded_length() {
        assert_eq!(UserId::new(b"u;1").unwrap().as_str(), "u;1");
        assert_eq!(UserId::new(b"u\xff"), Err(IdError::Byte { at: 1 }));
        assert_eq!(UserId::new(b"a b"), Err(IdError::Byte { at: 1 }));
        assert!(UserId::new([b'u'; 128]).is_ok());
        assert_eq!(UserId::new([b'u'; 129]), Err(IdError::TooLong { max: 128 }));
    }
}
