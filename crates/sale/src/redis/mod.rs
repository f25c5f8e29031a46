//! Typed calls of the scripts of flash sales, and the catalogue.
//!
//! Of users: [`claim`], [`release`], [`settle`], [`charge`], [`cancel`], [`overdue`]. Of stock: [`warm`], [`lend`], [`deposit`],
//! [`settle_transfer`], [`probe`], [`audit`], [`restock`], [`stock_change`]. After a loss: [`wipe`], [`restore`], [`correct`],
//! [`recount`], [`raise_mark`]. Of the catalogue: [`publish`]. Of checkouts: [`challenge_spend`].
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
    /// `cancel.lua`: an order ends, and what it took from the stock comes back.
    mod cancel = with_records!("cancel");
    /// The call that ends the order that came of this claim, or the claim if it is still open.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation)];
    -> FollowUpReply;

    /// `charge.lua`: an order that was to be deducted at payment is paid.
    mod charge = with_records!("charge");
    /// The call that takes the units of the order that came of this claim from the stock.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation)];
    -> FollowUpReply;

    /// `correct.lua`: a user's orders, where Redis knows them otherwise than SQL.
    mod correct = with_records!("correct");
    /// The call that writes `orders` of a user who holds no claim, oldest first, if Redis has those that were `seen`. The reply:
    /// whether it did.
    fn call(keys: &ShardKeys, user: &UserId, seen: &[OrderEntry], orders: &[OrderEntry]) =
        [keys.stock(), keys.claims(), keys.epoch(), keys.sums(), keys.bought()],
        [user.as_str().into(), decimal(bucket(user)), orders_word(seen).into(), orders_word(orders).into()];
    -> bool;

    /// `deposit.lua`: units that have left another shard arrive.
    mod deposit = with_shard!("deposit");
    /// The call that puts what `from_shard` has lent on the shard of `keys`.
    fn call(keys: &ShardKeys, from_shard: u32, transfer: Transfer) =
        [keys.stock(), keys.deposits(), keys.epoch(), keys.sums()],
        [decimal(from_shard), decimal(transfer.id), decimal(transfer.units)];
    -> DepositReply;

    /// `lend.lua`: units of one shard leave for another.
    mod lend = with_shard!("lend");
    /// The call that takes units from the shard of `keys` for `to_shard`.
    fn call(keys: &ShardKeys, to_shard: u32, wanted: u64) =
        [keys.stock(), keys.transfers(), keys.sequence(), keys.epoch(), keys.sums()],
        [decimal(to_shard), decimal(wanted)];
    -> LendReply;

    /// `publish.lua`: gives gateways a catalogue.
    mod publish = include_str!("../../lua/publish.lua");
    /// The call that writes a catalogue of this version, unless a later one is there. The reply: whether it did.
    fn call(prefix: &str, version: u64, catalogue: &[u8]) =
        [keys::catalogue(prefix)], [decimal(version), catalogue.into()];
    -> bool;

    /// `raise_mark.lua`: a shard's mark is what SQL counts.
    mod raise_mark = with_shard!("raise_mark");
    /// The call that sets the mark, if the shard is still as `seen` and has a lower one. The reply: whether it did.
    fn call(keys: &ShardKeys, mark: u64, seen: &Audit) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.sequence(), keys.mark()],
        [decimal(mark), seen.epoch.to_string().into(), decimal(seen.sequence), decimal(seen.version)];
    -> bool;

    /// `recount.lua`: the sums of a shard of which Redis was made to forget a key.
    mod recount = with_shard!("recount");
    /// The call that notes these sums of open claims and orders, if the shard is still of their version. The reply: whether it did.
    fn call(keys: &ShardKeys, sums: &Audit) = [keys.stock(), keys.epoch(), keys.sums()],
        [sums.version, sums.open, sums.held, sums.bought, sums.deferred, sums.checksum].map(decimal);
    -> bool;

    /// `restock.lua`: puts right what a loss of data has made wrong.
    mod restock = with_shard!("restock");
    /// The call that adds `units`, or takes them, if the shard is still as `seen`. The reply: whether it did.
    fn call(keys: &ShardKeys, units: i64, seen: &Audit) =
        [keys.stock(), keys.epoch(), keys.sequence(), keys.sums()],
        [units.to_string().into(), seen.epoch.to_string().into(), decimal(seen.sequence), decimal(seen.version)];
    -> bool;

    /// `settle.lua`: a claim became an order.
    mod settle = with_records!("settle");
    /// The call that settles one claim.
    fn call(keys: &ShardKeys, user: &UserId, generation: u64, deduction: Deduction) = keys.of_order(),
        [user.as_str().into(), decimal(bucket(user)), decimal(generation), mark(deduction).into()];
    -> SettleReply;

    /// `settle_transfer.lua`: a transfer has arrived, and its lender need not remember it.
    mod settle_transfer = include_str!("../../lua/settle_transfer.lua");
    /// The call that has the shard of `keys`, the lender, forget the transfer. Only after a deposit has answered that the units
    /// have come. The reply: whether it was remembered.
    fn call(keys: &ShardKeys, to_shard: u32, id: u64) = [keys.transfers()], [decimal(to_shard), decimal(id)];
    -> bool;

    /// `stock_change.lua`: an operator adds units to a sale, or withdraws some.
    mod stock_change = with_shard!("stock_change");
    /// The call that tells a shard of its part of a change.
    fn call(keys: &ShardKeys, change: StockChange) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.change()],
        [decimal(change.number), change.units.to_string().into()];
    -> StockChanged;

    /// `warm.lua`: units are put on a cold shard.
    mod warm = with_shard!("warm");
    /// The call that puts `units` on a shard that was never in use, or ends the rebuild of this token with them. The reply: whether
    /// the shard was cold and holds the units now.
    fn call(keys: &ShardKeys, units: u64, token: Option<&str>) =
        [keys.stock(), keys.epoch(), keys.sums(), keys.rebuild()],
        [decimal(units), token.unwrap_or("-").into()];
    -> bool;

    /// `wipe.lua`: begins the rebuild of a cold shard.
    mod wipe = with_shard!("wipe");
    /// The call that clears a cold shard, which from then on is rebuilt by whoever has this token: a text without spaces.
    /// Nobody else may begin for `lease_ms`, nor for as long after each [`restore`](crate::redis::restore).
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
