//! A signed click ID. It travels in the target's query to an order, and back to the link's statistics.
//!
//! ```text
//! 1.<domain>.<code>.<milliseconds, in hex>.<click>.<key id>.<HMAC-SHA256 of the text before the key id, in hex>
//! ```
//!
//! Every visitor of the link has such a tag, so it only proves which link was clicked and when. The signature prevents
//! tags for clicks that never happened.

use alloc::format;
use alloc::string::{String, ToString};

use weir_base::key::{KeyRing, Purpose, SignatureError};

use super::click::ClickId;
use super::code::{Code, DomainId, LinkId};

/// The query parameter of the target.
pub const PARAMETER: &str = "weir_click";

/// Maximum length of a tag, in bytes.
pub const TAG_LEN_MAX: usize = 256;

/// A click on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickTag {
    /// The link.
    pub link: LinkId,
    /// When it was clicked, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The unique ID of the click.
    pub click: ClickId,
}

/// Whether a query parameter is [`PARAMETER`], with any value.
pub fn is_parameter(parameter: &[u8]) -> bool {
    let rest = parameter.strip_prefix(PARAMETER.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'=')))
}

/// Why a tag is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClickTagError {
    /// The tag is malformed or too long.
    #[error("is not well formed")]
    Form,
    /// The signature does not match any key.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl ClickTag {
    /// The tag, signed with the first key. It consists of `A-Z`, `a-z`, `0-9`, `-`, `_` and `.`.
    pub fn sign(&self, keys: &KeyRing) -> String {
        let message = self.message();
        let signature = keys.sign_for(Purpose::LinkClick, &message);
        // A key's ID contains neither a dot nor a semicolon.
        format!("{message}.{}", signature.replace(';', "."))
    }

    /// Parses and verifies a tag.
    ///
    /// # Errors
    /// If the tag is malformed, or not signed with one of these keys.
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
        // Each click has one spelling.
        (tag.message() == message).then_some(tag)
    }

    /// The click ID for statistics.
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
    fn click_tag_is_read_only_with_its_key() {
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
    fn longest_click_tag_fits_the_limit() {
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
