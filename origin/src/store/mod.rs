//! SQL, behind a trait: what the origin asks of it, in its own words.
//!
//! | module | does |
//! |---|---|
//! | `database` | SQLite and the MySQL protocol under one roof: pools, transactions, rows, retries |
//! | `sales`, `claims`, `payments`, `reservations`, `link_clicks` | the statements, the same for both |
//! | `shed` | how much work at once SQL is given, and what waits |

mod claims;
pub(crate) mod database;
mod link_clicks;
mod orders;
mod payments;
mod reservations;
mod sales;
mod shed;
mod sql;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;
use weir_sale::ledger::OrderEntry;
use weir_sale::sale::{Degrade, Sale, SaleState};

use crate::links::stats::ClickStore;
use crate::links::store::{LinkStore, SqlLinks};
use crate::new_sale::{NewSale, Payment, Window};

pub use database::OpenError;
pub use shed::Shed;
pub use sql::SqlStore;

/// What a call of a [`Store`] gives. Boxed, since the database is chosen at run time.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// SQL did not do it, or it is unknown whether it did. Asking again is safe: every call of
/// [`Store`] that changes something changes it once.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQL did not answer, or with an error of its own.
    #[error("SQL: {0}")]
    Sql(#[from] sqlx::Error),
    /// Too much is waiting for SQL already. Nothing was done.
    #[error("too many requests wait for SQL")]
    Overloaded,
}

/// Opens the database that `url` names, `sqlite://<path>` or `mysql://<user>@<host>/<database>`,
/// and brings its tables up to date.
///
/// # Errors
/// Says what is wrong, without the URL: it may hold a password.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    Ok(Arc::new(SqlStore::open(url).await?))
}

/// As [`open`], and the cold store of short links in the same database: they share its connections, so that
/// neither waits for the other's locks.
///
/// # Errors
/// As [`open`].
pub async fn open_with_links(url: &str) -> Result<(Arc<dyn Store>, Arc<dyn LinkStore>), OpenError> {
    let database = database::Database::open(url).await?;
    let links = SqlLinks::over(database.clone());
    Ok((Arc::new(SqlStore::over(database)), Arc::new(links)))
}

/// A sale as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSale {
    /// What gateways see of it; the band is that of the units that are left in SQL.
    pub sale: Sale,
    /// What people call it.
    pub title: String,
    /// Units to sell, from the start.
    pub total: u64,
    /// Units not ordered.
    pub remaining: u64,
    /// When its users may reserve; `None`: nobody needs to.
    pub reservation: Option<Window>,
    /// When an order takes units, and for how long.
    pub payment: Payment,
    /// How long before its start it is warmed by itself; `None`: by hand only.
    pub warm_before_ms: Option<u64>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When its stock was first put on Redis.
    pub warmed_at_ms: Option<u64>,
}

/// A sale, and what became of its claims, all as of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleTotals {
    /// The sale.
    pub stored: StoredSale,
    /// Its orders, by status.
    pub orders: OrderCounts,
    /// The units of unpaid and paid orders that were taken from stock:
    /// `stored.remaining + units_deducted = stored.total`.
    pub units_deducted: u64,
    /// The units of unpaid orders that take theirs at payment.
    pub units_deferred: u64,
    /// Whether the outcome of any claim on it is decided: then Redis has handed out units.
    pub has_outcomes: bool,
    /// The latest entry of the sale's change log; 0 if there is none. Two answers with one version
    /// tell the same stock.
    pub version: u64,
}

/// How many orders a sale has, by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Made and not paid.
    pub unpaid: u64,
    /// Paid.
    pub paid: u64,
    /// Taken back by their users.
    pub cancelled: u64,
    /// Not paid in time.
    pub expired: u64,
}

impl OrderCounts {
    /// Orders that hold, or will hold, units.
    pub fn active(&self) -> u64 {
        self.unpaid + self.paid
    }
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderStatus {
    /// Made and not paid.
    Unpaid,
    /// Paid: for ever.
    Paid,
    /// Taken back by its user: for ever.
    Cancelled,
    /// Not paid in time: for ever.
    Expired,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Unpaid, Self::Paid, Self::Cancelled, Self::Expired];

    /// The word in SQL and JSON.
    pub const fn word(self) -> &'static str {
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
    /// How many units.
    pub units: u32,
    /// Where it stands.
    pub status: OrderStatus,
    /// Whether its units were taken from stock (and given back, if it was cancelled or expired).
    pub deducted: bool,
    /// Until when it must be paid; `None`: no limit, or decided.
    pub pay_by_ms: Option<u64>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
}

/// What became of a claim that asked to be an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
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
}

/// The answer to a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paid {
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
pub enum Cancelled {
    /// It is cancelled now; its units are in stock again.
    Now(StoredOrder),
    /// It was cancelled before.
    Again(StoredOrder),
    /// It has expired before.
    Expired(StoredOrder),
    /// It is paid, and stays.
    Paid(StoredOrder),
    /// This user has no such order.
    Unknown,
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
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
    /// Nobody needs to reserve for this sale.
    NoReservation,
    /// SQL has no such sale.
    Unknown,
}

/// The answer to a changed sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// It is as given now.
    Done,
    /// SQL has no such sale.
    Unknown,
    /// It stays as it was.
    Refused(EditRefusal),
}

/// Why a sale may not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditRefusal {
    /// Its rules hold from its start on, or from its first order.
    #[error("the sale has started")]
    Started,
    /// Stock, shards, or whether one must reserve cannot change once they are on Redis.
    #[error(
        "the sale is warmed: its total, its shards, and whether users must reserve cannot change"
    )]
    Warmed,
}

/// A user who has reserved and whom nobody has judged yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unscored {
    /// The sale.
    pub sale: SaleId,
    /// Who.
    pub user: UserId,
    /// When the user reserved.
    pub at_ms: u64,
    /// How many checks have failed to say anything.
    pub failed_checks: u32,
}

/// What a risk check said of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The higher, the worse.
    pub score: u32,
    /// Whether the user is blocked for it.
    pub block: bool,
}

/// SQL.
///
/// Instants are milliseconds since the Unix epoch. Every call fails with [`StoreError`] only when
/// SQL does not answer, or answers with an error of its own.
///
/// Pages are sorted by the bytes of the user's name; a page shorter than its limit is the last.
pub trait Store: ClickStore + fmt::Debug {
    /// Makes a sale, open, with all its units remaining. False if there is one of that id.
    fn create_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, bool>;

    /// Changes the sale of that id, before it starts, to what `sale` says; its state stays.
    fn update_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, Updated>;

    /// Sets the operator's switches of a sale, at any time. False if there is no such sale.
    fn set_state<'a>(
        &'a self,
        id: &'a SaleId,
        state: SaleState,
        degrade: Degrade,
    ) -> StoreFuture<'a, bool>;

    /// The operator's switch of all sales: open, unless it was ever set.
    fn global_switch(&self) -> StoreFuture<'_, SaleState>;

    /// Sets it.
    fn set_global_switch(&self, state: SaleState) -> StoreFuture<'_, ()>;

    /// One sale.
    fn sale<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<StoredSale>>;

    /// One sale and its sums, all of it as of one instant. Reads each of its orders: for operators
    /// and jobs.
    fn totals<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<SaleTotals>>;

    /// At most `limit` sales, those that end last first.
    fn sales(&self, limit: usize) -> StoreFuture<'_, Vec<StoredSale>>;

    /// At most `limit` warmed sales that end after `ended_after_ms`, those that start first first.
    fn catalogue(&self, ended_after_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Sale>>;

    /// The sales that are to be warmed by now, have not been, and have not ended.
    fn due_to_warm(&self, now_ms: u64) -> StoreFuture<'_, Vec<SaleId>>;

    /// Notes that a sale's stock is on Redis, unless that is noted already.
    fn mark_warmed<'a>(&'a self, id: &'a SaleId, now_ms: u64) -> StoreFuture<'a, ()>;

    /// Makes a claim an order, in one transaction: its outcome, the order, the change log, and the
    /// stock last, so that the row that all orders of a sale share is locked shortest. A sale that
    /// is paid `at_payment` takes no stock yet.
    fn place<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Placed>;

    /// Decides that a claim without units behind it never becomes an order. False if its outcome was
    /// decided before.
    fn void<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, bool>;

    /// Decides that a claim never becomes an order, unless its outcome was decided before: then that is
    /// told.
    fn release<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Option<Placed>>;

    /// One order of this user.
    fn order<'a>(
        &'a self,
        order_id: &'a str,
        user: &'a UserId,
    ) -> StoreFuture<'a, Option<StoredOrder>>;

    /// Pays an order, in one transaction. An order that has no units yet takes them now.
    fn pay<'a>(&'a self, order_id: &'a str, user: &'a UserId, now_ms: u64)
    -> StoreFuture<'a, Paid>;

    /// Takes an unpaid order back, in one transaction; its units return to stock.
    fn cancel<'a>(
        &'a self,
        order_id: &'a str,
        user: &'a UserId,
        now_ms: u64,
    ) -> StoreFuture<'a, Cancelled>;

    /// Ends at most `limit` orders whose time to pay has passed; their units return to stock.
    /// Tells which were ended just now.
    fn expire(&self, now_ms: u64, limit: usize) -> StoreFuture<'_, Vec<StoredOrder>>;

    /// At most `limit` orders that Redis may not have followed, those that changed first first:
    /// cancelled and expired ones (`cancel` in Redis), and those that took their units when they
    /// were paid (`settle` in Redis, then `charge`). A new order is not among them: its claim is
    /// open in Redis until Redis has followed.
    fn unfollowed(&self, limit: usize) -> StoreFuture<'_, Vec<StoredOrder>>;

    /// Notes that Redis has followed the order to this status, which is of no effect if it has
    /// another one now.
    fn mark_followed<'a>(&'a self, order_id: &'a str, status: OrderStatus) -> StoreFuture<'a, ()>;

    /// At most `limit` unpaid and paid orders, of users at home on `shard`, with their users: those
    /// that came of a later generation than `after`, the earliest first.
    fn orders_page<'a>(
        &'a self,
        sale: &'a SaleId,
        shard: u32,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, OrderEntry)>>;

    /// Reserves for a user.
    fn reserve<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        now_ms: u64,
    ) -> StoreFuture<'a, Reserved>;

    /// At most `limit` users whom no risk check has judged and whose turn has come: those first whose
    /// turn came first. It comes with the reservation, unless it is postponed.
    fn reservations_to_score(&self, now_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Unscored>>;

    /// Counts a risk check that said nothing; the user's turn comes again at `check_at_ms`.
    fn postpone_check<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        check_at_ms: u64,
    ) -> StoreFuture<'a, ()>;

    /// Notes what the risk check said of a user who has reserved, and blocks the user if it said
    /// so. False if that user has not reserved.
    fn set_score<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        score: Score,
        now_ms: u64,
    ) -> StoreFuture<'a, bool>;

    /// Blocks a user. False if the user is blocked already; the first reason stays.
    fn block<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        reason: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, bool>;

    /// Lets a user buy again. False if the user is not blocked.
    fn unblock<'a>(&'a self, id: &'a SaleId, user: &'a UserId) -> StoreFuture<'a, bool>;

    /// At most `limit` users who have reserved, after `after`.
    fn reserved_page<'a>(
        &'a self,
        id: &'a SaleId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>>;

    /// At most `limit` blocked users, after `after`.
    fn blocked_page<'a>(
        &'a self,
        id: &'a SaleId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>>;

    /// Asks for a sign of life.
    fn ping(&self) -> StoreFuture<'_, ()>;

    /// Ends all connections, once what they do is done.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
