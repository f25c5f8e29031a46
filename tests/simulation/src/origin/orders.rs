//! A claim becomes an order or is released permanently, and Redis follows: see `origin/sales/src/orders.rs`.

use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Deduction, FollowUpReply, ReleaseKind};
use weir_sale::site::fence_of;

use super::io::{Io, RedisError, SqlError};
use super::ledger::Ledger;
use super::verify::Verifier;
use crate::attempt::Attempt;
use crate::mutation::Mutation;
use crate::redis::OTHER_SALE;
use crate::sql::{ClaimName, Order, PayOutcome, PlaceOutcome, Shortage, Sql, Status};

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClaimOutcome {
    Ordered(Order),
    OrderedBefore(Order),
    Released,
    Short(Shortage),
    KeyReused,
}

/// Turns claims into orders.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
}

impl Orders {
    pub(super) async fn decide(
        &self,
        ticket: &Ticket,
        attempt: Option<Attempt>,
    ) -> Result<ClaimOutcome, SqlError> {
        let placed = match self.place(ticket, attempt).await {
            Err(SqlError) if self.io.makes(Mutation::LostCommitTakenForRollback) => {
                self.release(ticket, ReleaseKind::Decided).await;
                return Err(SqlError);
            }
            placed => placed?,
        };
        if matches!(
            placed,
            PlaceOutcome::Elsewhere(_) | PlaceOutcome::KeyReused { is_spare: true }
        ) {
            let existing = self.release_in_sql(ticket).await?;
            self.follow_claim(ticket, existing).await;
        }
        let PlaceOutcome::Short(shortage) = placed else {
            return Ok(self.follow_claim(ticket, placed).await);
        };
        if matches!(shortage, Shortage::UserCap | Shortage::Barred) {
            let existing = self.release_in_sql(ticket).await?;
            let outcome = self.follow_claim(ticket, existing).await;
            // With sites, the user's other orders may be at another site: Redis here has lost nothing. A correction
            // would delete an ended order that Redis has not followed, and its unit with it.
            if shortage == Shortage::UserCap && self.io.sites == 1 {
                // If this fails, the next claim is refused again.
                let _ = self.verifier().correct(ticket.shard, &ticket.user).await;
            }
            return Ok(match outcome {
                ClaimOutcome::Released => ClaimOutcome::Short(shortage),
                outcome => outcome,
            });
        }
        let own = ticket.clone();
        if self.io.sql(move |sql| sql.void(&own)).await? {
            self.release(ticket, ReleaseKind::Void).await;
            return Ok(ClaimOutcome::Short(shortage));
        }
        let placed = self.place(ticket, attempt).await?;
        Ok(self.follow_claim(ticket, placed).await)
    }

    /// The service for the sale whose keys are unreadable.
    pub(super) fn of_other_sale(&self) -> Self {
        let sale = SaleId::new(OTHER_SALE).expect("it is a name");
        let io = self.io.clone();
        Self {
            ledger: Ledger {
                io: io.clone(),
                sale,
            },
            io,
        }
    }

    fn verifier(&self) -> Verifier {
        Verifier {
            io: self.io.clone(),
            ledger: self.ledger.clone(),
        }
    }

    async fn place(
        &self,
        ticket: &Ticket,
        attempt: Option<Attempt>,
    ) -> Result<PlaceOutcome, SqlError> {
        let (ticket, now_ms) = (ticket.clone(), self.io.now_ms());
        let place = move |sql: &mut Sql| sql.place(&ticket, attempt, now_ms);
        self.io.sql(place).await
    }

    async fn release_in_sql(&self, ticket: &Ticket) -> Result<PlaceOutcome, SqlError> {
        let ticket = ticket.clone();
        let existing = self.io.sql(move |sql| sql.release(&ticket)).await?;
        Ok(existing.unwrap_or(PlaceOutcome::Released { is_void: false }))
    }

    /// Ends a claim whose deadline has passed.
    pub(super) async fn end_overdue(&self, ticket: &Ticket) -> Result<(), SqlError> {
        if self.io.makes(Mutation::ReleaseWithoutOutcome) {
            self.release(ticket, ReleaseKind::Decided).await;
            return Ok(());
        }
        let own = ticket.clone();
        let release = move |sql: &mut Sql| {
            let existing = sql.release(&own);
            if existing.is_none() {
                sql.ended.push(own);
            }
            existing
        };
        let existing = self.io.sql(release).await?;
        let placed = existing.unwrap_or(PlaceOutcome::Released { is_void: false });
        self.follow_claim(ticket, placed).await;
        Ok(())
    }

    pub(super) async fn pay(&self, name: ClaimName, user: UserId) -> Result<PayOutcome, SqlError> {
        let now_ms = self.io.now_ms();
        let paid = self.io.sql(move |sql| sql.pay(name, &user, now_ms)).await?;
        if let PayOutcome::Done(order) = &paid {
            self.follow(order).await;
        }
        Ok(paid)
    }

    pub(super) async fn cancel(
        &self,
        name: ClaimName,
        user: UserId,
    ) -> Result<Option<Order>, SqlError> {
        let cancelled = self.io.sql(move |sql| sql.cancel(name, &user)).await?;
        if let Some(order) = &cancelled {
            self.follow(order).await;
        }
        Ok(cancelled)
    }

    /// Refunds one order of a user: see `origin/sales/src/store/order_admin.rs`.
    pub(super) async fn refund(&self, user: UserId) -> Result<(), SqlError> {
        let refunded = self.io.sql(move |sql| sql.refund_one_of(&user)).await?;
        if let Some(order) = &refunded {
            self.follow(order).await;
        }
        Ok(())
    }

    async fn follow_claim(&self, ticket: &Ticket, placed: PlaceOutcome) -> ClaimOutcome {
        match placed {
            PlaceOutcome::New(order) => {
                self.follow(&order).await;
                ClaimOutcome::Ordered(order)
            }
            PlaceOutcome::Again(order) | PlaceOutcome::Elsewhere(order) => {
                self.follow(&order).await;
                ClaimOutcome::OrderedBefore(order)
            }
            PlaceOutcome::Released { is_void: true } => {
                self.release(ticket, ReleaseKind::Void).await;
                ClaimOutcome::Released
            }
            PlaceOutcome::Released { is_void: false } | PlaceOutcome::NameTaken => {
                self.release(ticket, ReleaseKind::Decided).await;
                ClaimOutcome::Released
            }
            PlaceOutcome::Short(shortage) => ClaimOutcome::Short(shortage),
            PlaceOutcome::KeyReused { .. } => ClaimOutcome::KeyReused,
        }
    }

    /// Updates an order in Redis. A failure has no effect: it is repeated later.
    pub(super) async fn follow(&self, order: &Order) {
        if !self.is_here(order).await || self.bring(order).await.is_err() {
            return;
        }
        if order.status == Status::Unpaid {
            return;
        }
        let (name, status) = (order.name, order.status);
        let recorded = self.io.sql(move |sql| sql.mark_followed(name, status));
        // If this fails, it is repeated.
        let _ = recorded.await;
    }

    /// Whether Redis here follows the order: its shard belongs to this site's fence, which is not closed. With one site,
    /// no question.
    ///
    /// A unit that a closed fence gets back has moved to another fence in SQL. In Redis here, a buyer
    /// would claim it, and SQL would refuse the claim. The order has changed in SQL before this reads the fence, so a fence that closes later has no unit of it:
    /// a drain ends only after Redis has followed the change, and given the unit away.
    async fn is_here(&self, order: &Order) -> bool {
        let (site, shard) = (self.io.site, order.name.0);
        if self.io.sites == 1 {
            return true;
        }
        let follows_closed = self.io.makes(Mutation::ClosedFenceFollowed);
        let is_here = move |sql: &mut Sql| {
            let is_own = sql.fence_at(site).fence == fence_of(shard);
            is_own && (follows_closed || !sql.is_closed(shard))
        };
        self.io.sql(is_here).await.unwrap_or(false)
    }

    /// Updates Redis to an order's state in SQL; an error if Redis has lost the order's shard.
    async fn bring(&self, order: &Order) -> Result<(), RedisError> {
        let followed = match order.status {
            Status::Unpaid => {
                if !self.io.makes(Mutation::SettleForgotten) {
                    let deduction = match order.is_deducted {
                        true => Deduction::AtOrder,
                        false => Deduction::AtPayment,
                    };
                    self.ledger.settle(order, deduction).await?;
                }
                FollowUpReply::Done
            }
            Status::Paid => {
                self.ledger.settle(order, Deduction::AtOrder).await?;
                self.ledger.charge(order).await?
            }
            Status::Cancelled | Status::Expired => self.ledger.cancel(order).await?,
        };
        match followed {
            FollowUpReply::Cold => Err(RedisError),
            FollowUpReply::Done | FollowUpReply::Nothing => Ok(()),
        }
    }

    async fn release(&self, ticket: &Ticket, kind: ReleaseKind) {
        // If this fails, the reconciler finds the claim.
        let _ = self.ledger.release(ticket, kind).await;
    }
}
