//! Typed calls of the scripts of flash sales, and the catalogue.
//!
//! Users: [`claim`], [`release`], [`settle`], [`charge`], [`cancel`], [`overdue`]. Stock: [`warm`], [`lend`],
//! [`deposit`], [`settle_transfer`], [`probe`], [`audit`], [`restock`], [`stock_change`]. Repair after a loss:
//! [`wipe`], [`restore`], [`correct`], [`recount`], [`raise_mark`]. Catalogue: [`publish`]. Checkout:
//! [`challenge_spend`].
//!
//! The Lua scripts are in `lua/`, one file per script. A comment at the top of each describes its KEYS, ARGV and
//! replies.

/// The source of a script, preceded by the shared functions for a shard.
macro_rules! with_shard {
    ($name:literal) => {
        concat!(
            include_str!("../../lua/shard.lua"),
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

/// The same, with the shared functions for records.
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
pub mod catalogue;
pub mod challenge_spend;
pub mod claim;
pub mod keys;
pub mod overdue;
pub mod probe;
pub mod record;
pub mod release;
mod reply;
pub mod restore;

use alloc::string::ToString;

use weir_base::id::UserId;
use weir_scripts::Script;
use weir_scripts::call::decimal;

use self::keys::ShardKeys;
use self::record::{mark, orders_word};
use crate::ledger::{
    Audit, Deduction, DepositReply, FollowUpReply, LendReply, OrderEntry, SettleReply, StockChange,
    StockChanged, Transfer, WipeReply,
};
use crate::shard::{BUCKETS, bucket};

weir_scripts::scripts! {
    /// `cancel.lua`: ends an order and returns its units to the stock.
    mod cancel = with_records!("cancel");
    /// Ends the order of this claim, or the claim if it is still open.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation)];
    -> FollowUpReply;

    /// `charge.lua`: records the payment of an order that is deducted at payment.
    mod charge = with_records!("charge");
    /// Removes the units of this claim's order from the stock.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation)];
    -> FollowUpReply;

    /// `correct.lua`: repairs a user's orders that differ between Redis and SQL.
    mod correct = with_records!("correct");
    /// Writes `orders`, oldest first, for a user without a claim, if their orders in Redis still equal `entries`. Reply:
    /// whether it did.
    fn call(keys: &ShardKeys, user: &UserId, entries: &[OrderEntry], orders: &[OrderEntry]) =
        [keys.stock(), keys.claims(), keys.epoch(), keys.sums(), keys.bought()],
        [user.as_str().into(), decimal(bucket(user)), orders_word(entries).into(), orders_word(orders).into()];
    -> bool;

    /// `deposit.lua`: transfers units in from another shard.
    mod deposit = with_shard!("deposit");
    /// Adds the transfer from `from_shard` to the shard of `keys`.
    fn call(keys: &ShardKeys, from_shard: u32, transfer: Transfer) =
        [keys.stock(), keys.deposits(), keys.epoch(), keys.sums()],
        [decimal(from_shard), decimal(transfer.id), decimal(transfer.units)];
    -> DepositReply;

    /// `lend.lua`: transfers units out to another shard.
    mod lend = with_shard!("lend");
    /// Takes units from the shard of `keys` for `to_shard`.
    fn call(keys: &ShardKeys, to_shard: u32, requested: u64) =
        [keys.stock(), keys.transfers(), keys.sequence(), keys.epoch(), keys.sums()],
        [decimal(to_shard), decimal(requested)];
    -> LendReply;

    /// `publish.lua`: publishes a catalogue for gateways.
    mod publish = include_str!("../../lua/publish.lua");
    /// Writes a catalogue of this version, unless a later one exists. Reply: whether it did.
    fn call(prefix: &str, version: u64, catalogue: &[u8]) =
        [keys::catalogue(prefix)], [decimal(version), catalogue.into()];
    -> bool;

    /// `raise_mark.lua`: raises a shard's mark to SQL's count.
    mod raise_mark = with_shard!("raise_mark");
    /// Sets the mark if the shard has not changed since `audit` and has a lower one. Reply: whether it did.
    fn call(keys: &ShardKeys, mark: u64, audit: &Audit) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.sequence(), keys.mark()],
        [decimal(mark), audit.epoch.to_string().into(), decimal(audit.sequence), decimal(audit.version)];
    -> bool;

    /// `recount.lua`: repairs the sums of a shard after Redis lost a key.
    mod recount = with_shard!("recount");
    /// Writes these sums of open claims and orders if the shard still has their version. Reply: whether it did.
    fn call(keys: &ShardKeys, sums: &Audit) = [keys.stock(), keys.epoch(), keys.sums()],
        [sums.version, sums.open, sums.held, sums.bought, sums.deferred, sums.checksum].map(decimal);
    -> bool;

    /// `restock.lua`: repairs the stock after a loss of data.
    mod restock = with_shard!("restock");
    /// Adds `units` (negative: removes them) if the shard has not changed since `audit`. Reply: whether it did.
    fn call(keys: &ShardKeys, units: i64, audit: &Audit) =
        [keys.stock(), keys.epoch(), keys.sequence(), keys.sums()],
        [units.to_string().into(), audit.epoch.to_string().into(), decimal(audit.sequence), decimal(audit.version)];
    -> bool;

    /// `settle.lua`: turns a claim into an order.
    mod settle = with_records!("settle");
    /// Settles one claim.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64, deduction: Deduction) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation), mark(deduction).into()];
    -> SettleReply;

    /// `settle_transfer.lua`: finishes an arrived transfer at its source shard.
    mod settle_transfer = include_str!("../../lua/settle_transfer.lua");
    /// Removes the transfer from the source shard of `keys`. Use it only after the deposit has confirmed the arrival.
    /// Reply: whether the transfer was open.
    fn call(keys: &ShardKeys, to_shard: u32, id: u64) = [keys.transfers()], [decimal(to_shard), decimal(id)];
    -> bool;

    /// `stock_change.lua`: adds units to a sale's stock, or withdraws some.
    mod stock_change = with_shard!("stock_change");
    /// Applies a shard's part of a change.
    fn call(keys: &ShardKeys, change: StockChange) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.change()],
        [decimal(change.number), change.units.to_string().into()];
    -> StockChanged;

    /// `warm.lua`: loads units on a cold shard.
    mod warm = with_shard!("warm");
    /// Puts `units` on a shard that was never used, or ends the rebuild of this token with them. Reply: whether the
    /// shard was cold and now has the units.
    fn call(keys: &ShardKeys, units: u64, token: Option<&str>) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.rebuild()],
        [decimal(units), token.unwrap_or("-").into()];
    -> bool;

    /// `wipe.lua`: begins the rebuild of a cold shard.
    mod wipe = with_shard!("wipe");
    /// Clears a cold shard for the rebuild with this token, a text without spaces. No other rebuild may begin for
    /// `lease_ms`, nor for as long after each [`restore`](crate::redis::restore).
    fn call(keys: &ShardKeys, token: &str, lease_ms: u64) =
        [
            keys.stock(), keys.epoch(), keys.sums(), keys.rebuild(), keys.claims(), keys.pending(), keys.transfers(),
            keys.deposits(), keys.bought(),
        ],
        [token.into(), decimal(lease_ms), decimal(BUCKETS)];
    -> WipeReply;
}

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
    &raise_mark::SCRIPT,
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
