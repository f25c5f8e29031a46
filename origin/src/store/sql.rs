//! The store over SQL, of either kind.

use std::future::Future;
use std::pin::Pin;

use weir_base::id::{SaleId, UserId};
use weir_link::code::LinkId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::OrderEntry;
use weir_sale::sale::{Degrade, Sale, SaleState};

use super::database::{Database, OpenError, sql};
use super::{
    Cancelled, OrderStatus, Paid, Placed, Reserved, SaleTotals, Score, Store, StoreError,
    StoreFuture, StoredOrder, StoredSale, Unscored, Updated, claims, link_clicks, orders, payments,
    reservations, sales,
};
use crate::links::stats::{Batch, ClickStore, PartCount, Point, Span, UniquesBySlot};
use crate::new_sale::NewSale;

/// A SQLite file, or a database behind the MySQL protocol.
#[derive(Clone, Debug)]
pub struct SqlStore {
    database: Database,
}

impl SqlStore {
    /// See [`super::open`].
    ///
    /// # Errors
    /// Says what is wrong, without the URL: it may hold a password.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Database::open(url).await.map(Self::over)
    }

    /// Over a database that is open.
    pub(super) fn over(database: Database) -> Self {
        Self { database }
    }
}

/// Boxes a query's future and gives its errors the trait's type.
fn boxed<'a, T, F>(answer: F) -> StoreFuture<'a, T>
where
    F: Future<Output = Result<T, sqlx::Error>> + Send + 'a,
{
    Box::pin(async move { answer.await.map_err(StoreError::Sql) })
}

impl Store for SqlStore {
    fn create_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, bool> {
        boxed(sales::create(&self.database, sale, now_ms))
    }

    fn update_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, Updated> {
        boxed(sales::update(&self.database, sale, now_ms))
    }

    fn set_state<'a>(
        &'a self,
        id: &'a SaleId,
        state: SaleState,
        degrade: Degrade,
    ) -> StoreFuture<'a, bool> {
        boxed(sales::set_state(&self.database, id, state, degrade))
    }

    fn global_switch(&self) -> StoreFuture<'_, SaleState> {
        boxed(sales::global_switch(&self.database))
    }

    fn set_global_switch(&self, state: SaleState) -> StoreFuture<'_, ()> {
        boxed(sales::set_global_switch(&self.database, state))
    }

    fn sale<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<StoredSale>> {
        boxed(sales::one(&self.database, id))
    }

    fn totals<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<SaleTotals>> {
        boxed(sales::totals(&self.database, id))
    }

    fn sales(&self, limit: usize) -> StoreFuture<'_, Vec<StoredSale>> {
        boxed(sales::list(&self.database, limit))
    }

    fn catalogue(&self, ended_after_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Sale>> {
        boxed(sales::catalogue(&self.database, ended_after_ms, limit))
    }

    fn due_to_warm(&self, now_ms: u64) -> StoreFuture<'_, Vec<SaleId>> {
        boxed(sales::due_to_warm(&self.database, now_ms))
    }

    fn mark_warmed<'a>(&'a self, id: &'a SaleId, now_ms: u64) -> StoreFuture<'a, ()> {
        boxed(sales::mark_warmed(&self.database, id, now_ms))
    }

    fn place<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Placed> {
        boxed(claims::place(&self.database, ticket, now_ms))
    }

    fn void<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, bool> {
        boxed(claims::void(&self.database, ticket, now_ms))
    }

    fn release<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Option<Placed>> {
        boxed(claims::release(&self.database, ticket, now_ms))
    }

    fn order<'a>(
        &'a self,
        order_id: &'a str,
        user: &'a UserId,
    ) -> StoreFuture<'a, Option<StoredOrder>> {
        boxed(orders::one(&self.database, order_id, user))
    }

    fn pay<'a>(
        &'a self,
        order_id: &'a str,
        user: &'a UserId,
        now_ms: u64,
    ) -> StoreFuture<'a, Paid> {
        boxed(payments::pay(&self.database, order_id, user, now_ms))
    }

    fn cancel<'a>(
        &'a self,
        order_id: &'a str,
        user: &'a UserId,
        now_ms: u64,
    ) -> StoreFuture<'a, Cancelled> {
        boxed(payments::cancel(&self.database, order_id, user, now_ms))
    }

    fn expire(&self, now_ms: u64, limit: usize) -> StoreFuture<'_, Vec<StoredOrder>> {
        boxed(payments::expire(&self.database, now_ms, limit))
    }

    fn unfollowed(&self, limit: usize) -> StoreFuture<'_, Vec<StoredOrder>> {
        boxed(orders::unfollowed(&self.database, limit))
    }

    fn mark_followed<'a>(&'a self, order_id: &'a str, status: OrderStatus) -> StoreFuture<'a, ()> {
        boxed(orders::mark_followed(&self.database, order_id, status))
    }

    fn orders_page<'a>(
        &'a self,
        sale: &'a SaleId,
        shard: u32,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, OrderEntry)>> {
        boxed(orders::page(&self.database, sale, shard, after, limit))
    }

    fn reserve<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        now_ms: u64,
    ) -> StoreFuture<'a, Reserved> {
        boxed(reservations::reserve(&self.database, id, user, now_ms))
    }

    fn reservations_to_score(&self, now_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Unscored>> {
        boxed(reservations::to_score(&self.database, now_ms, limit))
    }

    fn postpone_check<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        check_at_ms: u64,
    ) -> StoreFuture<'a, ()> {
        boxed(reservations::postpone_check(
            &self.database,
            id,
            user,
            check_at_ms,
        ))
    }

    fn set_score<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        score: Score,
        now_ms: u64,
    ) -> StoreFuture<'a, bool> {
        boxed(reservations::set_score(
            &self.database,
            id,
            user,
            score,
            now_ms,
        ))
    }

    fn block<'a>(
        &'a self,
        id: &'a SaleId,
        user: &'a UserId,
        reason: &'a str,
        now_ms: u64,
    ) -> StoreFuture<'a, bool> {
        boxed(reservations::block(
            &self.database,
            id,
            user,
            reason,
            now_ms,
        ))
    }

    fn unblock<'a>(&'a self, id: &'a SaleId, user: &'a UserId) -> StoreFuture<'a, bool> {
        boxed(reservations::unblock(&self.database, id, user))
    }

    fn reserved_page<'a>(
        &'a self,
        id: &'a SaleId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        boxed(reservations::reserved_page(
            &self.database,
            id,
            after,
            limit,
        ))
    }

    fn blocked_page<'a>(
        &'a self,
        id: &'a SaleId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        boxed(reservations::blocked_page(&self.database, id, after, limit))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        boxed(async { self.database.one(sql("SELECT 1")).await.map(drop) })
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.database.close())
    }
}

impl ClickStore for SqlStore {
    fn count_clicks<'a>(
        &'a self,
        batches: &'a [Batch],
        uniques: &'a UniquesBySlot,
        now_ms: u64,
    ) -> StoreFuture<'a, Vec<bool>> {
        boxed(link_clicks::count(&self.database, batches, uniques, now_ms))
    }

    fn click_points<'a>(
        &'a self,
        link: &'a LinkId,
        span: Span,
        from_ms: u64,
        until_ms: u64,
    ) -> StoreFuture<'a, Vec<Point>> {
        let db = &self.database;
        boxed(link_clicks::points(db, link, span, from_ms, until_ms))
    }

    fn click_parts<'a>(
        &'a self,
        link: &'a LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> StoreFuture<'a, Vec<PartCount>> {
        boxed(link_clicks::parts(&self.database, link, from_ms, until_ms))
    }

    fn clean_clicks(&self, now_ms: u64) -> StoreFuture<'_, u64> {
        boxed(link_clicks::clean(&self.database, now_ms))
    }
}
