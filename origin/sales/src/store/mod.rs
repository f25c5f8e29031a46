//! Sales and orders in SQL: the source of truth, which Redis follows.
//!
//! | module | contents |
//! |---|---|
//! | `sales` | sales, their switches and sums |
//! | `columns` | the columns of a sale |
//! | `archive` | data of ended sales: archived or deleted |
//! | `attempts` | idempotency keys and their orders |
//! | `sites` | fences and allotments of sites, and units that move between sites |
//! | `stock_changes` | changes of a running sale's stock and end |
//! | `claims` | outcomes of claims: ordered or released |
//! | `clicks` | orders by the link that led to them |
//! | `cooldowns` | cooldowns of users with unpaid holds |
//! | `counts` | order counts by shard |
//! | `draws` | seeds, lists and winners of draws |
//! | `groups` | units of users in groups of sales |
//! | `order_admin`, `search` | refunds and search for operators |
//! | `order_change`, `outbox` | changes of orders for receivers |
//! | `orders` | reads orders, and lists those that Redis has not followed |
//! | `pauses` | sales paused because SQL has lost orders |
//! | `payloads` | buyers' data in orders, and its schemas |
//! | `payments` | payment, cancellation and expiry of orders |
//! | `provider` | payments at a provider: started, decided, refunded |
//! | `reservations` | reservations and blocked users |
//! | `rows` | rows of sales and orders, and outcomes of changes |
//! | `tenants` | objects of tenants |
//! | `user_list` | the global user list: blocked, or exempt from the risk check |
//! | `warming` | sales to warm, and warmed ones |

mod archive;
mod attempts;
mod claims;
mod clicks;
mod columns;
mod cooldowns;
mod counts;
mod draws;
mod groups;
mod money;
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
mod sites;
mod stock_changes;
mod tenants;
mod user_list;
mod warming;

use crate::model::site::SiteName;
use weir_origin_core::outbox::{Queue, Sinks, Source};
use weir_origin_core::sql::Database;

pub use archive::{ArchiveStore, EndedSale};
pub use attempts::{AttemptStore, OrderedAttempt};
pub use claims::ClaimStore;
pub use clicks::{ClickOrders, ClickStore};
pub use cooldowns::{Cooldown, CooldownStore, FOR_GOOD_MS};
pub use counts::{CountStore, OrderCounts};
pub use draws::{DrawStore, Entry, Seed, StoredDraw};
pub use money::{Money, MoneySum};
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
pub use sites::{LoadTurn, SiteOutcome, SiteRefusal, SiteStore, StoredFence};
pub use stock_changes::{ChangeBegun, ChangeReason, ChangeRefusal, StockChangeStore, StoredChange};
pub use tenants::{TENANTS_SALES, TENANTS_UNITS, TenantStore};
pub use user_list::{ListEntry, ListedUser, Remark, UserListStatus, UserListStore};
pub use warming::WarmingStore;

/// Sales and orders in SQL. Cloning it is cheap.
///
/// Times are milliseconds since the Unix epoch. Methods fail only when SQL does not answer or returns an error. All
/// changes are idempotent, so a retry is safe.
///
/// Pages are sorted by the bytes of the user id; a page shorter than its limit is the last.
#[derive(Clone, Debug)]
pub struct SaleStore {
    db: Database,
    /// Whether a reservation is valid only after its user has passed a risk check.
    risk_fails_closed: bool,
    /// The receivers for which changes of orders are stored.
    sinks: Sinks,
    /// The site of this origin; `None` without sites.
    site: Option<SiteName>,
}

impl SaleStore {
    /// Creates a store on this database.
    pub fn new(db: Database) -> Self {
        Self {
            db,
            risk_fails_closed: false,
            sinks: Sinks::default(),
            site: None,
        }
    }

    /// Makes reservations valid only after their users have passed a risk check.
    #[must_use]
    pub fn with_risk_failing_closed(mut self) -> Self {
        self.risk_fails_closed = true;
        self
    }

    /// Stores each order change for these receivers.
    #[must_use]
    pub fn with_sinks(mut self, sinks: Sinks) -> Self {
        self.sinks = sinks;
        self
    }

    /// Sells from this site. Without one, no statement reads sites.
    #[must_use]
    pub fn at_site(mut self, site: Option<SiteName>) -> Self {
        self.site = site;
        self
    }

    /// The site of this origin; `None` without sites.
    pub fn site(&self) -> Option<&SiteName> {
        self.site.as_ref()
    }

    /// The queue of undelivered order changes.
    pub fn outbox(&self) -> Queue {
        Queue::new(self.db.clone(), Source::Order)
    }

    /// Whether a reservation is valid only after its user has passed a risk check.
    pub fn risk_fails_closed(&self) -> bool {
        self.risk_fails_closed
    }

    /// Data of ended sales.
    pub fn archive(&self) -> ArchiveStore<'_> {
        ArchiveStore(self)
    }

    /// Idempotency keys and their orders.
    pub fn attempts(&self) -> AttemptStore<'_> {
        AttemptStore(self)
    }

    /// Outcomes of claims.
    pub fn claims(&self) -> ClaimStore<'_> {
        ClaimStore(self)
    }

    /// Orders by the link that led to them.
    pub fn clicks(&self) -> ClickStore<'_> {
        ClickStore(self)
    }

    /// Cooldowns of users with unpaid holds.
    pub fn cooldowns(&self) -> CooldownStore<'_> {
        CooldownStore(self)
    }

    /// Order counts by shard.
    pub fn counters(&self) -> CountStore<'_> {
        CountStore(self)
    }

    /// Refunds by operators.
    pub fn order_admin(&self) -> OrderAdminStore<'_> {
        OrderAdminStore(self)
    }

    /// Draws: seeds, lists and winners.
    pub fn draws(&self) -> DrawStore<'_> {
        DrawStore(self)
    }

    /// Sales paused because SQL has lost orders.
    pub fn pauses(&self) -> PauseStore<'_> {
        PauseStore(self)
    }

    /// Buyers' data in orders, and its schemas.
    pub fn payloads(&self) -> PayloadStore<'_> {
        PayloadStore(self)
    }

    /// Payment, cancellation and expiry of orders.
    pub fn payments(&self) -> PaymentStore<'_> {
        PaymentStore(self)
    }

    /// Payments at a provider.
    pub fn provider(&self) -> ProviderStore<'_> {
        ProviderStore(self)
    }

    /// Reservations and blocked users.
    pub fn reservations(&self) -> ReservationStore<'_> {
        ReservationStore(self)
    }

    /// Search of orders for operators, including archived sales.
    pub fn search(&self) -> SearchStore<'_> {
        SearchStore(self)
    }

    /// Fences and allotments of sites.
    pub fn sites(&self) -> SiteStore<'_> {
        SiteStore(self)
    }

    /// Changes of a running sale's stock and end.
    pub fn stock_changes(&self) -> StockChangeStore<'_> {
        StockChangeStore(self)
    }

    /// Sales of tenants.
    pub fn tenants(&self) -> TenantStore<'_> {
        TenantStore(self)
    }

    /// The global user list: blocked, or exempt from the risk check.
    pub fn user_list(&self) -> UserListStore<'_> {
        UserListStore(self)
    }

    /// Sales to warm, and warmed ones.
    pub fn warming(&self) -> WarmingStore<'_> {
        WarmingStore(self)
    }
}
