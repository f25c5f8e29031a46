//! What SQL has of sales and orders, and the outcomes of changes.

use super::OrderCounts;
use crate::model::click::OrderClick;
use crate::model::payload::Payload;
use crate::model::price::{OrderPrice, Price};
use crate::model::sale::SaleFields;
use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::{SaleId, UserId};
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::LimitExceeded;
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::ledger::StockChange;
use weir_sale::sale::{Sale, SaleState};

/// A sale as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSale {
    /// What gateways see of it; the band is that of the units that are left in SQL.
    pub sale: Sale,
    /// Fields set by operators.
    pub fields: SaleFields,
    /// Units that were added to it since it was warmed.
    pub topped_up: u64,
    /// Units that were withdrawn from it.
    pub withdrawn: u64,
    /// Units not ordered.
    pub remaining: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When its stock was first put on Redis.
    pub warmed_at_ms: Option<u64>,
    /// Since when it takes no orders and is not put on Redis again.
    pub archived_at_ms: Option<u64>,
    /// Since when it is paused: SQL has lost orders of it.
    pub paused_at_ms: Option<u64>,
    /// How often it was paused.
    pub pauses: u64,
}

/// A sale, and what became of its claims, all as of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleTotals {
    /// The sale.
    pub stored: StoredSale,
    /// Its orders, by status.
    pub orders: OrderCounts,
    /// The units of unpaid and paid orders that were taken from stock:
    /// `stored.remaining + units_deducted = stored.fields.total`.
    pub units_deducted: u64,
    /// The units of unpaid orders that take theirs at payment.
    pub units_deferred: u64,
    /// Whether the outcome of any claim on it is decided: then Redis has handed out units.
    pub has_outcomes: bool,
    /// Whether its stock was ever changed after it was warmed.
    pub has_changes: bool,
    /// The change of its stock that not every shard has heard of, as far as `stored.fields.total` counts it.
    pub open_change: Option<StockChange>,
    /// The latest entry of the sale's change log; 0 if there is none. Two answers with one version
    /// tell the same stock.
    pub version: u64,
}

/// What SQL holds of a sale's units, as of one instant, given which claims are open in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// As in [`StoredSale`].
    pub total: u64,
    /// As in [`StoredSale`].
    pub topped_up: u64,
    /// As in [`StoredSale`].
    pub withdrawn: u64,
    /// As in [`SaleTotals`].
    pub open_change: Option<StockChange>,
    /// Units not ordered.
    pub remaining: u64,
    /// Units of the open claims that SQL has not counted among the ordered, and that are not void.
    pub held: u64,
    /// Whether Redis has followed every order that ended or was paid.
    pub is_followed: bool,
    /// Its orders by shard.
    pub counts: Vec<ShardCounts>,
}

/// The numbers of the orders of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// The shard.
    pub shard: u32,
    /// Orders by status.
    pub orders: OrderCounts,
    /// As in [`SaleTotals`].
    pub units_deducted: u64,
    /// As in [`SaleTotals`].
    pub units_deferred: u64,
    /// Of the generations of its unpaid and paid orders: see [`weir_sale::ledger::checksum_of`].
    pub checksum: u64,
}

/// Status of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    /// Not paid.
    Unpaid,
    /// Paid; final.
    Paid,
    /// Cancelled; final.
    Cancelled,
    /// Not paid in time; final.
    Expired,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Unpaid, Self::Paid, Self::Cancelled, Self::Expired];

    /// The word in SQL and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unpaid => "unpaid",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether the order holds, or will hold, its units.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Unpaid | Self::Paid)
    }
}

/// An order, with all that Redis needs to follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOrder {
    /// Its name, which is its claim's.
    pub id: String,
    /// The sale.
    pub sale: SaleId,
    /// The shard of its claim.
    pub shard: u32,
    /// The generation of its claim.
    pub generation: u64,
    /// Whose it is.
    pub user: UserId,
    /// Number of units.
    pub units: u32,
    /// Its state.
    pub status: OrderStatus,
    /// Whether its units were taken from stock (and given back, if it was cancelled or expired).
    pub deducted: bool,
    /// Until when it must be paid; `None`: no limit, or decided.
    pub pay_by_ms: Option<u64>,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// What the shop called what was sold when it was made, if it said.
    pub sku: Option<String>,
    /// What one unit cost then, if it said.
    pub price: Option<Price>,
    /// The click that it came of, if that is known.
    pub click: Option<OrderClick>,
}

impl StoredOrder {
    /// What it costs, if the sale said what a unit does.
    pub fn cost(&self) -> Option<OrderPrice> {
        self.price.map(|price| OrderPrice::new(price, self.units))
    }
}

/// The request that a claim came with, if its client named the attempt by a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The key.
    pub key: IdempotencyKey,
    /// SHA-256 of the request's body, in hex. A key counts for one request only.
    pub body_sha256: String,
}

/// What a request to order says beside its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderRequest {
    /// The attempt, if its client named it by a key.
    pub attempt: Option<Attempt>,
    /// What its buyer says with the order, if the sale wants that.
    pub payload: Option<Payload>,
    /// The click that led to it, if that is known.
    pub click: Option<OrderClick>,
}

/// The outcome of a claim that asked to be an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// It is an order now.
    New(StoredOrder),
    /// It was an order already, which may have ended meanwhile.
    Again(StoredOrder),
    /// It was released before, and never becomes an order.
    Released {
        /// SQL had no unit behind it.
        void: bool,
    },
    /// Another user's claim of the same name had its outcome decided before. Redis lost data, and a
    /// clock went back: this claim never becomes an order.
    NameTaken,
    /// SQL has no units for it. Nothing was changed.
    Short(Shortage),
    /// Its attempt has become this order, by another claim: this one is not needed. Nothing was changed.
    Elsewhere(StoredOrder),
    /// The attempt's key came with another request before. Nothing was changed.
    KeyReused {
        /// Whether this claim is not needed: the key's order is another claim's.
        is_spare: bool,
    },
}

/// What follows for users who let holds expire unpaid. Holds that a user cancels count as one that expired whenever, together,
/// they have lasted as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRules {
    /// For how long such a user may not buy in that sale, in milliseconds; 0: may at once.
    pub cooldown_ms: u64,
    /// After how many such holds the user may not buy in that sale again; 0: however many.
    pub expired_max: u32,
}

impl Default for HoldRules {
    fn default() -> Self {
        Self {
            cooldown_ms: 60_000,
            expired_max: 3,
        }
    }
}

/// Why SQL has no units for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Fewer units are left than the claim holds.
    SoldOut,
    /// SQL has no such sale.
    UnknownSale,
    /// The user's orders and this claim together are more than one user may have: Redis has lost
    /// orders of the user.
    UserCap,
    /// The user's orders in all sales of the group and this claim together are more than one user may have.
    GroupCap,
    /// The user let a hold expire, or cancelled holds that lasted as long, and has to wait.
    CoolingDown {
        /// For how long, in milliseconds.
        wait_ms: u64,
    },
    /// The user let too many holds expire, or cancelled as many late.
    UnpaidHolds,
    /// The user is blocked, or has not reserved where only who has may buy: Redis did not know, or not yet.
    Barred,
}

impl Shortage {
    /// Whether the unit is there, only not for this user: then another may have it.
    pub fn is_the_users(self) -> bool {
        match self {
            Self::UserCap
            | Self::GroupCap
            | Self::CoolingDown { .. }
            | Self::UnpaidHolds
            | Self::Barred => true,
            Self::SoldOut | Self::UnknownSale => false,
        }
    }
}

/// The answer to a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentOutcome {
    /// It is paid now.
    Now(StoredOrder),
    /// It was paid before.
    Again(StoredOrder),
    /// It comes too late: the deadline has passed, whether or not the order was ended for it yet.
    Expired,
    /// The user took the order back before.
    Cancelled,
    /// The order takes its units now, and there are none. It stays as it is.
    SoldOut,
    /// This user has no such order.
    Unknown,
}

/// The answer to a user who takes an order back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It is cancelled now; its units are in stock again.
    Now(StoredOrder),
    /// It was cancelled before.
    Again(StoredOrder),
    /// The order has already expired.
    Expired(StoredOrder),
    /// It is paid, and stays.
    Paid(StoredOrder),
    /// This user has no such order.
    Unknown,
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationOutcome {
    /// The user has reserved now.
    Now,
    /// The user had reserved before.
    Again,
    /// Reservations have not opened.
    NotOpen {
        /// Milliseconds until they do: at least 1.
        wait_ms: u64,
    },
    /// Reservations have ended.
    Closed,
    /// Operators have blocked the user in every sale.
    Blocked,
    /// The sale needs no reservation.
    NoReservation,
    /// SQL has no such sale.
    Unknown,
}

/// What a user has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReservation {
    /// When.
    pub at_ms: u64,
    /// Whether a risk check has judged the user.
    pub is_checked: bool,
    /// The name under which the user stands in the list of the sale's draw; `None`: it has none.
    pub ticket: Option<String>,
    /// Whether the user may buy, as far as a draw has to say.
    pub is_admitted: bool,
    /// Of a winner of a draw: 1, 2, 3 …
    pub place: Option<u64>,
}

/// The answer to a user who takes a reservation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawOutcome {
    /// There is none any more.
    Now,
    /// There was none.
    Again,
    /// The list of the sale's draw is closed: it stays.
    Closed,
}

/// A sale was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// SQL did not answer, or answered with an error.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Its tenant would have more than it may.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

/// The answer to a changed sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// It is as given now.
    Done,
    /// SQL has no such sale.
    Unknown,
    /// It stays as it was.
    Refused(EditRefusal),
}

/// A change of a sale's switches: what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchChange {
    /// The switch.
    pub state: Option<SaleState>,
    /// As in [`Degrade`](weir_sale::sale::Degrade); so for the next two.
    pub skip_risk: Option<bool>,
    /// See there.
    pub skip_reservation: Option<bool>,
    /// See there.
    pub static_page: Option<bool>,
}

/// Why a sale may not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditRefusal {
    /// Its rules hold from its start on, or from its first order.
    #[error(
        "the sale has started: only ends_at_ms can change, and the stock with POST /sales/{{id}}/stock"
    )]
    Started,
    /// Stock, shards, or whether one must reserve cannot change once they are on Redis.
    #[error("the sale is warmed: total, shards and reservation cannot change")]
    Warmed,
    /// Who has entered a draw relies on what was told of it.
    #[error("reservations for the draw have opened: they and the draw cannot change")]
    Drawing,
    /// Its tenant would have more units than it may.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

/// A user who has reserved and whom nobody has judged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnscoredReservation {
    /// The sale.
    pub sale: SaleId,
    /// Who.
    pub user: UserId,
    /// When the user reserved.
    pub at_ms: u64,
    /// How many checks have failed to say anything.
    pub failed_checks: u32,
    /// Where the user came from.
    pub visitor: Visitor,
}

/// Where a request came from, for the risk check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitor {
    /// The client's address, as the gateway saw it; empty: not known.
    pub address: String,
    /// The client's `User-Agent`, cut off; empty: not known.
    pub agent: String,
}

/// What a risk check said of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The higher, the worse.
    pub score: u32,
    /// Whether the user is blocked for it.
    pub block: bool,
}
