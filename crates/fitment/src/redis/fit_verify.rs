//! `fit_verify.lua`: reads SKUs of one product for a comparison with SQL.

use alloc::string::String;
use alloc::vec::Vec;

use crate::shape::bitmap;
use crate::{Offset, Sku};
use sha1::{Digest, Sha1};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::FitmentKeys;
use weir_scripts::reply::{Numbers, array, text};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_verify",
    source: include_str!("../../lua/fit_verify.lua"),
};

/// Maximum SKUs of one call: the largest ones together have 1 MB.
pub const SKUS_MAX: usize = 20;

/// The state of one SKU in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredSku {
    /// No entry and no tombstone.
    Nothing,
    /// A tombstone.
    Dropped {
        /// Its version.
        version: u64,
    },
    /// Relations.
    Relations {
        /// Their version.
        version: u64,
        /// The stored data, except lost keys.
        parts: Parts,
    },
}

/// Digests of the stored data; `None` for a lost key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// It fits nothing.
    None,
    /// A set.
    Set(Option<String>),
    /// Bitmaps by segment.
    Bitmaps(Vec<(u32, Option<String>)>),
}

/// The call that reads these SKUs.
pub fn call<'a>(keys: &FitmentKeys, skus: impl IntoIterator<Item = &'a Sku>) -> Call {
    let mut args = Arguments::default();
    for sku in skus {
        args.push(sku.as_str().as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [keys.directory()].into(),
        args,
    }
}

/// Parses the reply: the state of each SKU, in order.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value, skus: usize) -> Result<Vec<StoredSku>, ReplyError> {
    let pairs = array(value).filter(|texts| texts.len() == 2 * skus);
    let retained = |pair: &[Value]| match pair {
        [entry, digests] => parse_sku(text(entry)?, core::str::from_utf8(text(digests)?).ok()?),
        _ => None,
    };
    let all = pairs.and_then(|texts| texts.chunks(2).map(retained).collect());
    all.ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn parse_sku(entry: &[u8], digests: &str) -> Option<StoredSku> {
    let Some((kind, rest)) = entry.split_first() else {
        return Some(StoredSku::Nothing);
    };
    let mut rest = Numbers(rest);
    let version = rest.number()?;
    let mut digests = digests.split(',').map(|digest| match digest {
        "" => None,
        digest => Some(digest.into()),
    });
    let parts = match kind {
        b'd' => return Some(StoredSku::Dropped { version }),
        b'n' => Parts::None,
        b's' => Parts::Set(digests.next()?),
        b'b' => {
            let mut bitmaps = Vec::new();
            rest.take().filter(|byte| *byte == b',')?;
            while let Some(segment) = rest.number() {
                rest.take().filter(|byte| *byte == b',')?;
                bitmaps.push((u32::try_from(segment).ok()?, digests.next()?));
            }
            Parts::Bitmaps(bitmaps)
        }
        _ => return None,
    };
    rest.take()
        .is_none()
        .then_some(StoredSku::Relations { version, parts })
}

impl Parts {
    /// Whether these digests match `offsets`, in ascending order.
    pub fn are(&self, offsets: &[Offset]) -> bool {
        match self {
            Self::None => offsets.is_empty(),
            Self::Set(digest) => digest.as_ref() == Some(&digest_of_set(offsets)),
            Self::Bitmaps(bitmaps) => {
                let mut requested: Vec<_> = offsets
                    .chunk_by(|a, b| a.segment() == b.segment())
                    .filter_map(|some| Some((some.first()?.segment(), some)))
                    .collect();
                let are = bitmaps.iter().all(|(segment, digest)| {
                    let at = requested.iter().position(|(of, _)| of == segment);
                    let some = at.map_or(&[][..], |at| requested.swap_remove(at).1);
                    digest.as_ref() == Some(&sha1_hex(&bitmap(some)))
                });
                are && requested.is_empty()
            }
        }
    }
}

fn digest_of_set(offsets: &[Offset]) -> String {
    let mut members = String::from("0");
    for offset in offsets {
        members.push(' ');
        members.push_str(itoa::Buffer::new().format(offset.get()));
    }
    sha1_hex(members.as_bytes())
}

fn sha1_hex(bytes: &[u8]) -> String {
    hex::encode(Sha1::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_fit_verify_entries_are_parsed() {
        let read = |entry: &str, digests: &str| parse_sku(entry.as_bytes(), digests);
        assert_eq!(read("", ""), Some(StoredSku::Nothing));
        assert_eq!(read("d7", ""), Some(StoredSku::Dropped { version: 7 }));
        let Some(StoredSku::Relations { version: 3, parts }) = read("b3,0,12,", "aa,") else {
            panic!("no bitmaps");
        };
        assert_eq!(
            parts,
            Parts::Bitmaps([(0, Some("aa".into())), (12, None)].into())
        );
        for bad in ["x1", "s", "s1x", "b1", "b1,0", "b1,x,", "n01", "n-1"] {
            assert_eq!(read(bad, ""), None, "{bad}");
        }
        assert_eq!(read("b1,0,1,", "aa"), None);
    }
}
