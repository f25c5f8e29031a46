//! `fit_drop.lua`: removes SKUs of one product.

use crate::Sku;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::FitmentKeys;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_drop",
    source: include_str!("../../lua/fit_drop.lua"),
};

/// Maximum SKUs of one call.
pub const SKUS_MAX: usize = 200;

/// The call that drops SKUs, unless Redis has a newer version. A tombstone stays, so that a late older write has no
/// effect. `segments`: how many segments may have bitmaps without an entry; 0 except for
/// [`Plan::Bitmaps`](crate::Plan::Bitmaps).
pub fn call<'a>(
    keys: &FitmentKeys,
    segments: u32,
    skus: impl IntoIterator<Item = (&'a Sku, u64)>,
) -> Call {
    of(keys, segments, b"drop", skus)
}

/// The call that removes such tombstones, up to these versions.
pub fn forget<'a>(keys: &FitmentKeys, skus: impl IntoIterator<Item = (&'a Sku, u64)>) -> Call {
    of(keys, 0, b"forget", skus)
}

fn of<'a>(
    keys: &FitmentKeys,
    segments: u32,
    word: &[u8],
    skus: impl IntoIterator<Item = (&'a Sku, u64)>,
) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(segments.into());
    args.push(word);
    for (sku, version) in skus {
        args.push(sku.as_str().as_bytes());
        args.push_decimal(version);
    }
    Call {
        script: &SCRIPT,
        keys: [keys.directory()].into(),
        args,
    }
}

/// Parses the reply: how many SKUs were dropped, or tombstones removed.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<usize, ReplyError> {
    unsigned(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
