//! Identifiers, checked once on construction.

use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use weir_base::id::{IdError, check};

use crate::SEGMENT_LEN;

/// A vehicle's public number, such as the `BaseVehicle` of a VCdb: 1 to 7 decimal digits.
///
/// The written form has seven digits, including leading zeros. 0 is not an id: it marks the offset of a retired
/// vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VehicleId(NonZeroU32);

/// The text is not a vehicle id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 7 digits, not all of them 0")]
pub struct VehicleIdError;

impl VehicleId {
    /// Digits of a written id. Shorter texts are padded with leading zeros.
    pub const DIGITS: usize = 7;

    /// The largest id as a number.
    pub const MAX: u32 = 9_999_999;

    /// The id with this number.
    ///
    /// # Errors
    /// If the number is 0, or has more than seven digits.
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

/// A vehicle's index, from 1, assigned by SQL's auto-increment and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(NonZeroU32);

impl Offset {
    /// Maximum offset: 1,000 segments, a hundred times the number of vehicles.
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

    /// The segment that contains it.
    pub fn segment(self) -> u32 {
        (self.get() - 1) / SEGMENT_LEN
    }

    /// Its bit in the segment's bitmap. Bit 0 is the sentinel.
    pub fn bit(self) -> u32 {
        1 + (self.get() - 1) % SEGMENT_LEN
    }
}

/// Whether a byte is visible ASCII that is allowed in a hash tag.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}')
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 64 visible ASCII characters without braces. Ordered byte by byte, like members in Redis.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Maximum bytes of a name.
            pub const LEN_MAX: usize = 64;

            /// Checks `bytes` and returns them as a name.
            ///
            /// # Errors
            /// If the name is invalid.
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
    /// A part as sold.
    Sku
}
name! {
    /// A product: the common data of its SKUs. All its data in Redis is in one slot.
    ///
    /// For third-party goods this is the product's id, for own goods the main SKU's.
    Spu
}
name! {
    /// The kind of part, such as `tyre`.
    ProductType
}
name! {
    /// The seller.
    Merchant
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn vehicle_id_is_padded_to_7_digits() {
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
    fn segments_have_50_000_offsets_from_one() {
        let at = |number| Offset::new(number).map(|offset| (offset.segment(), offset.bit()));
        assert_eq!(at(1), Some((0, 1)));
        assert_eq!(at(50_000), Some((0, 50_000)));
        assert_eq!(at(50_001), Some((1, 1)));
        assert_eq!(at(Offset::MAX), Some((999, 50_000)));
        assert_eq!((at(0), at(Offset::MAX + 1)), (None, None));
    }

    #[test]
    fn sku_and_spu_names_exclude_braces() {
        assert_eq!(Sku::new("a:1").unwrap().as_str(), "a:1");
        for bad in ["", "a b", "{a", "a}", "ü", "a\n"] {
            assert!(Spu::new(bad).is_err(), "{bad}");
        }
        assert!(Spu::new("x".repeat(65)).is_err());
    }
}
