//! `fit_put.lua`: writes all relations of one SKU.

use crate::{Shape, Sku};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::FitmentKeys;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_put",
    source: include_str!("../../lua/fit_put.lua"),
};

/// What happens to a stored entry with a higher version than the written one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewerEntryPolicy {
    /// It stays: the write is late.
    Stays,
    /// It is replaced: SQL, the source of truth, was restored to an earlier state.
    IsReplaced,
}

impl NewerEntryPolicy {
    pub(crate) fn label(self) -> &'static [u8] {
        match self {
            Self::Stays => b"keep",
            Self::IsReplaced => b"force",
        }
    }
}

/// The call that writes one whole SKU.
pub fn call(
    keys: &FitmentKeys,
    sku: &Sku,
    version: u64,
    newer: NewerEntryPolicy,
    shape: &Shape,
) -> Call {
    let mut args = Arguments::with_capacity(96 + 12 * shape.len().min(6_000));
    args.push(sku.as_str().as_bytes());
    args.push_decimal(version);
    args.push(newer.label());
    match shape {
        Shape::None => args.push(b"n"),
        Shape::Set(offsets) => {
            args.push(b"s");
            for offset in offsets {
                args.push_decimal(offset.get().into());
            }
        }
        Shape::Bitmaps(bitmaps) => {
            args.push(b"b");
            for (segment, bytes) in bitmaps {
                args.push_decimal((*segment).into());
                args.push(bytes);
            }
        }
    }
    Call {
        script: &SCRIPT,
        keys: [keys.directory()].into(),
        args,
    }
}

/// Parses the reply: whether it was written. Otherwise Redis has a newer version.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
