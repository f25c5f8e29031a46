//! The types of the claim protocol of one shard, and a model of it.
//!
//! The production implementation is Lua (`lua/`); `ShardLedger` (feature `model`) is the same protocol in Rust, short
//! enough to read completely. Tests run the same operations against both and compare every reply.
//!
//! The invariant: `Σ stock + open transfers + held + bought = total`, without transfers that their target has received.
//! Only [`ReleaseKind::Void`], `ShardLedger::restock` and `ShardLedger::change` change the sum: the first two repair it
//! after Redis lost data, and with the last an operator changes the total.

#[cfg(any(test, feature = "model"))]
mod record;
#[cfg(any(test, feature = "model"))]
mod shard;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weir_base::id::{SaleId, UserId};

use crate::claim::Ticket;
use crate::site::index_of;

#[cfg(any(test, feature = "model"))]
pub use shard::{EvictedKey, ShardLedger};

/// Conditions for a new claim, in addition to the cap.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Checks {
    /// The user must not be blocked.
    pub blocked: bool,
    /// The user must have a reservation.
    pub reserved: bool,
    /// No new claims; a user with a claim gets it again.
    pub drain: bool,
}

/// The terms of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimTerms {
    /// The claim's lifetime in milliseconds.
    pub ttl_ms: u64,
    /// The maximum number of units per user.
    pub user_cap: u32,
    /// The number of requested units: at least 1.
    pub quantity: u32,
    /// Additional conditions.
    pub checks: Checks,
}

/// The shard's reply to a claim. A refused request changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// The user is blocked.
    Blocked,
    /// The user has no reservation.
    NotReserved,
    /// A new claim.
    Granted(OpenClaim),
    /// The user's existing claim, delivered again.
    GrantedAgain(OpenClaim),
    /// This attempt has already become an order: that of the claim with this generation.
    Ordered {
        /// The order's generation.
        generation: u64,
        /// Its units.
        quantity: u32,
    },
    /// Another attempt of the user has an open claim.
    InProgress,
    /// The sale takes no new claims.
    Draining,
    /// The user has reached the cap; the generation is that of the last order's claim.
    CapReached {
        /// The last order's generation; 0 if the user has none.
        generation: u64,
    },
    /// The shard has too few units, as of this epoch.
    Empty {
        /// The shard's epoch.
        epoch: i64,
        /// The number of open claims: their users may retry.
        open_claims: u64,
    },
    /// The shard has no stock entry: it is not loaded, or Redis lost it.
    Cold,
}

/// Deliveries of one claim have distinct numbers below this. The delivery with this number, and all later ones, are
/// never released: the claim then ends at its deadline.
pub const DELIVERIES_MAX: u32 = 30;

/// An open claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenClaim {
    /// The claim's generation.
    pub generation: u64,
    /// The number of claimed units.
    pub quantity: u32,
    /// When the claim may be released, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// The number of this delivery, from 0: at most [`DELIVERIES_MAX`].
    pub delivery: u32,
}

/// When an order's units leave the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deduction {
    /// With the order.
    AtOrder,
    /// With its payment: until then, others may order the same units.
    AtPayment,
}

/// One order in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// The generation of its claim.
    pub generation: u64,
    /// Its units.
    pub units: u64,
    /// Whether its units have left the stock: not yet with [`Deduction::AtPayment`].
    pub deduction: Deduction,
}

/// Why a claim is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseKind {
    /// This delivery never left the gateway. The claim ends when all its deliveries are released. Each has a number, so
    /// that a repeated release counts once.
    Delivery(u32),
    /// SQL has recorded the release of this claim: it ends now, and its units return to the stock.
    Decided,
    /// SQL has recorded the release of this claim, which no unit backs: it ends now, and its units do not return.
    Void,
}

/// The shard's reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// The claim is not open: nothing changed.
    Nothing,
    /// The claim has ended.
    Ended,
    /// Other deliveries of the claim remain.
    StillOut,
}

/// The shard's reply to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// The claim is not open: nothing changed.
    Nothing,
    /// The claim became an order.
    Settled,
}

/// The shard's reply to the end or the payment of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUpReply {
    /// The shard has applied it.
    Done,
    /// The order does not exist, or the shard had applied it before.
    Nothing,
    /// The shard is not loaded, or Redis lost it: a rebuild will apply it.
    Cold,
}

/// The reply to the start of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WipeReply {
    /// The rebuild has begun.
    Begun,
    /// The shard is not cold.
    Warm,
    /// Another rebuild is running.
    Other,
}

/// A transfer of units between shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Identifies the transfer among all those of the source shard: ids only grow.
    pub id: u64,
    /// The number of units: at least 1.
    pub units: u64,
}

/// The source shard's reply to a transfer out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendReply {
    /// These units have left the shard, in the existing open transfer to the target or in a new one.
    Lent(Transfer),
    /// The shard has no units to transfer.
    Nothing,
    /// The source shard is not loaded, or Redis lost it.
    Cold,
}

/// The target shard's reply to a transfer in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepositReply {
    /// The units have arrived.
    Deposited,
    /// They had arrived before: nothing changed.
    Already,
    /// The target shard is not loaded, or Redis lost it.
    Cold,
}

/// Units added to a sale's stock, or withdrawn from it, for one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockChange {
    /// Identifies the change within the sale: numbers only grow, and 0 is no change.
    pub number: u64,
    /// The number of added units. Negative: withdrawn; a shard gives at most its free units.
    pub units: i64,
}

/// The shard's reply to a stock change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockChanged {
    /// The units that this change added to the shard (negative: withdrew), now or at an earlier call.
    Done(i64),
    /// The shard has applied a later change: nothing changed.
    Over,
    /// The shard is not loaded, or Redis lost it.
    Cold,
}

/// A shard's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardProbe {
    /// The stock, which may be negative if orders are deducted at payment; `None` if the shard is cold.
    pub stock: Option<i64>,
    /// The shard's epoch.
    pub epoch: i64,
    /// How many claims are open.
    pub open_claims: u64,
    /// The number of open transfers from this shard.
    pub moving: u64,
}

/// A claim whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The user.
    pub user: UserId,
    /// The claim.
    pub held: OpenClaim,
}

impl Overdue {
    /// The claim's ticket, given its sale and shard.
    pub fn into_ticket(self, sale: &SaleId, shard: u32) -> Ticket {
        Ticket {
            sale: sale.clone(),
            shard,
            generation: self.held.generation,
            quantity: self.held.quantity,
            deadline_ms: self.held.deadline_ms,
            user: self.user,
        }
    }
}

/// An open transfer in its source shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTransfer {
    /// The target shard.
    pub to_shard: u32,
    /// The transfer.
    pub transfer: Transfer,
    /// When it started, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// The terms of the invariant for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// The stock; `None` if the shard is cold.
    pub stock: Option<i64>,
    /// Increases with each change of stock or sums.
    pub version: u64,
    /// Open claims.
    pub open: u64,
    /// Units in open claims.
    pub held: u64,
    /// Units in orders that were deducted from the stock.
    pub bought: u64,
    /// Units in orders that were not deducted yet: see [`Deduction::AtPayment`].
    pub deferred: u64,
    /// The checksum of the orders' generations: see [`checksum_of`].
    pub checksum: u64,
    /// The number of order changes that the shard has applied after their commit in SQL: see [`mark`](crate::mark).
    pub mark: u64,
    /// Changes whenever units arrive, and whenever the last one leaves.
    pub epoch: i64,
    /// The last issued generation or transfer id.
    pub sequence: u64,
    /// The number of users with an open claim. It equals `open`, unless Redis has lost one of the keys.
    pub records: u64,
    /// The number of deadlines of open claims, with the same rule.
    pub deadlines: u64,
    /// Open transfers from this shard, by target.
    pub transfers: Vec<OpenTransfer>,
    /// The id of the last transfer from each source shard.
    pub deposits: Vec<(u32, u64)>,
    /// The last change of the sale's stock, with its result here.
    pub change: StockChange,
}

/// Adds an order's generation to a checksum, or removes it if `is_added` is false. Redis and SQL each keep the checksum
/// of their orders: different checksums mean different orders.
pub fn checksum_of(checksum: u64, generation: u64, is_added: bool) -> u64 {
    /// 2^31 - 1: SQL and Lua can both add such numbers exactly.
    const CHECKSUMS: u64 = 2_147_483_647;
    let change = match is_added {
        true => generation % CHECKSUMS,
        false => CHECKSUMS - generation % CHECKSUMS,
    };
    (checksum % CHECKSUMS + change) % CHECKSUMS
}

impl Audit {
    /// Whether claims, their deadlines and the sums agree. They disagree after Redis has lost a key.
    pub fn is_sound(&self) -> bool {
        self.records == self.open && self.deadlines == self.open
    }

    /// These terms with exactly these orders.
    pub fn with_orders<'a>(&self, orders: impl IntoIterator<Item = &'a OrderEntry>) -> Self {
        let mut sums = Self {
            bought: 0,
            deferred: 0,
            checksum: 0,
            ..self.clone()
        };
        for order in orders {
            match order.deduction {
                Deduction::AtOrder => sums.bought += order.units,
                Deduction::AtPayment => sums.deferred += order.units,
            }
            sums.checksum = checksum_of(sums.checksum, order.generation, true);
        }
        sums
    }

    /// Units that have left the shard `from_shard` and have not arrived, by the audits of all shards in order. Transfers
    /// are within one fence, so positions are enough.
    pub fn units_moving(&self, from_shard: u32, shards: &[Audit]) -> u64 {
        let has_arrived = |open: &OpenTransfer| {
            shards
                .get(index_of(open.to_shard) as usize)
                .is_some_and(|target| {
                    target.deposits.iter().any(|&(from, id)| {
                        index_of(from) == index_of(from_shard) && id >= open.transfer.id
                    })
                })
        };
        self.transfers
            .iter()
            .filter(|open| !has_arrived(open))
            .map(|open| open.transfer.units)
            .sum()
    }
}
