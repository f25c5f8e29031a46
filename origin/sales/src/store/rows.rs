//! Rows of sales and orders, and outcomes of changes.

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

/// A sale in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSale {
    /// The sale as gateways see it. Its stock level is that of the remaining units in SQL.
    pub sale: Sale,
    /// Fields set by operators.
    pub fields: SaleFields,
    /// Units added since it was warmed.
    pub topped_up: u64,
    /// Units withdrawn.
    pub withdrawn: u64,
    /// Units not ordered.
    pub remaining: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the first warm-up.
    pub warmed_at_ms: Option<u64>,
    /// Time of archiving, after which it accepts no orders and is not warmed again.
    pub archived_at_ms: Option<u64>,
    /// Time of the pause, because SQL has lost orders.
    pub paused_at_ms: Option<u64>,
    /// Number of pauses.
    pub pauses: u64,
}

/// A sale and the totals of its claims and orders, from one consistent snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleTotals {
    /// The sale.
    pub stored: StoredSale,
    /// Its orders, by status.
    pub orders: OrderCounts,
    /// Units of active orders that were deducted: `stored.remaining + units_deducted = stored.fields.total`.
    pub units_deducted: u64,
    /// Units of unpaid orders that are deducted at payment.
    pub units_deferred: u64,
    /// Whether any claim was decided, which means that Redis has granted units.
    pub has_outcomes: bool,
    /// Whether its stock was ever changed after the warm-up.
    pub has_changes: bool,
    /// The stock change in progress here, as far as `units_here` contains it.
    pub open_change: Option<StockChange>,
    /// Units that Redis here must have, with those in orders: without sites, `stored.fields.total`.
    pub units_here: u64,
    /// Units of active orders of this site that were deducted.
    pub units_deducted_here: u64,
    /// The latest entry of the sale's change log; 0: none. Equal versions mean equal stock.
    pub version: u64,
}

/// A sale's units in SQL, from one consistent snapshot, given the open claims in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The first shard of this site.
    pub first_shard: u32,
    /// As in [`SaleTotals::units_here`].
    pub total: u64,
    /// As in [`StoredSale`].
    pub topped_up: u64,
    /// As in [`StoredSale`].
    pub withdrawn: u64,
    /// As in [`SaleTotals`].
    pub open_change: Option<StockChange>,
    /// Units deducted for orders of this site.
    pub ordered: u64,
    /// Units of the open claims that SQL does not count as ordered, without void claims.
    pub held: u64,
    /// Whether Redis has followed all ended and paid orders.
    pub is_followed: bool,
    /// Order counts by shard, of this site.
    pub counts: Vec<ShardCounts>,
}

/// Order counts of one shard.
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
    /// Checksum of the generations of its active orders: see [`weir_sale::ledger::checksum_of`].
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
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Unpaid, Self::Paid, Self::Cancelled, Self::Expired];

    /// The label in SQL and JSON.
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

/// An order, with all data that Redis needs to follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOrder {
    /// Order id, which is its claim's id.
    pub id: String,
    /// The sale.
    pub sale: SaleId,
    /// The shard of its claim.
    pub shard: u32,
    /// The generation of its claim.
    pub generation: u64,
    /// The buyer.
    pub user: UserId,
    /// Number of units.
    pub units: u32,
    /// Its state.
    pub status: OrderStatus,
    /// Whether its units were deducted from stock (and returned, if it was cancelled or expired).
    pub deducted: bool,
    /// Payment deadline; `None`: none, or already decided.
    pub pay_by_ms: Option<u64>,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// The SKU at the time of the order.
    pub sku: Option<String>,
    /// Price per unit at the time of the order.
    pub price: Option<Price>,
    /// The click that led to it, if known.
    pub click: Option<OrderClick>,
}

impl StoredOrder {
    /// Its price, if the sale had one.
    pub fn cost(&self) -> Option<OrderPrice> {
        self.price.map(|price| OrderPrice::new(price, self.units))
    }
}

/// The request of a claim with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The key.
    pub key: IdempotencyKey,
    /// SHA-256 of the request's body, in hex. A key is valid for one body only.
    pub body_sha256: String,
}

/// Data of an order request, in addition to its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderRequest {
    /// The idempotency key, if the request has one.
    pub attempt: Option<Attempt>,
    /// The payload, if the sale has a schema.
    pub payload: Option<Payload>,
    /// The click that led to it, if known.
    pub click: Option<OrderClick>,
}

/// The outcome of placing an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderOutcome {
    /// The claim is an order now.
    New(StoredOrder),
    /// The claim was an order already, which may have ended since.
    Again(StoredOrder),
    /// The claim was released before and never becomes an order.
    Released {
        /// Whether SQL had no unit for it.
        void: bool,
    },
    /// Another user's claim with the same id was decided before, because Redis lost data and a clock was set back. This
    /// claim never becomes an order.
    NameTaken,
    /// SQL has no units for it. Nothing was changed.
    Short(Shortage),
    /// The idempotency key has this order from another claim; this claim is not needed. Nothing was changed.
    Elsewhere(StoredOrder),
    /// The idempotency key was used with a different request. Nothing was changed.
    KeyReused {
        /// Whether this claim is not needed, because the key's order has another claim.
        is_spare: bool,
    },
}

/// Consequences of unpaid holds. Holds cancelled by their user count as one expired hold whenever, together, they have
/// lasted as long as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRules {
    /// Cooldown in which the user cannot buy in the sale, in milliseconds; 0: none.
    pub cooldown_ms: u64,
    /// Number of such holds after which the user cannot buy in the sale permanently; 0: unlimited.
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
    /// Fewer units remain than the claim holds.
    SoldOut,
    /// SQL does not have the sale.
    UnknownSale,
    /// The user's orders and this claim exceed the limit per user, because Redis has lost orders of the user.
    UserCap,
    /// The user's orders in all sales of the group and this claim exceed the group's limit per user.
    GroupCap,
    /// The user has a cooldown because of unpaid or late cancelled holds.
    CoolingDown {
        /// Remaining cooldown, in milliseconds.
        wait_ms: u64,
    },
    /// The user has too many unpaid or late cancelled holds.
    UnpaidHolds,
    /// The user is blocked, or has no reservation although the sale requires one; Redis did not have this information.
    Barred,
}

impl Shortage {
    /// Whether the unit exists, but not for this user, so that others may have it.
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

/// The outcome of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentOutcome {
    /// The order is paid now.
    Now(StoredOrder),
    /// The order was paid before.
    Again(StoredOrder),
    /// The payment is late: the deadline has passed, whether or not the order has expired yet.
    Expired,
    /// The order was cancelled before.
    Cancelled,
    /// The order's units are deducted at payment, and too few remain. The order is unchanged.
    SoldOut,
    /// The user has no such order.
    Unknown,
}

/// The outcome of a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The order is cancelled now; its units are in stock again.
    Now(StoredOrder),
    /// The order was cancelled before.
    Again(StoredOrder),
    /// The order has already expired.
    Expired(StoredOrder),
    /// The order is paid and stays.
    Paid(StoredOrder),
    /// The user has no such order.
    Unknown,
}

/// The outcome of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationOutcome {
    /// The reservation was created.
    Now,
    /// The user already had a reservation.
    Again,
    /// Reservations have not opened.
    NotOpen {
        /// Milliseconds until they open: at least 1.
        wait_ms: u64,
    },
    /// Reservations have ended.
    Closed,
    /// Operators have blocked the user in every sale.
    Blocked,
    /// The sale needs no reservation.
    NoReservation,
    /// SQL does not have the sale.
    Unknown,
}

/// A user's reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReservation {
    /// Creation time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Whether a risk check has scored the user.
    pub is_checked: bool,
    /// The user's ticket in the sale's draw; `None`: no draw.
    pub ticket: Option<String>,
    /// Whether the reservation is valid with respect to a draw.
    pub is_admitted: bool,
    /// Rank of a winner: 1, 2, 3 …
    pub place: Option<u64>,
}

/// The outcome of cancelling a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithdrawOutcome {
    /// The reservation was cancelled.
    Now,
    /// The user had no reservation.
    Again,
    /// The list of the sale's draw is closed; the reservation stays.
    Closed,
}

/// Why a sale was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The SQL statement failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The tenant would exceed a limit.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

/// The outcome of changing a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The sale was changed.
    Done,
    /// SQL does not have the sale.
    Unknown,
    /// The sale stays unchanged.
    Refused(EditRefusal),
}

/// A change of a sale's switches; `None` leaves a switch unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchChange {
    /// The switch.
    pub state: Option<SaleState>,
    /// As in [`Degrade`](weir_sale::sale::Degrade), like the next two fields.
    pub skip_risk: Option<bool>,
    /// See `skip_risk`.
    pub skip_reservation: Option<bool>,
    /// See `skip_risk`.
    pub static_page: Option<bool>,
}

/// Why a sale cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditRefusal {
    /// The fields are fixed from the sale's start, or from its first order.
    #[error(
        "the sale has started: only ends_at_ms can change, and the stock with POST /sales/{{id}}/stock"
    )]
    Started,
    /// Stock, shards, and whether a reservation is required cannot change after the warm-up.
    #[error("the sale is warmed: total, shards and reservation cannot change")]
    Warmed,
    /// Entrants of a draw rely on its published data.
    #[error("reservations for the draw have opened: they and the draw cannot change")]
    Drawing,
    /// The tenant would exceed its limit of units.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

/// A user with a reservation and without a score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnscoredReservation {
    /// The sale.
    pub sale: SaleId,
    /// The user.
    pub user: UserId,
    /// Time of the reservation, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Number of failed checks.
    pub failed_checks: u32,
    /// Origin of the request.
    pub visitor: Visitor,
}

/// Origin of a request, for the risk check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitor {
    /// The client's address, according to the gateway; empty: unknown.
    pub address: String,
    /// The client's `User-Agent`, truncated; empty: unknown.
    pub agent: String,
}

/// The result of a risk check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The score; higher is worse.
    pub score: u32,
    /// Whether to block the user.
    pub block: bool,
}
