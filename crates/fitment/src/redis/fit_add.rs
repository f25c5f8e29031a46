//! `fit_add.lua`: adds and removes offsets of one SKU.

use crate::{Offset, SPARSE_MAX, Sku};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::FitmentKeys;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "fit_add",
    source: include_str!("../../lua/fit_add.lua"),
};

/// Maximum offsets of one call. Larger changes write the whole SKU.
pub const OFFSETS_MAX: usize = 1_000;

/// The change. An offset is in at most one list.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The version that Redis must have.
    pub from_version: u64,
    /// The version after it.
    pub to_version: u64,
    /// The added offsets, the largest first.
    pub added: &'a [Offset],
    /// The removed offsets.
    pub removed: &'a [Offset],
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change is applied.
    Done,
    /// Nothing changed: the SKU must be written as a whole.
    NeedsWhole,
    /// Redis has this version or a newer one.
    Known,
}

/// The call that makes this change.
pub fn call(keys: &FitmentKeys, sku: &Sku, change: &Change<'_>) -> Call {
    let mut args = Arguments::default();
    args.push(sku.as_str().as_bytes());
    args.push_decimal(change.from_version);
    args.push_decimal(change.to_version);
    args.push_decimal(SPARSE_MAX as u64 + 1);
    args.push_decimal(change.added.len() as u64);
    for offset in change.added.iter().chain(change.removed) {
        args.push_decimal(offset.get().into());
    }
    Call {
        script: &SCRIPT,
        keys: [keys.directory()].into(),
        args,
    }
}

/// Parses the reply.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<ChangeOutcome, ReplyError> {
    match value {
        Value::Integer(0) => Ok(ChangeOutcome::NeedsWhole),
        Value::Integer(1) => Ok(ChangeOutcome::Done),
        Value::Integer(2) => Ok(ChangeOutcome::Known),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
