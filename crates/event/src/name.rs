//! Names from clients and configuration, checked once on construction.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};
use weir_base::id::{IdError, check};

use crate::fingerprint::Fingerprint;

macro_rules! names {
    ($($(#[$meta:meta])* pub struct $name:ident($max:literal, $allowed:expr);)+) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            #[serde(try_from = "String", into = "String")]
            pub struct $name(Arc<str>);

            impl $name {
                /// Maximum length, in bytes.
                pub const LEN_MAX: usize = $max;

                /// Checks `bytes` and returns the name.
                ///
                /// # Errors
                /// If the name is invalid.
                pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
                    check(bytes.as_ref(), Self::LEN_MAX, $allowed).map(|text| Self(text.into()))
                }

                /// The name as text.
                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl TryFrom<String> for $name {
                type Error = IdError;

                fn try_from(text: String) -> Result<Self, IdError> {
                    Self::new(text)
                }
            }

            impl From<$name> for String {
                fn from(name: $name) -> Self {
                    name.as_str().into()
                }
            }

            impl core::borrow::Borrow<str> for $name {
                fn borrow(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }
        )+
    };
}

names! {
    /// An event's id: 1 to 64 of `A-Z a-z 0-9 . _ : -`. Without an id from the client, it is `~` and 32 hexadecimal
    /// digits. Clients cannot use `~`: see [`crate::event::Event`].
    pub struct EventId(64, |byte| is_of_id(byte) || byte == b'~');
    /// A type of events: 1 to 64 of `a-z 0-9 _ . -`.
    pub struct EventType(64, is_of_word);
    /// A signed-in customer: 1 to 128 visible ASCII bytes.
    pub struct CustomerId(128, |byte| byte.is_ascii_graphic());
    /// A browser or an app: 1 to 128 visible ASCII bytes.
    pub struct VisitorId(128, |byte| byte.is_ascii_graphic());
    /// The name of a write key, which is not secret: 1 to 64 of `a-z 0-9 _ . -`.
    pub struct KeyName(64, is_of_word);
    /// A topic: 1 to 64 of `a-z 0-9 _ . -`.
    pub struct Topic(64, is_of_word);
}

fn is_of_word(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-')
}

fn is_of_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
}

impl EventId {
    /// Checks an id from a client.
    ///
    /// # Errors
    /// If the id is invalid.
    pub fn of_client(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
        check(bytes.as_ref(), Self::LEN_MAX, is_of_id).map(|text| Self(text.into()))
    }

    /// The id of an event without an id from its client.
    pub(crate) fn derived(fingerprint: Fingerprint) -> Self {
        Self(alloc::format!("~{fingerprint}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_only_bytes_allowed_by_the_contract() {
        for byte in 0..=u8::MAX {
            let word = byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
            let id = byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
            let person = (b'!'..=b'~').contains(&byte);
            assert_eq!(EventType::new([byte]).is_ok(), word, "{byte}");
            assert_eq!(Topic::new([byte]).is_ok(), word, "{byte}");
            assert_eq!(KeyName::new([byte]).is_ok(), word, "{byte}");
            assert_eq!(EventId::of_client([byte]).is_ok(), id, "{byte}");
            assert_eq!(EventId::new([byte]).is_ok(), id || byte == b'~', "{byte}");
            assert_eq!(CustomerId::new([byte]).is_ok(), person, "{byte}");
            assert_eq!(VisitorId::new([byte]).is_ok(), person, "{byte}");
        }
    }

    #[test]
    fn name_lengths_are_bounded() {
        assert_eq!(EventId::of_client(""), Err(IdError::Empty));
        assert!(EventId::of_client([b'a'; 64]).is_ok());
        assert_eq!(
            EventId::of_client([b'a'; 65]),
            Err(IdError::TooLong { max: 64 })
        );
        assert!(VisitorId::new([b'a'; 128]).is_ok());
        assert_eq!(
            CustomerId::new([b'a'; 129]),
            Err(IdError::TooLong { max: 128 })
        );
    }
}
