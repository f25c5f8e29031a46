//! Names and numbers that come from outside, checked once and then trusted.

use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use weir_base::id::{IdError, check};

use crate::SEGMENT_LEN;

/// A vehicle by the number that its users know, such as the `BaseVehicle` of a VCdb: 1 to 7 decimal digits.
///
/// It is written with seven, including leading zeros. 0 is not an id: it marks the place of a vehicle that was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VehicleId(NonZeroU32);

/// Why a text is no vehicle's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 7 digits, not all of them 0")]
pub struct VehicleIdError;

impl VehicleId {
    /// How many digits a written id has. Shorter texts are read as if padded with leading zeros.
    pub const DIGITS: usize = 7;

    /// The largest id as a number.
    pub const MAX: u32 = 9_999_999;

    /// The id that is written as `number`.
    ///
    /// # Errors
    /// When the number is 0, or has more than seven digits.
    pub fn from_number(number: u32) -> Result<Self, VehicleIdError> {
        let number = NonZeroU32::new(number).filter(|number| number.get() <= Self::MAX);
        number.map(Self).ok_or(VehicleIdError)
    }

    /// The id as a number.
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

impl FromStr for VehicleId {
    type Err = VehicleIdError;

    fn from_str(text: &str) -> Result<Self, VehicleIdError> {
        let has_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if text.len() > Self::DIGITS || !has_digits {
            return Err(VehicleIdError);
        }
        Self::from_number(text.parse().map_err(|_| VehicleIdError)?)
    }
}

impl fmt::Display for VehicleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:07}", self.number())
    }
}

impl Serialize for VehicleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A vehicle's place among all: 1 and up, given by SQL's auto-increment and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(NonZeroU32);

impl Offset {
    /// The largest offset: 1,000 segments, a hundred times as many vehicles as there are.
    pub const MAX: u32 = 1_000 * SEGMENT_LEN;

    /// The offset `number`; `None` for 0 and beyond [`Offset::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        let number = NonZeroU32::new(number).filter(|number| number.get() <= Self::MAX);
        number.map(Self)
    }

    /// The offset as a number.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// In which segment it is.
    pub fn segment(self) -> u32 {
        (self.get() - 1) / SEGMENT_LEN
    }

    /// Its bit in the bitmap of its segment. Bit 0 is the sentinel.
    pub fn bit(self) -> u32 {
        1 + (self.get() - 1) % SEGMENT_LEN
    }
}

/// Visible ASCII that may stand in a hash tag.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}')
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 64 visible ASCII characters, none of them a brace. Ordered as Redis orders members: byte by byte.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The most bytes of a name.
            pub const LEN_MAX: usize = 64;

            /// Checks `bytes` and takes them as a name.
            ///
            /// # Errors
            /// Says what is wrong with the name.
            pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, IdError> {
                check(bytes.as_ref(), Self::LEN_MAX, is_name_byte).map(|name| Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = alloc::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text.as_bytes()).map_err(de::Error::custom)
            }
        }
    };
}

name! {
    /// A part as it is sold.
    Sku
}
name! {
    /// A product: what its SKUs have in common. All that Redis has of it is in one slot.
    ///
    /// Of third-party goods this is the product's id, of own goods the main SKU's.
    Spu
}
name! {
    /// What kind of part it is, such as `tyre`.
    ProductType
}
name! {
    /// Who sells it.
    Merchant
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn vehicle_of_1_to_7_digits_is_written_with_7() {
        for text in ["1000001", "0000001", "9999999"] {
            assert_eq!(text.parse::<VehicleId>().unwrap().to_string(), text);
        }
        for (text, written) in [("1", "0000001"), ("2771", "0002771"), ("018242", "0018242")] {
            assert_eq!(text.parse::<VehicleId>().unwrap().to_string(), written);
        }
        for bad in [
            "",
            "0",
            "10000001",
            "00000001",
            "0000000",
            "100000a",
            "+000001",
            "1 00000",
            "１000001",
        ] {
            assert_eq!(bad.parse::<VehicleId>(), Err(VehicleIdError), "{bad}");
        }
        assert!(VehicleId::from_number(10_000_000).is_err());
    }

    #[test]
    fn segments_are_those_of_the_seed() {
        let at = |number| Offset::new(number).map(|offset| (offset.segment(), offset.bit()));
        assert_eq!(at(1), Some((0, 1)));
        assert_eq!(at(50_000), Some((0, 50_000)));
        assert_eq!(at(50_001), Some((1, 1)));
        assert_eq!(at(Offset::MAX), Some((999, 50_000)));
        assert_eq!((at(0), at(Offset::MAX + 1)), (None, None));
    }

    #[test]
    fn names_have_no_braces() {
        assert_eq!(Sku::new("a:1").unwrap().as_str(), "a:1");
        for bad in ["", "a b", "{a", "a}", "ü", "a\n"] {
            assert!(Spu::new(bad).is_err(), "{bad}");
        }
        assert!(Spu::new("x".repeat(65)).is_err());
    }
}
