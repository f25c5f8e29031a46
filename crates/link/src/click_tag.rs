//! The name of a click that travels on: into the target's query, from there to an order, and back to the link's numbers.
//!
//! ```text
//! 1.<domain>.<code>.<milliseconds, in hex>.<click>.<key id>.<HMAC-SHA256 of what is before the key id, in hex>
//! ```
//!
//! Whoever has followed the link has such a tag, so it proves no more than that: when, and which link. It is signed so that nobody
//! makes one up for a click that never was.

use alloc::format;
use alloc::string::{String, ToString};

use weir_base::key::{KeyRing, Purpose, SignatureError};

use super::click::ClickId;
use super::code::{Code, DomainId, LinkId};

/// The parameter of the target's query.
pub const PARAMETER: &str = "weir_click";

/// The longest tag, in bytes.
pub const TAG_LEN_MAX: usize = 256;

/// A click on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickTag {
    /// The link.
    pub link: LinkId,
    /// When it was clicked, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The click's name, which no other has.
    pub click: ClickId,
}

/// Whether a parameter of a query is [`PARAMETER`], whatever it says.
pub fn is_parameter(parameter: &[u8]) -> bool {
    let rest = parameter.strip_prefix(PARAMETER.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'=')))
}

/// Why a text is no tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClickTagError {
    /// It has another form, or is too long.
    #[error("is not well formed")]
    Form,
    /// Nobody who has a key has made it.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl ClickTag {
    /// The tag, signed with the first of these keys: `A-Z`, `a-z`, `0-9`, `-`, `_` and `.`.
    pub fn sign(&self, keys: &KeyRing) -> String {
        let message = self.message();
        let signature = keys.sign_for(Purpose::LinkClick, &message);
        // No key's id has a dot or a semicolon.
        format!("{message}.{}", signature.replace(';', "."))
    }

    /// Reads a tag.
    ///
    /// # Errors
    /// When it is none, or is not signed by one of these keys.
    pub fn read(keys: &KeyRing, text: &[u8]) -> Result<Self, ClickTagError> {
        let text = core::str::from_utf8(text).map_err(|_| ClickTagError::Form)?;
        if text.len() > TAG_LEN_MAX {
            return Err(ClickTagError::Form);
        }
        let mut parts = text.rsplitn(3, '.');
        let (tag, id, message) = (parts.next(), parts.next(), parts.next());
        let (Some(tag), Some(id), Some(message)) = (tag, id, message) else {
            return Err(ClickTagError::Form);
        };
        keys.verify_for(Purpose::LinkClick, message, &format!("{id};{tag}"))?;
        Self::of_message(message).ok_or(ClickTagError::Form)
    }

    fn message(&self) -> String {
        let LinkId { domain, code } = &self.link;
        let (domain, code) = (domain.as_str(), code.as_str());
        format!("1.{domain}.{code}.{:x}.{}", self.at_ms, self.click)
    }

    fn of_message(message: &str) -> Option<Self> {
        let mut parts = message.split('.');
        let (version, domain, code) = (parts.next()?, parts.next()?, parts.next()?);
        let (at, click) = (parts.next()?, parts.next()?);
        if version != "1" || parts.next().is_some() {
            return None;
        }
        let link = LinkId {
            domain: DomainId::new(domain).ok()?,
            code: Code::new(code).ok()?,
        };
        let tag = Self {
            link,
            at_ms: u64::from_str_radix(at, 16).ok()?,
            click: click.parse().ok()?,
        };
        // One click has one spelling.
        (tag.message() == message).then_some(tag)
    }

    /// The click's name, as it is counted.
    pub fn name(&self) -> String {
        self.click.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;
    use weir_base::key::SigningKey;

    fn ring(id: &str, byte: u8) -> KeyRing {
        let key = SigningKey::new(id, &[byte; 32]).unwrap();
        KeyRing::new(vec![key]).unwrap()
    }

    fn tag() -> ClickTag {
        ClickTag {
            link: "s/spring-24_x".parse().unwrap(),
            at_ms: 1_700_000_000_000,
            click: ClickId {
                counter: 7,
                sequence: 12,
            },
        }
    }

    #[test]
    fn a_tag_is_read_by_who_has_its_key() {
        let text = tag().sign(&ring("k1", 1));
        let head = "1.s.spring-24_x.18bcfe56800.0000000000000007-12.k1.";
        assert!(text.starts_with(head), "{text}");
        assert!(text.len() <= TAG_LEN_MAX);
        assert_eq!(ClickTag::read(&ring("k1", 1), text.as_bytes()), Ok(tag()));
        let refused = ClickTag::read(&ring("k1", 2), text.as_bytes());
        assert_eq!(refused, Err(SignatureError::Wrong.into()));
        let refused = ClickTag::read(&ring("k2", 1), text.as_bytes());
        assert_eq!(refused, Err(SignatureError::UnknownKey.into()));
    }

    #[test]
    fn the_longest_tag_fits() {
        let longest = ClickTag {
            link: LinkId {
                domain: DomainId::new("d".repeat(16)).unwrap(),
                code: Code::new("c".repeat(32)).unwrap(),
            },
            at_ms: u64::MAX,
            click: ClickId {
                counter: u64::MAX,
                sequence: u64::MAX,
            },
        };
        let keys = ring(&"k".repeat(64), 1);
        let text = longest.sign(&keys);
        assert!(text.len() <= TAG_LEN_MAX, "{}", text.len());
        assert_eq!(ClickTag::read(&keys, text.as_bytes()), Ok(longest));
    }

    #[test]
    fn tag_signed_for_another_purpose_or_misspelt_is_invalid() {
        let keys = ring("k1", 1);
        let signed = |message: &str, purpose| {
            let signature = keys.sign_for(purpose, message).replace(';', ".");
            ClickTag::read(&keys, format!("{message}.{signature}").as_bytes())
        };
        let good = tag().message();
        assert_eq!(signed(&good, Purpose::LinkClick), Ok(tag()));
        for purpose in Purpose::ALL {
            if purpose != Purpose::LinkClick {
                assert!(signed(&good, purpose).is_err(), "{purpose:?}");
            }
        }
        for bad in [
            "",
            "1",
            "2.s.spring.1.0000000000000007-1",
            "1.s.spring.01.0000000000000007-1",
            "1.s.a.1.0000000000000007-1",
            "1.s.spring.1.7-1",
        ] {
            assert_eq!(
                signed(bad, Purpose::LinkClick),
                Err(ClickTagError::Form),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(ClickTag::read(&ring("k1", 1), &text).is_err());
        }
    }
}
