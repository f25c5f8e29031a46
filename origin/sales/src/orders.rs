//! A claim becomes an order or is released for good; an order is paid, cancelled or expires.
//!
//! SQL decides, Redis follows. If a step between the two is lost, it is found again: the reconciler finds open
//! claims, and SQL lists the ended and paid orders that Redis may not have followed.

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

/// How many calls on SQL orders, payments and reservations may run at once, and how many more may wait.
#[derive(Clone, Copy, Debug)]
pub struct SqlLimits {
    /// Running.
    pub working_max: usize,
    /// Waiting. Beyond it, requests are refused at once.
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
    /// It is an order now.
    Ordered(StoredOrder),
    /// It was an order already.
    OrderedBefore(StoredOrder),
    /// Its attempt's key came with another request before.
    KeyReused,
    /// It was released before and never becomes an order; its user may claim again.
    Released,
    /// There was no unit for it: it is released.
    Short(Shortage),
}

impl ClaimOutcome {
    /// Its word in metrics.
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

    /// The same, with these rules for holds that are not paid.
    #[must_use]
    pub(super) fn with_holds(mut self, rules: HoldRules) -> Self {
        self.holds = rules;
        self
    }

    /// Decides the claim's outcome in a task of its own, which ends even if the client hangs up: no unit is left between
    /// SQL and Redis.
    ///
    /// The task fails with [`SqlError`] when SQL does not answer; then nothing was released.
    ///
    /// If what the request says cannot be read, or is not what its sale wants, the claim is given up, unless it was decided before: then the answer is
    /// the reason.
    pub fn start<E: Send + 'static>(
        &self,
        ticket: Ticket,
        asked: impl Future<Output = Result<OrderRequest, E>> + Send + 'static,
    ) -> JoinHandle<Result<Result<ClaimOutcome, E>, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            Ok(match asked.await {
                Ok(asked) => Ok(orders.decide(&ticket, &asked).await?),
                Err(unread) => {
                    orders.sql(orders.give_back(&ticket)).await?;
                    Err(unread)
                }
            })
        })
    }

    /// Notes what a provider says of a payment, in a task of its own as [`Orders::start`] does. If its order is paid,
    /// Redis follows.
    pub fn note_payment(&self, event: PaymentEvent) -> JoinHandle<Result<PaymentNoted, SqlError>> {
        let orders = self.clone();
        self.spawn(async move {
            let call = orders.store.provider().note_payment(&event, now_ms());
            let noted = orders.sql(call).await?;
            if let PaymentNoted::Noted(_, order) = &noted
                && order.status == OrderStatus::Paid
            {
                orders.follow(order).await;
            }
            Ok(noted)
        })
    }

    /// Takes an order of `user` back, in a task of its own as [`Orders::start`] does.
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

    /// Takes an order back for an operator, in a task of its own as [`Orders::start`] does.
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

    /// Ends a paid order, whose money is then due for refund, in a task of its own as [`Orders::start`] does.
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

    /// Makes a call on SQL for the public: it waits in line, or is refused at once.
    ///
    /// # Errors
    /// [`SqlError::Overloaded`] when the line is full; else those of the call.
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

    /// How many claims are being decided.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until none is being decided. To be called when no more can start.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn decide(
        &self,
        ticket: &Ticket,
        asked: &OrderRequest,
    ) -> Result<ClaimOutcome, SqlError> {
        let outcome = self.outcome(ticket, asked).await?;
        self.metrics.order(outcome.label());
        Ok(outcome)
    }

    async fn outcome(
        &self,
        ticket: &Ticket,
        asked: &OrderRequest,
    ) -> Result<ClaimOutcome, SqlError> {
        let placed = self.sql(self.store.claims().place_asked(ticket, asked, now_ms()));
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
            // The unit is there, only not for this user: another may have it.
            let known = self.store.claims().release(ticket, now_ms()).await?;
            let placed = known.unwrap_or(OrderOutcome::Released { void: false });
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
        // The same claim, sent twice, got its outcome in the other request meanwhile.
        let placed = self
            .store
            .claims()
            .place_asked(ticket, asked, now_ms())
            .await?;
        Ok(self.follow_claim(ticket, placed).await)
    }

    /// Ends a claim that is not needed, unless its outcome was decided before: its unit is there for others.
    async fn give_back(&self, ticket: &Ticket) -> Result<(), SqlError> {
        let known = self.store.claims().release(ticket, now_ms()).await?;
        let placed = known.unwrap_or(OrderOutcome::Released { void: false });
        self.follow_claim(ticket, placed).await;
        Ok(())
    }

    /// Ends a claim whose deadline has passed: unless its outcome is decided already, it is released for
    /// good. Redis follows.
    ///
    /// # Errors
    /// When SQL does not answer; then nothing was released.
    pub async fn end_overdue(&self, ticket: &Ticket) -> Result<ClaimOutcome, SqlError> {
        let known = self.store.claims().release(ticket, now_ms()).await?;
        let placed = known.unwrap_or(OrderOutcome::Released { void: false });
        let outcome = self.follow_claim(ticket, placed).await;
        self.metrics.claim_reconciled(outcome.label());
        Ok(outcome)
    }

    /// Redis has forgotten what it knew of a user, or it would not have granted the claim: it is told again.
    async fn remind(&self, ticket: &Ticket, shortage: Shortage) {
        let told = match shortage {
            Shortage::Barred => self.remind_of_lists(ticket).await,
            _ => {
                let verifier = Verifier::new(self.store.clone(), self.ledger.clone());
                let users = std::slice::from_ref(&ticket.user);
                let told = verifier.correct(&ticket.sale, ticket.shard, users).await;
                told.map(drop)
            }
        };
        if let Err(error) = told {
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

    /// Has Redis follow what SQL has decided of a claim.
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
            // A taken name: SQL can never hold an order of this claim, which is a release, too.
            OrderOutcome::Released { void: false } | OrderOutcome::NameTaken => {
                self.release(ticket, ReleaseKind::Decided).await;
                ClaimOutcome::Released
            }
            OrderOutcome::Short(shortage) => ClaimOutcome::Short(shortage),
            OrderOutcome::KeyReused { .. } => ClaimOutcome::KeyReused,
        }
    }

    /// Has Redis follow an order to where it stands in SQL, and gateways learn what is left of its sale. Doing it again
    /// changes nothing, and a failure changes nothing for the client: it is done again later.
    pub async fn follow(&self, order: &StoredOrder) {
        self.changed.note(&order.sale);
        if let Err(error) = self.try_follow(order).await {
            warn!(order = %order.id, status = order.status.label(), %error, "cannot update Redis; the reconciler retries");
        }
    }

    /// As [`Orders::follow`], for whoever wants to know.
    ///
    /// # Errors
    /// When Redis did not follow.
    pub(super) async fn try_follow(&self, order: &StoredOrder) -> Result<(), NotFollowed> {
        if matches!(order.status, OrderStatus::Expired | OrderStatus::Cancelled) {
            // First, or the user would be the first to hear that the unit is free again.
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

    /// Writes whether a user is on a list, once more.
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

    /// Has gateways refuse the user of a hold that was not paid, as long as SQL says so.
    async fn bar(&self, order: &StoredOrder) -> Result<(), Unavailable> {
        let (sale, user) = (&order.sale, &order.user);
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

    /// Lets gateways know that a cooldown is over.
    ///
    /// # Errors
    /// When SQL or Redis does not answer: then it is done again.
    pub async fn end_cooldown(&self, over: &Cooldown) -> Result<(), Unavailable> {
        let (sale, user) = (&over.sale, &over.user);
        let shard = home_shard(user, over.shards);
        if !self
            .store
            .cooldowns()
            .is_barred(sale, user, now_ms())
            .await?
        {
            self.ledger.unblock_user(sale, shard, user).await?;
            // Blocked, or in another cooldown, since SQL was asked: the unblocking must not outlast that.
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

    /// As with [`Orders::follow`].
    async fn release(&self, ticket: &Ticket, kind: ReleaseKind) {
        if let Err(error) = self.ledger.release(ticket, kind).await {
            warn!(claim = %ticket.claim_id(), %error, "cannot release the claim");
        }
    }
}

/// Why Redis has not followed an order.
#[derive(Debug, thiserror::Error)]
pub enum NotFollowed {
    /// It did not answer.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// SQL or Redis did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It has lost the order's shard: it follows when that is rebuilt.
    #[error("Redis has lost the order's shard, and it is not rebuilt yet")]
    Cold,
}

/// Brings Redis to where an order stands in SQL.
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
            // A cold shard has no claim to settle, and gets the order when it is rebuilt.
            ledger.settle(order, deduction).await?;
            FollowUpReply::Done
        }
        OrderStatus::Paid => {
            // An open claim is settled with its units; a deferred order is charged for them.
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
