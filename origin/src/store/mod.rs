//! SQL, behind a trait: what the origin asks of it, in its own words.

mod sqlite;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use weir_core::claim::Ticket;
use weir_core::id::{SaleId, UserId};
use weir_core::ledger::OrderEntry;
use weir_core::sale::{Sale, SaleState};

use crate::new_sale::NewSale;

pub use sqlite::{OpenError, SqliteStore};

/// What a call of a [`Store`] gives. Boxed, since the database is chosen at run time.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// SQL did not do it, or it is unknown whether it did. Asking again is safe: every call of
/// [`Store`] that changes something changes it once.
#[derive(Debug, thiserror::Error)]
#[error("SQL: {0}")]
pub struct StoreError(#[from] sqlx::Error);

/// A sale as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSale {
    /// What gateways see of it.
    pub sale: Sale,
    /// What people call it.
    pub title: String,
    /// Units to sell, from the start.
    pub total: u64,
    /// Units not ordered.
    pub remaining: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When its stock was first put on Redis.
    pub warmed_at_ms: Option<u64>,
}

/// A sale, and what became of its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleTotals {
    /// The sale.
    pub stored: StoredSale,
    /// Its orders.
    pub orders: u64,
    /// The units in its orders.
    pub units_ordered: u64,
    /// Whether the fate of any claim on it is decided: then Redis has handed out units.
    pub has_outcomes: bool,
}

/// What became of a claim that asked to be an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is an order now.
    New,
    /// It was an order already.
    Again,
    /// It was released before, and never becomes an order.
    Released {
        /// SQL had no unit behind it.
        void: bool,
    },
    /// Another user's claim of the same name had its fate decided before. Redis lost data, and a
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
}

/// SQL.
///
/// Instants are milliseconds since the Unix epoch. Every call fails with [`StoreError`] only when
/// SQL does not answer, or answers with an error of its own.
pub trait Store: fmt::Debug + Send + Sync {
    /// Makes a sale, open, with all its units remaining. False if there is one of that id.
    fn create_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, bool>;

    /// One sale, all of it as of one instant.
    fn sale<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<SaleTotals>>;

    /// At most `limit` sales, those that end last first.
    fn sales(&self, limit: usize) -> StoreFuture<'_, Vec<StoredSale>>;

    /// At most `limit` warmed sales that end after `ended_after_ms`, those that start first first.
    fn catalogue(&self, ended_after_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Sale>>;

    /// Notes that a sale's stock is on Redis, unless that is noted already.
    fn mark_warmed<'a>(&'a self, id: &'a SaleId, now_ms: u64) -> StoreFuture<'a, ()>;

    /// Makes a claim an order, in one transaction: its fate, the order, the change log, and the
    /// stock last, so that the row that all orders of a sale share is locked shortest.
    fn place<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Placed>;

    /// Decides that a claim without units behind it never becomes an order. False if its fate was
    /// decided before.
    fn void<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, bool>;

    /// Decides that a claim never becomes an order, unless its fate was decided before: then that is
    /// told.
    fn release<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Option<Placed>>;

    /// At most `limit` orders that stand, of users at home on `shard`, with their users: those that
    /// came of a later generation than `after`, the earliest first.
    fn orders_page<'a>(
        &'a self,
        sale: &'a SaleId,
        shard: u32,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, OrderEntry)>>;

    /// Asks for a sign of life.
    fn ping(&self) -> StoreFuture<'_, ()>;

    /// Ends all connections, once what they do is done.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A sale's state as SQL has it.
fn state_text(state: SaleState) -> &'static str {
    state.word()
}

/// Reads what [`state_text`] writes.
fn parse_state(text: &str) -> Option<SaleState> {
    SaleState::ALL
        .into_iter()
        .find(|&state| state_text(state) == text)
}
