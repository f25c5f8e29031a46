//! Decides claims and orders: a claim becomes an order or is permanently released; an order is paid, cancelled or
//! expires.
//!
//! SQL decides, Redis follows. If the step from SQL to Redis is lost, it is repeated: the reconciler finds open claims,
//! and SQL lists the ended and paid orders that Redis may not have followed.

use std::future::Future;
use std::sync::Arc;

use opentelemetry::trace::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, info, warn};
use weir_base::id::UserId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Deduction, FollowUpReply, ReleaseKind};
use weir_sale::sale::Sale;
use weir_sale::shard::home_shard;

use super::ledger::{Ledger, UserList};
use super::metrics::SaleMetrics;
use super::store::{
    CancelOutcome, Cooldown, HoldRules, OrderOutcome, OrderRequest, OrderStatus, PaymentEvent,
    PaymentNoted, Refund, SaleStore, Shortage, StoredOrder,
};
use super::verify::Verifier;
use crate::jobs::catalogue::ChangedSales;
use crate::jobs::list_changes::ListChange;
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::{ConcurrencyLimit, SqlError};
use weir_origin_core::unavailable::Unavailable;

/// Concurrency limits for SQL calls of orders, payments and reservations.
#[derive(Clone, Copy, Debug)]
pub struct SqlLimits {
    /// Maximum number of running calls.
    pub working_max: usize,
    /// Maximum number of waiting calls. Beyond it, requests are refused at once.
    pub waiting_max: usize,
}

impl Default for SqlLimits {
    fn default() -> Self {
        Self {
            working_max: 32,
            waiting_max: 1024,
        }
    }
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The claim is an order now.
    Ordered(StoredOrder),
    /// The claim was an order already.
    OrderedBefore(StoredOrder),
    /// The idempotency key was used with a different request.
    KeyReused,
    /// The claim was released before and never becomes an order; its user may claim again.
    Released,
    /// SQL has no unit for the claim; it is released.
    Short(Shortage),
}

impl ClaimOutcome {
    /// Label in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Ordered(_) => "ordered",
            Self::OrderedBefore(_) => "ordered_before",
            Self::KeyReused => "key_reused",
            Self::Released => "released",
            Self::Short(Shortage::SoldOut) => "sold_out",
            Self::Short(Shortage::UnknownSale) => "unknown_sale",
            Self::Short(Shortage::UserCap) => "user_cap",
            Self::Short(Shortage::GroupCap) => "group_cap",
            Self::Short(Shortage::CoolingDown { .. }) => "cooling_down",
            Self::Short(Shortage::UnpaidHolds) => "unpaid_holds",
            Self::Short(Shortage::Barred) => "barred",
        }
    }
}

/// Turns claims into orders.
#[derive(Clone, Debug)]
pub struct Orders {
    store: SaleStore,
    ledger: Ledger,
    changed: ChangedSales,
    metrics: SaleMetrics,
    holds: HoldRules,
    shed: Arc<ConcurrencyLimit>,
    tasks: TaskTracker,
}

impl Orders {
    pub(super) fn new(
        store: SaleStore,
        ledger: Ledger,
        changed: ChangedSales,
        metrics: SaleMetrics,
        limits: SqlLimits,
    ) -> Self {
        Self {
            store,
            ledger,
            changed,
            metrics,
            holds: HoldRules::default(),
            shed: Arc::new(ConcurrencyLimit::new(
                limits.working_max,
                limits.waiting_max,
            )),
            tasks: TaskTracker::new(),
        }
    }

    /// Sets the rules for unpaid holds.
    #[must_use]
    pub(super) fn with_holds(mut self, rules: HoldRules) -> Self {
        self.holds = rules;
        self
    }

    /// Decides a claim in a separate task, which completes even if the client disconnects, so that no unit is lost
    /// between SQL and Redis.
    ///
    /// The task fails with [`SqlError`] when SQL does not answer; then nothing was released.
    ///
    /// If `requested` fails, because the request is invalid or does not match the sale's rules, the claim is released
    /// unless it was decided before. The result is then the error of `requested`.
    pub fn start<E: Send + 'static>(
        &self,
        ticket: Ticket,
        requested: impl Future<Output = Result<OrderRequest, E>> + Send + 'static,
    ) -> JoinHandle<Result<Result<ClaimOutcome, E>, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            Ok(match requested.await {
                Ok(requested) => Ok(orders.decide(&ticket, &requested).await?),
                Err(unread) => {
                    orders.sql(orders.give_back(&ticket)).await?;
                    Err(unread)
                }
            })
        })
    }

    /// Applies a provider's payment event in a separate task, like [`Orders::start`]. If the order is paid, Redis
    /// follows.
    pub fn note_payment(&self, event: PaymentEvent) -> JoinHandle<Result<PaymentNoted, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            let call = orders.store.provider().note_payment(&event, now_ms());
            let recorded = orders.sql(call).await?;
            if let PaymentNoted::Noted(_, order) = &recorded
                && order.status == OrderStatus::Paid
            {
                orders.follow(order).await;
            }
            Ok(recorded)
        })
    }

    /// Cancels an order of `user` in a separate task, like [`Orders::start`].
    pub fn cancel(
        &self,
        order: String,
        user: UserId,
    ) -> JoinHandle<Result<CancelOutcome, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            let call = orders
                .store
                .payments()
                .cancel(&order, &user, orders.holds, now_ms());
            let cancelled = orders.sql(call).await?;
            if let CancelOutcome::Now(order) | CancelOutcome::Again(order) = &cancelled {
                orders.follow(order).await;
            }
            Ok(cancelled)
        })
    }

    /// Cancels an order for an operator in a separate task, like [`Orders::start`].
    pub fn cancel_any(&self, order: String) -> JoinHandle<Result<CancelOutcome, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            let cancelled = orders.store.payments().cancel_any(&order, now_ms()).await?;
            if let CancelOutcome::Now(order) | CancelOutcome::Again(order) = &cancelled {
                orders.follow(order).await;
            }
            Ok(cancelled)
        })
    }

    /// Refunds a paid order in a separate task, like [`Orders::start`]: ends it, and marks its payment as due for
    /// refund.
    pub fn refund(&self, order: String) -> JoinHandle<Result<Refund, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            let refund = orders.store.order_admin().refund(&order, now_ms()).await?;
            if let Refund::Now(order, _) | Refund::Again(order, _) = &refund {
                orders.follow(order).await;
            }
            Ok(refund)
        })
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let work = work.instrument(Span::current());
        self.tasks.spawn(work.with_current_context())
    }

    /// Runs a public SQL call under the concurrency limit.
    ///
    /// # Errors
    /// [`SqlError::Overloaded`] when too many calls wait, otherwise the errors of the call.
    pub async fn sql<T>(
        &self,
        call: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let start = std::time::Instant::now();
        let answer = self.shed.run(call).await;
        if matches!(answer, Err(SqlError::Overloaded)) {
            self.metrics.shed.inc();
        } else {
            self.metrics
                .sql_seconds
                .observe(start.elapsed().as_secs_f64());
        }
        answer
    }

    /// Number of running tasks.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until all tasks have ended. Call it when no more can start.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn decide(
        &self,
        ticket: &Ticket,
        request: &OrderRequest,
    ) -> Result<ClaimOutcome, SqlError> {
        let outcome = self.outcome(ticket, request).await?;
        self.metrics.order(outcome.label());
        Ok(outcome)
    }

    async fn outcome(
        &self,
        ticket: &Ticket,
        request: &OrderRequest,
    ) -> Result<ClaimOutcome, SqlError> {
        let placed = self.sql(self.store.claims().place_asked(ticket, request, now_ms()));
        let placed = placed.await?;
        if matches!(
            placed,
            OrderOutcome::Elsewhere(_) | OrderOutcome::KeyReused { is_spare: true }
        ) {
            self.give_back(ticket).await?;
        }
        let OrderOutcome::Short(shortage) = placed else {
            return Ok(self.follow_claim(ticket, placed).await);
        };
        if shortage.is_the_users() {
            // The unit exists, but not for this user. Release it for others.
            let existing = self.store.claims().release(ticket, now_ms()).await?;
            let placed = existing.unwrap_or(OrderOutcome::Released { void: false });
            let outcome = self.follow_claim(ticket, placed).await;
            self.remind(ticket, shortage).await;
            return Ok(match outcome {
                ClaimOutcome::Released => ClaimOutcome::Short(shortage),
                outcome => outcome,
            });
        }
        if self.store.claims().void(ticket, now_ms()).await? {
            warn!(claim = %ticket.claim_id(), ?shortage, "claim refused: SQL has no unit left for it");
            self.release(ticket, ReleaseKind::Void).await;
            return Ok(ClaimOutcome::Short(shortage));
        }
        // A concurrent request with the same claim has decided it meanwhile.
        let placed = self
            .store
            .claims()
            .place_asked(ticket, request, now_ms())
            .await?;
        Ok(self.follow_claim(ticket, placed).await)
    }

    /// Releases a claim that is not needed, unless it was decided before, so that others get its unit.
    async fn give_back(&self, ticket: &Ticket) -> Result<(), SqlError> {
        let existing = self.store.claims().release(ticket, now_ms()).await?;
        let placed = existing.unwrap_or(OrderOutcome::Released { void: false });
        self.follow_claim(ticket, placed).await;
        Ok(())
    }

    /// Ends a claim whose deadline has passed: releases it permanently unless it was decided before. Redis follows.
    ///
    /// # Errors
    /// When SQL does not answer; then nothing was released.
    pub async fn end_overdue(&self, ticket: &Ticket) -> Result<ClaimOutcome, SqlError> {
        let existing = self.store.claims().release(ticket, now_ms()).await?;
        let placed = existing.unwrap_or(OrderOutcome::Released { void: false });
        let outcome = self.follow_claim(ticket, placed).await;
        self.metrics.claim_reconciled(outcome.label());
        Ok(outcome)
    }

    /// Writes a user's data to Redis again: Redis has lost it, or it would not have granted the claim.
    async fn remind(&self, ticket: &Ticket, shortage: Shortage) {
        let reply = match shortage {
            Shortage::Barred => self.remind_of_lists(ticket).await,
            // The user's other orders may be at another site: Redis here has lost nothing. A correction would delete an
            // ended order that Redis has not followed, and its unit with it.
            _ if self.store.site().is_some() => return,
            _ => {
                let verifier = Verifier::new(self.store.clone(), self.ledger.clone());
                let users = std::slice::from_ref(&ticket.user);
                let reply = verifier.correct(&ticket.sale, ticket.shard, users).await;
                reply.map(drop)
            }
        };
        if let Err(error) = reply {
            warn!(claim = %ticket.claim_id(), %error, "cannot store the user's claim in Redis again");
        }
    }

    async fn remind_of_lists(&self, ticket: &Ticket) -> Result<(), Unavailable> {
        let (id, user) = (&ticket.sale, &ticket.user);
        let Some(stored) = self.store.sale(id).await? else {
            return Ok(());
        };
        for list in [UserList::Blocked, UserList::Reserved] {
            let is_listed = self
                .store
                .reservations()
                .is_listed(id, list, user, now_ms())
                .await?;
            self.write_list(&stored.sale, list, user, is_listed).await?;
        }
        Ok(())
    }

    /// Updates Redis to SQL's decision about a claim.
    async fn follow_claim(&self, ticket: &Ticket, placed: OrderOutcome) -> ClaimOutcome {
        match placed {
            OrderOutcome::New(order) => {
                info!(claim = %order.id, units = order.units, "ordered");
                self.follow(&order).await;
                ClaimOutcome::Ordered(order)
            }
            OrderOutcome::Again(order) | OrderOutcome::Elsewhere(order) => {
                self.follow(&order).await;
                ClaimOutcome::OrderedBefore(order)
            }
            OrderOutcome::Released { void: true } => {
                self.release(ticket, ReleaseKind::Void).await;
                ClaimOutcome::Released
            }
            // The name is taken by another user's claim: SQL can never store an order of this one, so release it.
            OrderOutcome::Released { void: false } | OrderOutcome::NameTaken => {
                self.release(ticket, ReleaseKind::Decided).await;
                ClaimOutcome::Released
            }
            OrderOutcome::Short(shortage) => ClaimOutcome::Short(shortage),
            OrderOutcome::KeyReused { .. } => ClaimOutcome::KeyReused,
        }
    }

    /// Updates Redis to an order's status in SQL, and queues its sale for the catalogue. Repeating it changes nothing.
    /// A failure does not affect the client, because the update is retried later.
    pub async fn follow(&self, order: &StoredOrder) {
        self.changed.note(&order.sale);
        if let Err(error) = self.try_follow(order).await {
            warn!(order = %order.id, status = order.status.label(), %error, "cannot update Redis; the reconciler retries");
        }
    }

    /// Like [`Orders::follow`], but returns the error.
    ///
    /// # Errors
    /// When Redis was not updated.
    pub(super) async fn try_follow(&self, order: &StoredOrder) -> Result<(), NotFollowed> {
        // A new order returns no unit, so its fence does not matter, and an admitted request needs no further call.
        if order.status != OrderStatus::Unpaid && !self.store.follows(order.shard).await? {
            return Ok(());
        }
        if matches!(order.status, OrderStatus::Expired | OrderStatus::Cancelled) {
            // Block the user first, or that user would learn first that the unit is free again.
            self.bar(order).await?;
        }
        follow_order(&self.ledger, order).await?;
        if order.status != OrderStatus::Unpaid
            && let Err(error) = self.store.mark_followed(&order.id, order.status).await
        {
            warn!(order = %order.id, %error, "cannot record in SQL that Redis is up to date");
        }
        Ok(())
    }

    /// See [`Ledger::changed_lists`].
    pub(super) fn changed_lists(&self) -> Vec<ListChange> {
        self.ledger.changed_lists()
    }

    /// Writes a user's list membership to Redis again.
    pub(super) async fn write_list(
        &self,
        sale: &Sale,
        list: UserList,
        user: &UserId,
        is_listed: bool,
    ) -> Result<(), CallError> {
        let users = std::slice::from_ref(user);
        match is_listed {
            true => self.ledger.write_users(sale, list, users, None).await,
            false => self.ledger.erase_user(sale, list, user).await,
        }
    }

    /// Blocks the user of an unpaid hold in Redis, as long as SQL blocks the user.
    async fn bar(&self, order: &StoredOrder) -> Result<(), Unavailable> {
        let (sale, user) = (&order.sale, &order.user);
        // With sites, SQL alone knows cooldowns: a block in one Redis would not end with the cooldown.
        if self.store.site().is_some() {
            return Ok(());
        }
        if self
            .store
            .cooldowns()
            .is_barred(sale, user, now_ms())
            .await?
        {
            self.ledger.bar(sale, order.shard, user).await?;
        }
        Ok(())
    }

    /// Ends a cooldown in Redis, unless the user is still blocked.
    ///
    /// # Errors
    /// When SQL or Redis does not answer; the jobs retry.
    pub async fn end_cooldown(&self, over: &Cooldown) -> Result<(), Unavailable> {
        let (sale, user) = (&over.sale, &over.user);
        let here = self.store.sites().here().await?;
        let shard = here.first_shard() + home_shard(user, over.shards);
        if !self
            .store
            .cooldowns()
            .is_barred(sale, user, now_ms())
            .await?
        {
            self.ledger.unblock_user(sale, shard, user).await?;
            // Check again: if the user was blocked since the first check, restore the block in Redis.
            if self
                .store
                .cooldowns()
                .is_barred(sale, user, now_ms())
                .await?
            {
                self.ledger.bar(sale, shard, user).await?;
            }
        }
        Ok(self.store.cooldowns().end_cooldown(over).await?)
    }

    /// Releases a claim in Redis. A failure is retried later, as in [`Orders::follow`].
    async fn release(&self, ticket: &Ticket, kind: ReleaseKind) {
        if let Err(error) = self.ledger.release(ticket, kind).await {
            warn!(claim = %ticket.claim_id(), %error, "cannot release the claim");
        }
    }
}

/// Why Redis was not updated to an order's status.
#[derive(Debug, thiserror::Error)]
pub enum NotFollowed {
    /// Redis did not answer.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// SQL or Redis did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// SQL did not answer.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Redis has lost the order's shard; the order is updated with its rebuild.
    #[error("Redis has lost the order's shard, and it is not rebuilt yet")]
    Cold,
}

/// Updates Redis to an order's status in SQL.
///
/// # Errors
/// When Redis does not answer, or has lost the order's shard.
pub async fn follow_order(ledger: &Ledger, order: &StoredOrder) -> Result<(), NotFollowed> {
    let followed = match order.status {
        OrderStatus::Unpaid => {
            let deduction = match order.deducted {
                true => Deduction::AtOrder,
                false => Deduction::AtPayment,
            };
            // A cold shard has no claim to settle, and its rebuild restores the order.
            ledger.settle(order, deduction).await?;
            FollowUpReply::Done
        }
        OrderStatus::Paid => {
            // Settle an open claim with its units, and charge an order that is deducted at payment.
            ledger.settle(order, Deduction::AtOrder).await?;
            ledger.charge(order).await?
        }
        OrderStatus::Cancelled | OrderStatus::Expired => ledger.cancel(order).await?,
    };
    match followed {
        FollowUpReply::Cold => Err(NotFollowed::Cold),
        FollowUpReply::Done | FollowUpReply::Nothing => Ok(()),
    }
}
