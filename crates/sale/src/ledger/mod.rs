//! The claim protocol of one shard: its words, and a model of it.
//!
//! The running protocol is the Lua in `crates/scripts`; `ShardLedger` (feature `model`) is the same protocol in
//! Rust, small enough to read at once. Tests run the same operations against both and compare
//! every reply.
//!
//! Units are always somewhere: `Σ stock + open transfers + held + bought = total`, where a transfer
//! that its target has deposited counts no more. Only [`ReleaseKind::Void`],
//! `ShardLedger::restock` and `ShardLedger::change` change the sum: the first two put it right after Redis lost data, and
//! with the last an operator changes the total.

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

#[cfg(any(test, feature = "model"))]
pub use shard::{EvictedKey, ShardLedger};

/// What must hold of a user, besides the cap, for a new claim.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Checks {
    /// The user is not blocked.
    pub blocked: bool,
    /// The user has a reservation.
    pub reserved: bool,
    /// Nobody gets a new claim; who holds one gets it again.
    pub drain: bool,
}

/// What a claim asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimTerms {
    /// How long the hold lasts.
    pub ttl_ms: u64,
    /// The most units one user may have.
    pub user_cap: u32,
    /// How many units are asked for: at least 1.
    pub quantity: u32,
    /// What is looked at besides.
    pub checks: Checks,
}

/// The shard's answer to a claim. A user who is refused leaves no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// The user is blocked.
    Blocked,
    /// The user has no reservation.
    NotReserved,
    /// A new claim.
    Granted(OpenClaim),
    /// The claim that the user holds already, delivered once more.
    GrantedAgain(OpenClaim),
    /// This attempt has become an order: that of the claim of this generation.
    Ordered {
        /// The order's generation.
        generation: u64,
        /// Its units.
        quantity: u32,
    },
    /// Another attempt of the user holds a claim that is not decided yet.
    InProgress,
    /// No new claims are made any more.
    Draining,
    /// The user has all that one user may have; the last order came of the claim of this generation.
    CapReached {
        /// The last order's generation; 0 if the user has none.
        generation: u64,
    },
    /// Not enough units left on this shard, as of this epoch.
    Empty {
        /// The shard's epoch.
        epoch: i64,
        /// How many claims are open: users who may come back for what they hold.
        open_claims: u64,
    },
    /// The shard holds no stock entry: not warmed, or lost.
    Cold,
}

/// Deliveries of one claim are told apart up to this number. The one that has it, and all later ones,
/// count as never to come back: the claim then waits for its deadline.
pub const DELIVERIES_MAX: u32 = 30;

/// An open claim as the shard describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenClaim {
    /// The claim's generation.
    pub generation: u64,
    /// Units held.
    pub quantity: u32,
    /// When the hold may be taken back, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// Which of the claim's deliveries this is, from 0: at most [`DELIVERIES_MAX`].
    pub delivery: u32,
}

/// When an order's units leave the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deduction {
    /// With the order.
    AtOrder,
    /// With its payment: until then others may order them, too.
    AtPayment,
}

/// One order as its shard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// The generation of the claim that it came of.
    pub generation: u64,
    /// Its units.
    pub units: u64,
    /// Whether its units have left the stock: [`Deduction::AtPayment`] means not yet.
    pub deduction: Deduction,
}

/// Why a claim is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseKind {
    /// This delivery never left the gateway. The claim ends when every delivery has come back. Each has
    /// its number, so that one that comes back twice is not taken for two.
    Delivery(u32),
    /// SQL has recorded that this claim is released: it ends now, its units come back.
    Decided,
    /// SQL has recorded that this claim is released and has no unit to back it: it ends now and
    /// its units do not come back.
    Void,
}

/// The shard's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// There is no such open claim (any more): nothing changed.
    Nothing,
    /// The claim has ended.
    Ended,
    /// Other deliveries of the claim are still out.
    StillOut,
}

/// The shard's answer to a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleReply {
    /// There is no such open claim (any more): nothing changed.
    Nothing,
    /// The claim became an order.
    Settled,
}

/// The shard's answer to the end or the payment of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUpReply {
    /// It has followed.
    Done,
    /// There is no such order, or it had followed before.
    Nothing,
    /// The shard is not warmed, or lost: it follows once it is rebuilt.
    Cold,
}

/// The answer to who wants to rebuild a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WipeReply {
    /// The rebuild has begun.
    Begun,
    /// The shard is not cold.
    Warm,
    /// Another is at it.
    Other,
}

/// Units on the move from one shard to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Tells this transfer from every other one of the lender, earlier or later: ids only grow.
    pub id: u64,
    /// How many: at least 1.
    pub units: u64,
}

/// A lender's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendReply {
    /// These units have left the lender: the transfer to that shard that was open already, or a new
    /// one.
    Lent(Transfer),
    /// There is nothing to lend.
    Nothing,
    /// The lender is not warmed, or lost.
    Cold,
}

/// A borrower's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepositReply {
    /// The units have come.
    Deposited,
    /// They had come before: nothing changed.
    Already,
    /// The borrower is not warmed, or lost.
    Cold,
}

/// Units that are added to a sale's stock, or withdrawn from it, as far as one shard is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockChange {
    /// Tells this change from every other one of the sale: numbers only grow, and 0 is none.
    pub number: u64,
    /// How many are added. Below 0: taken, where a shard that is told so takes no more than are free on it.
    pub units: i64,
}

/// The shard's answer to a change of its stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockChanged {
    /// Of this change the shard has added so many units, or below 0 taken: now, or when it was told before.
    Done(i64),
    /// It knows of a later change: this one is over, and nothing changed.
    Over,
    /// The shard is not warmed, or lost.
    Cold,
}

/// A shard at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardProbe {
    /// Units left, which may be fewer than none where orders are deducted at payment; `None` if the
    /// shard is cold.
    pub stock: Option<i64>,
    /// The shard's epoch.
    pub epoch: i64,
    /// How many claims are open.
    pub open_claims: u64,
    /// How many transfers have left and not been settled.
    pub moving: u64,
}

/// A claim whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Who holds it.
    pub user: UserId,
    /// Which claim it is.
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

/// An open transfer as its lender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTransfer {
    /// Where it goes.
    pub to_shard: u32,
    /// What it is.
    pub transfer: Transfer,
    /// When it left, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// The terms of the invariant, for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Units left; `None` if the shard is cold.
    pub stock: Option<i64>,
    /// One more with each change of stock or sums.
    pub version: u64,
    /// Open claims.
    pub open: u64,
    /// Units in open claims.
    pub held: u64,
    /// Units in orders that have left the stock.
    pub bought: u64,
    /// Units in orders that have not: see [`Deduction::AtPayment`].
    pub deferred: u64,
    /// Of these orders' generations: see [`checksum_of`].
    pub checksum: u64,
    /// How many changes of orders the shard was told of, after SQL had committed them: see [`mark`](crate::mark).
    pub mark: u64,
    /// Another one whenever units come, and whenever the last one goes.
    pub epoch: i64,
    /// The last generation or transfer id given out.
    pub sequence: u64,
    /// Users with an open claim, and deadlines of open claims: as many as `open`, unless Redis was made to forget one of
    /// its keys.
    pub records: u64,
    /// See `records`.
    pub deadlines: u64,
    /// What has left for other shards and is not settled, by target.
    pub transfers: Vec<OpenTransfer>,
    /// From which shard which transfer came last, by shard.
    pub deposits: Vec<(u32, u64)>,
    /// The last change of the sale's stock that came, with what came of it here.
    pub change: StockChange,
}

/// The checksum of orders, given the one without an order of this generation, or with `is_added` false the one with it.
/// Redis and SQL each keep one of the orders that they know: if the two differ, they know others.
pub fn checksum_of(checksum: u64, generation: u64, is_added: bool) -> u64 {
    /// 2^31 - 1, for what SQL and Lua add up exactly.
    const CHECKSUMS: u64 = 2_147_483_647;
    let change = match is_added {
        true => generation % CHECKSUMS,
        false => CHECKSUMS - generation % CHECKSUMS,
    };
    (checksum % CHECKSUMS + change) % CHECKSUMS
}

impl Audit {
    /// Whether claims, their deadlines and the sums agree: unless Redis was made to forget a key.
    pub fn is_sound(&self) -> bool {
        self.records == self.open && self.deadlines == self.open
    }

    /// These terms, if the shard had just these orders.
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

    /// Units that have left this shard, the number `from_shard`, and have not arrived, given the
    /// audits of all shards in their order.
    pub fn units_moving(&self, from_shard: u32, shards: &[Audit]) -> u64 {
        let has_arrived = |open: &OpenTransfer| {
            shards.get(open.to_shard as usize).is_some_and(|target| {
                target
                    .deposits
                    .iter()
                    .any(|&(from, id)| from == from_shard && id >= open.transfer.id)
            })
        };
        self.transfers
            .iter()
            .filter(|open| !has_arrived(open))
            .map(|open| open.transfer.units)
            .sum()
    }
}
