//! `audit.lua`: reads the terms of the invariant for one shard.

use alloc::vec::Vec;

use crate::ledger::{Audit, OpenTransfer, StockChange, Transfer};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use weir_scripts::reply::{array, digits, integer, text, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "audit",
    source: with_shard!("audit"),
};

/// Reads the terms of one shard.
pub fn call(keys: &ShardKeys) -> Call {
    Call {
        script: &SCRIPT,
        keys: [
            keys.stock(),
            keys.epoch(),
            keys.sums(),
            keys.sequence(),
            keys.claims(),
            keys.pending(),
            keys.transfers(),
            keys.deposits(),
            keys.change(),
            keys.mark(),
        ]
        .into(),
        args: Arguments::default(),
    }
}

/// Parses the reply.
///
/// # Errors
/// When it is not a reply of this script.
pub fn parse(value: &Value) -> Result<Audit, ReplyError> {
    parse_terms(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn parse_terms(value: &Value) -> Option<Audit> {
    let [
        terms,
        epoch,
        sequence,
        records,
        deadlines,
        transfers,
        deposits,
        change,
    ] = array(value)?
    else {
        return None;
    };
    let audit = Audit {
        epoch: integer(epoch)?,
        sequence: unsigned(sequence)?,
        records: unsigned(records)?,
        deadlines: unsigned(deadlines)?,
        transfers: by_shard(transfers, parse_transfer)?,
        deposits: by_shard(deposits, |shard, id| Some((shard, digits(text(id)?)?)))?,
        change: parse_change(text(change)?)?,
        ..Audit::default()
    };
    Some(match array(terms)? {
        [] => audit,
        [stock, version, open, held, bought, deferred, checksum, mark] => Audit {
            stock: Some(integer(stock)?),
            version: unsigned(version)?,
            open: unsigned(open)?,
            held: unsigned(held)?,
            bought: unsigned(bought)?,
            deferred: unsigned(deferred)?,
            checksum: unsigned(checksum)?,
            mark: unsigned(mark)?,
            ..audit
        },
        _ => return None,
    })
}

/// Parses a hash with shards as fields, given as a flat list, in order.
fn by_shard<T>(hash: &Value, read: impl Fn(u32, &Value) -> Option<T>) -> Option<Vec<T>> {
    let mut entries = Vec::new();
    for pair in array(hash)?.chunks(2) {
        let [shard, value] = pair else { return None };
        entries.push((u32::try_from(digits(text(shard)?)?).ok()?, value));
    }
    entries.sort_by_key(|&(shard, _)| shard);
    entries
        .into_iter()
        .map(|(shard, value)| read(shard, value))
        .collect()
}

/// Parses `<number> <units>`; empty without a change.
fn parse_change(text: &[u8]) -> Option<StockChange> {
    if text.is_empty() {
        return Some(StockChange::default());
    }
    let (number, units) = core::str::from_utf8(text).ok()?.split_once(' ')?;
    Some(StockChange {
        number: number.parse().ok()?,
        units: units.parse().ok()?,
    })
}

fn parse_transfer(to_shard: u32, value: &Value) -> Option<OpenTransfer> {
    let Value::Bulk(text) = value else {
        return None;
    };
    let mut numbers = core::str::from_utf8(text).ok()?.split(' ');
    let mut next = || numbers.next()?.parse().ok();
    Some(OpenTransfer {
        to_shard,
        transfer: Transfer {
            id: next()?,
            units: next()?,
        },
        at_ms: next()?,
    })
}
