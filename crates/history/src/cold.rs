//! The format of a list in the cold store.
//!
//! The key is the middle four digits of the MD5 of the owner's text in hexadecimal, followed by the text. It spreads
//! owners with equal prefixes over a store that is ordered by key.
//!
//! The value is the list in its own order, so that reading needs no sorting:
//!
//! ```text
//! 01                    version
//! varint                time of the first view, in milliseconds since the Unix epoch
//! for each view:
//!   head                low four bits: encoding of the product; high four: bytes of the time
//!   product             0 to 8: a number in this many bytes · 9: one byte with the length, then the text
//!                       10 to 14: 1 to 5 bytes, the zigzag difference from the last number
//!   time                the difference to the previous, newer view, in the fewest bytes
//! ```
//!
//! Numbers are little-endian. A view of a product with a typical numeric id takes 8 to 10 bytes.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use md5::{Digest, Md5};

use crate::{AT_MS_MAX, Owner, Sku, VIEWS_MAX, ViewedProduct};

const VERSION: u8 = 1;

/// Encodings of a product, besides a number in 0 to 8 bytes.
const TEXT: u8 = 9;
const DIFFERENCE: u8 = 10;
const DIFFERENCE_LEN_MAX: usize = 5;

/// Maximum length of a value, in bytes: [`VIEWS_MAX`] of the longest names.
pub const VALUE_LEN_MAX: usize = 1 + 10 + VIEWS_MAX * (1 + 1 + Sku::LEN_MAX + 8);

/// Why a value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColdError {
    /// The version is unknown.
    #[error("unsupported value version {0}")]
    Version(u8),
    /// The value is truncated.
    #[error("the value is truncated")]
    Short,
    /// The value exceeds the maximum length.
    #[error("the value is too long")]
    TooLong,
    /// This view is not in the canonical encoding.
    #[error("view {0} of the value is not valid in a list")]
    View(usize),
}

/// The key of an owner's list.
pub fn key(owner: &Owner) -> String {
    let digest = hex::encode(Md5::digest(owner.as_str()));
    let middle = digest.get(14..18).unwrap_or_default();
    [middle, owner.as_str()].concat()
}

/// The value of a list, which must be in order and contain each product once, as [`merge`](crate::list::merge) returns
/// it. Views beyond [`VIEWS_MAX`] are dropped.
pub fn encode(views: &[ViewedProduct]) -> Vec<u8> {
    let mut out = Vec::with_capacity(11 + 10 * views.len());
    out.push(VERSION);
    let mut last_ms = views.first().map_or(0, |viewed| viewed.at_ms);
    push_varint(&mut out, last_ms);
    let mut last_number = 0;
    for viewed in views.iter().take(VIEWS_MAX) {
        push_view(&mut out, viewed, last_ms, &mut last_number);
        last_ms = viewed.at_ms;
    }
    out
}

fn push_view(out: &mut Vec<u8>, viewed: &ViewedProduct, last_ms: u64, last_number: &mut u64) {
    let age = last_ms.saturating_sub(viewed.at_ms);
    let age_len = len(age);
    let push_head = |out: &mut Vec<u8>, kind: u8| out.push(kind | (as_byte(age_len) << 4));
    match viewed.sku.number() {
        None => {
            push_head(out, TEXT);
            out.push(as_byte(viewed.sku.as_str().len()));
            out.extend_from_slice(viewed.sku.as_str().as_bytes());
        }
        Some(number) => {
            let difference = zigzag(number, *last_number);
            *last_number = number;
            let (plain, short) = (len(number), len(difference));
            if short < plain && (1..=DIFFERENCE_LEN_MAX).contains(&short) {
                push_head(out, DIFFERENCE + as_byte(short) - 1);
                push_bytes(out, difference, short);
            } else {
                push_head(out, as_byte(plain));
                push_bytes(out, number, plain);
            }
        }
    }
    push_bytes(out, age, age_len);
}

/// Parses a value.
///
/// # Errors
/// If the value is not the encoding of a list.
pub fn decode(value: &[u8]) -> Result<Vec<ViewedProduct>, ColdError> {
    if value.len() > VALUE_LEN_MAX {
        return Err(ColdError::TooLong);
    }
    let (version, rest) = value.split_first().ok_or(ColdError::Short)?;
    if *version != VERSION {
        return Err(ColdError::Version(*version));
    }
    let mut reader = Reader {
        rest,
        last_number: 0,
        last_ms: 0,
    };
    reader.last_ms = reader.varint()?;
    let (mut views, mut existing): (Vec<ViewedProduct>, _) = (Vec::new(), BTreeSet::new());
    while !reader.rest.is_empty() {
        let at = views.len();
        let viewed = reader.view()?.ok_or(ColdError::View(at))?;
        let follows = views
            .last()
            .is_none_or(|last| last.newest_first(&viewed).is_lt());
        let is_new = existing.insert(viewed.sku.clone());
        if !follows || !is_new || at >= VIEWS_MAX || viewed.at_ms > AT_MS_MAX {
            return Err(ColdError::View(at));
        }
        views.push(viewed);
    }
    Ok(views)
}

struct Reader<'a> {
    rest: &'a [u8],
    last_number: u64,
    last_ms: u64,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], ColdError> {
        let (accepted, rest) = self.rest.split_at_checked(len).ok_or(ColdError::Short)?;
        self.rest = rest;
        Ok(accepted)
    }

    fn byte(&mut self) -> Result<u8, ColdError> {
        Ok(self.number(1)?.to_le_bytes()[0])
    }

    /// A number of at most eight bytes.
    fn number(&mut self, len: usize) -> Result<u64, ColdError> {
        let bytes = self.take(len)?.iter().rev();
        Ok(bytes.fold(0, |number, &byte| (number << 8) | u64::from(byte)))
    }

    fn varint(&mut self) -> Result<u64, ColdError> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ColdError::View(0))
    }

    /// The next view; `None` if it is invalid.
    fn view(&mut self) -> Result<Option<ViewedProduct>, ColdError> {
        let head = self.byte()?;
        let sku = self.sku(head & 0x0f)?;
        let age_len = usize::from(head >> 4);
        if age_len > 8 {
            return Ok(None);
        }
        let age = self.number(age_len)?;
        let at_ms = self.last_ms.checked_sub(age);
        Ok(sku.zip(at_ms).map(|(sku, at_ms)| {
            self.last_ms = at_ms;
            ViewedProduct { sku, at_ms }
        }))
    }

    fn sku(&mut self, kind: u8) -> Result<Option<Sku>, ColdError> {
        let number = match kind {
            0..=8 => self.number(kind.into())?,
            TEXT => {
                let len = self.byte()?;
                return Ok(Sku::new(self.take(len.into())?).ok());
            }
            15.. => return Ok(None),
            _ => {
                let difference = self.number(usize::from(kind - DIFFERENCE) + 1)?;
                unzigzag(difference, self.last_number)
            }
        };
        self.last_number = number;
        Ok(Some(Sku::from(number)))
    }
}

/// The number of bytes of a number; 0 for 0.
fn len(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(8) as usize
}

fn push_bytes(out: &mut Vec<u8>, number: u64, len: usize) {
    out.extend(number.to_le_bytes().iter().take(len));
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(as_byte(number as usize & 0x7f) | 0x80);
        number >>= 7;
    }
    out.push(as_byte(number as usize));
}

/// Converts a number that is below 256.
fn as_byte(number: usize) -> u8 {
    (number & 0xff) as u8
}

/// Maps numbers close to each other, in both directions, to small ones.
fn zigzag(number: u64, last: u64) -> u64 {
    let difference = number.wrapping_sub(last).cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

fn unzigzag(zigzag: u64, last: u64) -> u64 {
    let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
    last.wrapping_add(difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{Removals, merge};
    use crate::{COLD_MS, VIEWS_MAX};
    use alloc::vec;
    use proptest::collection::vec as vec_of;
    use proptest::prelude::*;
    use weir_base::id::UserId;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn viewed(sku: &str, at_ms: u64) -> ViewedProduct {
        let sku = Sku::new(sku).unwrap();
        ViewedProduct { sku, at_ms }
    }

    #[test]
    fn cold_key_begins_with_the_middle_of_its_owners_md5() {
        let owner = Owner::user(&UserId::new("alice").unwrap());
        // printf alice | md5sum: 6384e2b2184bcbf58eccf10ca7a6563c
        assert_eq!(key(&owner), "f58ealice");
    }

    #[test]
    fn cold_value_is_encoded_in_the_documented_format() {
        let views = [
            viewed("100012043978", 300),
            viewed("100012043970", 300 - 2),
            viewed("red-7", 0),
        ];
        let value = encode(&views);
        let expected = [
            vec![1, 0xac, 0x02],
            // 100012043978 in five bytes, at the time of the first
            vec![0x05, 0xca, 0xae, 0x2e, 0x49, 0x17],
            // 8 less, 2 ms earlier
            vec![0x1a, 0x0f, 2],
            // a string, 298 ms earlier
            vec![0x29, 5],
            b"red-7".to_vec(),
            vec![0x2a, 0x01],
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(decode(&value).unwrap(), views);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
    }

    #[test]
    fn invalid_cold_value_is_rejected() {
        assert_eq!(decode(&[]), Err(ColdError::Short));
        assert_eq!(decode(&[2, 0]), Err(ColdError::Version(2)));
        assert_eq!(decode(&[1, 0x80]), Err(ColdError::Short));
        assert_eq!(decode(&[1; VALUE_LEN_MAX + 1]), Err(ColdError::TooLong));
        for (value, wrong) in [
            (vec![1, 5, 0x01, 7, 0x01, 7], 1),       // twice the same product
            (vec![1, 5, 0x01, 7, 0x01, 8], 1),       // in another order
            (vec![1, 5, 0x11, 7, 6], 0),             // before all time
            (vec![1, 5, 0x0f], 0),                   // no way to write a product
            (vec![1, 5, 0x91, 7], 0),                // nine bytes of time
            (vec![1, 5, 0x09, 1, b' '], 0),          // no name
            ([vec![1], vec![0xff; 10]].concat(), 0), // a time beyond all numbers
        ] {
            assert_eq!(decode(&value), Err(ColdError::View(wrong)), "{value:?}");
        }
    }

    /// A list of 200 numbers, viewed at random times within the retention of views.
    fn of_numbers(numbers: impl Fn(u64) -> u64) -> Vec<ViewedProduct> {
        let mut state = 7_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        let mut views = vec![];
        for _ in 0..VIEWS_MAX {
            let sku = Sku::from(numbers(random()));
            let at_ms = NOW_MS - random() % COLD_MS;
            views.push(ViewedProduct { sku, at_ms });
        }
        merge(views, &Removals::default(), 0, VIEWS_MAX)
    }

    /// The design goal: at most 10 bytes for a view of a product with a typical numeric id.
    #[test]
    fn view_takes_at_most_ten_bytes() {
        let own = |random: u64| 100_000_000_000 + random % 300_000_000;
        let merchants = |random: u64| 10_020_000_000_000 + random % 80_000_000_000;
        let any_of_12_digits = |random: u64| 100_000_000_000 + random % 900_000_000_000;
        let mixed = |random: u64| {
            if random.is_multiple_of(2) {
                own(random)
            } else {
                merchants(random)
            }
        };
        let tenths = |views: Vec<ViewedProduct>| 10 * encode(&views).len() / views.len();
        std::println!(
            "tenths of a byte a view: own {}, merchants' {}, 12 digits {}, mixed {}",
            tenths(of_numbers(own)),
            tenths(of_numbers(merchants)),
            tenths(of_numbers(any_of_12_digits)),
            tenths(of_numbers(mixed)),
        );
        assert!(tenths(of_numbers(own)) <= 90);
        assert!(tenths(of_numbers(merchants)) <= 100);
        assert!(tenths(of_numbers(any_of_12_digits)) <= 100);
        assert!(tenths(of_numbers(mixed)) <= 100);
    }

    fn any_sku() -> impl Strategy<Value = Sku> {
        let of_shop = (0..300_000_000_u64).prop_map(|number| Sku::from(100_000_000_000 + number));
        prop_oneof![
            of_shop,
            any::<u64>().prop_map(Sku::from),
            "[!-~]{1,64}".prop_map(|text| Sku::new(text).unwrap()),
            "0{0,3}[0-9]{1,20}".prop_map(|text| Sku::new(text).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn decoded_list_equals_the_encoded_list(
            views in vec_of((any_sku(), 1..=AT_MS_MAX), 0..VIEWS_MAX + 5),
        ) {
            let views = views.into_iter().map(|(sku, at_ms)| ViewedProduct { sku, at_ms });
            let list = merge(views, &Removals::default(), 0, VIEWS_MAX);
            let value = encode(&list);
            prop_assert!(value.len() <= VALUE_LEN_MAX);
            prop_assert_eq!(decode(&value).unwrap(), list);
        }

        #[test]
        fn arbitrary_bytes_never_panic_the_cold_decoder(mut bytes in vec_of(any::<u8>(), 0..400), is_ours: bool) {
            if let (true, Some(first)) = (is_ours, bytes.first_mut()) {
                *first = VERSION;
            }
            if let Ok(views) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&views)), Ok(views));
            }
        }

        #[test]
        fn truncated_value_never_decodes_to_the_original_list(cut in 0..100_usize) {
            let list = of_numbers(|random| random % 1_000_000_007);
            let value = encode(&list);
            let read = decode(&value[..value.len() - 1 - cut]);
            prop_assert_ne!(read, Ok(list));
        }
    }
}
