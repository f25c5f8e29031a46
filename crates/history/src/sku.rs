//! Product names.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::fmt;

use weir_base::id::{IdError, check};

/// A product's name: 1 to [`Sku::LEN_MAX`] visible ASCII characters. Numeric names take less space.
///
/// Ordered byte by byte, like members in Redis.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sku(Arc<str>);

impl Sku {
    /// Maximum bytes of a name.
    pub const LEN_MAX: usize = 64;

    /// Checks `bytes` and returns them as a name.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
        let visible = |byte: u8| byte.is_ascii_graphic();
        check(bytes.as_ref(), Self::LEN_MAX, visible).map(|name| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number in the name, if it has only digits and no leading zero.
    pub fn number(&self) -> Option<u64> {
        let is_plain = self.0.bytes().all(|byte| byte.is_ascii_digit());
        let is_padded = self.0.len() > 1 && self.0.starts_with('0');
        match is_plain && !is_padded {
            true => self.0.parse().ok(),
            false => None,
        }
    }
}

impl From<u64> for Sku {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for Sku {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_decimal_sku_is_a_number() {
        for number in [0, 7, 100_012_043_978, u64::MAX] {
            assert_eq!(Sku::from(number).number(), Some(number));
        }
        for text in ["007", "00", "+1", "-1", "1a", "18446744073709551616"] {
            assert_eq!(Sku::new(text).unwrap().number(), None, "{text}");
        }
        for none in ["", " ", "a b", "ü", "a\n"] {
            assert!(Sku::new(none).is_err(), "{none}");
        }
        assert!(Sku::new("x".repeat(65)).is_err());
    }
}
