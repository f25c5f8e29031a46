//! Typed calls of the scripts of flash sales, and the catalogue.
//!
//! Of users: [`claim`], [`release`], [`settle`], [`charge`], [`cancel`], [`overdue`]. Of stock: [`warm`], [`lend`], [`deposit`],
//! [`settle_transfer`], [`probe`], [`audit`], [`restock`], [`stock_change`]. After a loss: [`wipe`], [`restore`], [`correct`],
//! [`recount`]. Of the catalogue: [`publish`]. Of checkouts: [`challenge_spend`].
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

/// A script's source, after the reading and writing of a shard that it needs.
macro_rules! with_shard {
    ($name:literal) => {
        concat!(
            include_str!("../../lua/shard.lua"),
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

/// The same, with the reading and writing of records.
macro_rules! with_records {
    ($name:literal) => {
        concat!(
            include_str!("../../lua/shard.lua"),
            include_str!("../../lua/record.lua"),
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

pub mod audit;
pub mod cancel;
pub mod catalogue;
pub mod challenge_spend;
pub mod charge;
pub mod claim;
pub mod correct;
pub mod deposit;
pub mod keys;
pub mod lend;
pub mod overdue;
pub mod probe;
pub mod publish;
pub mod recount;
pub mod release;
pub mod restock;
pub mod restore;
pub mod settle;
pub mod settle_transfer;
pub mod stock_change;
pub mod warm;
pub mod wipe;

use crate::ledger::Followed;
use weir_base::resp::Value;
use weir_scripts::ReplyError;
use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &audit::SCRIPT,
    &cancel::SCRIPT,
    &challenge_spend::SCRIPT,
    &charge::SCRIPT,
    &claim::SCRIPT,
    &correct::SCRIPT,
    &deposit::SCRIPT,
    &lend::SCRIPT,
    &overdue::SCRIPT,
    &probe::SCRIPT,
    &publish::SCRIPT,
    &recount::SCRIPT,
    &release::SCRIPT,
    &restock::SCRIPT,
    &restore::SCRIPT,
    &settle::SCRIPT,
    &settle_transfer::SCRIPT,
    &stock_change::SCRIPT,
    &warm::SCRIPT,
    &wipe::SCRIPT,
];

/// Reads the reply of a script that says 1 for done, 0 for nothing to do, and 2 for a cold shard.
pub(crate) fn followed(value: &Value, script: &'static Script) -> Result<Followed, ReplyError> {
    match value {
        Value::Integer(0) => Ok(Followed::Nothing),
        Value::Integer(1) => Ok(Followed::Done),
        Value::Integer(2) => Ok(Followed::Cold),
        _ => Err(ReplyError {
            script: script.name,
        }),
    }
}
