//! Sales and orders in SQL: the truth that Redis follows.
//!
//! | module | does |
//! |---|---|
//! | `sales` | sales, their switches and sums |
//! | `archive` | what an ended sale leaves: moved to an archive, or gone |
//! | `attempts` | which attempt with a key has become which order |
//! | `changes` | changes of a running sale's stock and end |
//! | `claims` | decides claims: ordered or released |
//! | `cooldowns` | users who keep units and do not pay: for how long they may not buy |
//! | `counts` | how many orders there are |
//! | `draws` | seeds, lists and winners of draws |
//! | `groups` | what users have of sales that belong together |
//! | `desk`, `search` | orders as operators handle and find them |
//! | `change`, `outbox` | what is told of an order, and to whom it is still to be told |
//! | `orders` | orders as they are read, and those Redis has yet to follow |
//! | `pauses` | sales that are paused because SQL has lost orders of them |
//! | `payloads` | what buyers say with orders, and what sales want of it |
//! | `payments` | orders paid, cancelled or expired |
//! | `provider` | payments at a provider: started, decided, refunded |
//! | `reservations` | who has reserved, who is blocked |
//! | `rows` | what SQL has of sales and orders, and the outcomes of changes |
//! | `tenants` | what of it is a tenant's |
//! | `user_list` | who is blocked in every sale, and whom no risk check blocks |
//! | `warming` | which sales are to be warmed, and which are |

mod archive;
mod attempts;
mod claims;
mod clicks;
mod columns;
mod cooldowns;
mod counts;
mod draws;
mod groups;
mod order_admin;
mod order_change;
mod orders;
mod outbox;
mod pauses;
mod payloads;
mod payments;
mod provider;
mod reservations;
mod rows;
mod sales;
mod search;
mod stock_changes;
mod tenants;
mod user_list;
mod warming;

use weir_origin_core::outbox::{Queue, Sinks, Source};
use weir_origin_core::sql::Database;

pub use archive::{ArchiveStore, EndedSale};
pub use attempts::{AttemptStore, OrderedAttempt};
pub use claims::ClaimStore;
pub use clicks::{ClickOrders, ClickStore};
pub use cooldowns::{Cooldown, CooldownStore, FOR_GOOD_MS};
pub use counts::{CountStore, OrderCounts};
pub use draws::{DrawStore, Entry, Seed, StoredDraw};
pub use order_admin::{OrderAdminStore, Refund};
pub use order_change::{ChangeKind, OrderChange};
pub use pauses::PauseStore;
pub use payloads::PayloadStore;
pub use payments::PaymentStore;
pub use provider::{
    PaymentEvent, PaymentNoted, PaymentStart, PaymentState, ProviderStore, StoredPayment,
};
pub use reservations::ReservationStore;
pub use rows::{
    Attempt, Balance, CancelOutcome, CreateError, EditRefusal, HoldRules, OrderOutcome,
    OrderRequest, OrderStatus, PaymentOutcome, ReservationOutcome, SaleTotals, Score, ShardCounts,
    Shortage, StoredOrder, StoredReservation, StoredSale, SwitchChange, UnscoredReservation,
    UpdateOutcome, Visitor, WithdrawOutcome,
};
pub use search::{FoundOrder, OrderCursor, OrderFilter, OrdersOf, SearchStore, Sorting};
pub use stock_changes::{ChangeBegun, ChangeRefusal, StockChangeStore, StoredChange};
pub use tenants::{TENANTS_SALES, TENANTS_UNITS, TenantStore};
pub use user_list::{ListEntry, ListedUser, Remark, UserListStatus, UserListStore};
pub use warming::WarmingStore;

/// Sales and orders in SQL. Cloning it is cheap.
///
/// Instants are milliseconds since the Unix epoch. A call fails only when SQL does not answer or answers with an
/// error. Calling again is safe: what changes something changes it once.
///
/// Pages are sorted by the bytes of the user's name; a page shorter than its limit is the last.
#[derive(Clone, Debug)]
pub struct SaleStore {
    db: Database,
    /// Whether a reservation counts only once a risk check has passed its user.
    risk_fails_closed: bool,
    /// Which receivers changes of orders are written for.
    sinks: Sinks,
}

impl SaleStore {
    /// The store in this database.
    pub fn new(db: Database) -> Self {
        Self {
            db,
            risk_fails_closed: false,
            sinks: Sinks::default(),
        }
    }

    /// The same, in which a reservation counts only once a risk check has passed its user.
    #[must_use]
    pub fn with_risk_failing_closed(mut self) -> Self {
        self.risk_fails_closed = true;
        self
    }

    /// The same, in which each change of an order is written down for these receivers.
    #[must_use]
    pub fn with_sinks(mut self, sinks: Sinks) -> Self {
        self.sinks = sinks;
        self
    }

    /// Changes of orders that receivers have yet to get.
    pub fn outbox(&self) -> Queue {
        Queue::new(self.db.clone(), Source::Order)
    }

    /// Whether a reservation counts only once a risk check has passed its user.
    pub fn risk_fails_closed(&self) -> bool {
        self.risk_fails_closed
    }

    /// What an ended sale leaves: decided orders move to an archive, what only served the sale goes.
    pub fn archive(&self) -> ArchiveStore<'_> {
        ArchiveStore(self)
    }

    /// Which attempt with a key has become which order.
    pub fn attempts(&self) -> AttemptStore<'_> {
        AttemptStore(self)
    }

    /// The outcomes of claims.
    pub fn claims(&self) -> ClaimStore<'_> {
        ClaimStore(self)
    }

    /// Orders, by the link whose click they came of.
    pub fn clicks(&self) -> ClickStore<'_> {
        ClickStore(self)
    }

    /// Users who keep units and do not pay: for how long they may not buy.
    pub fn cooldowns(&self) -> CooldownStore<'_> {
        CooldownStore(self)
    }

    /// How many orders a sale has: kept by shard, in the transactions that change them.
    pub fn counters(&self) -> CountStore<'_> {
        CountStore(self)
    }

    /// Orders as operators handle them: ended, whosever they are, and their money given back.
    pub fn order_admin(&self) -> OrderAdminStore<'_> {
        OrderAdminStore(self)
    }

    /// Draws among those who have reserved: seeds, lists and winners.
    pub fn draws(&self) -> DrawStore<'_> {
        DrawStore(self)
    }

    /// Sales that are paused because SQL has lost orders of them.
    pub fn pauses(&self) -> PauseStore<'_> {
        PauseStore(self)
    }

    /// What buyers say with their orders, and what sales want of it.
    pub fn payloads(&self) -> PayloadStore<'_> {
        PayloadStore(self)
    }

    /// Payment, cancellation and expiry of orders, each decided in one transaction by the
    pub fn payments(&self) -> PaymentStore<'_> {
        PaymentStore(self)
    }

    /// Payments at a provider: started by buyers, decided by what the provider says of them.
    pub fn provider(&self) -> ProviderStore<'_> {
        ProviderStore(self)
    }

    /// Who has reserved, and who is blocked.
    pub fn reservations(&self) -> ReservationStore<'_> {
        ReservationStore(self)
    }

    /// Orders of a sale or of a user, as operators look for them: those of archived sales, too.
    pub fn search(&self) -> SearchStore<'_> {
        SearchStore(self)
    }

    /// Changes of a running sale: its stock and its end.
    pub fn stock_changes(&self) -> StockChangeStore<'_> {
        StockChangeStore(self)
    }

    /// What of sales is a tenant's, told by its name: counted against the tenant's limits, and listed.
    pub fn tenants(&self) -> TenantStore<'_> {
        TenantStore(self)
    }

    /// Users of every sale: whom operators have blocked, and whom they let buy whatever a risk check says. Each change is written
    pub fn user_list(&self) -> UserListStore<'_> {
        UserListStore(self)
    }

    /// Which sales are to be warmed, and which are.
    pub fn warming(&self) -> WarmingStore<'_> {
        WarmingStore(self)
    }
}
