//! Reservations and blocked users.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};
use weir_sale::sale::Sale;

use super::orders::user_id;
use super::sales::sale_id;
use super::{
    ReservationOutcome, SaleStore, Score, StoredReservation, UnscoredReservation, UserListStatus,
    Visitor, WithdrawOutcome, draws, user_list,
};
use crate::model::user_list::UserList;
use weir_origin_core::sql::{Database, Row, SqlError, Statement, Tx, retried, sql};

const INSERT_RESERVATION: &str = "
    INSERT INTO reservations
        (sale_id, user_id, at_ms, check_at_ms, address, agent, ticket, admitted, risk_state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending')";

const SELECT_UNSCORED: &str = "
    SELECT sale_id, user_id, at_ms, failed_checks, address, agent FROM reservations
    WHERE risk_state = 'pending' AND check_at_ms <= ?
    ORDER BY check_at_ms
    LIMIT ?";

const POSTPONE_CHECK: &str = "
    UPDATE reservations SET failed_checks = failed_checks + 1, check_at_ms = ?
    WHERE sale_id = ? AND user_id = ? AND risk_state = 'pending'";

const SET_SCORE: &str = "
    UPDATE reservations SET risk_state = 'scored', score = ?, address = '', agent = ''
    WHERE sale_id = ? AND user_id = ?";

const SELECT_CHECKED: &str = "
    SELECT user_id FROM reservations
    WHERE sale_id = ? AND user_id > ? AND risk_state = 'scored' AND admitted = 1
    ORDER BY user_id LIMIT ?";

const SELECT_RESERVATION: &str = "
    SELECT at_ms, risk_state, ticket, admitted, place FROM reservations
    WHERE sale_id = ? AND user_id = ?";

const DELETE_RESERVATION: &str = "
    DELETE FROM reservations WHERE sale_id = ? AND user_id = ?";

const COUNT_PENDING: &str = "
    SELECT COUNT(*) AS pending FROM reservations WHERE risk_state = 'pending'";

const INSERT_BLOCKED: &str = "
    INSERT INTO blocked_users (sale_id, user_id, reason, at_ms) VALUES (?, ?, ?, ?)";

const DELETE_BLOCKED: &str = "DELETE FROM blocked_users WHERE sale_id = ? AND user_id = ?";

const SELECT_RESERVED: &str = "
    SELECT user_id FROM reservations
    WHERE sale_id = ? AND user_id > ? AND admitted = 1 ORDER BY user_id LIMIT ?";

// Omits users who are blocked only by the risk check and exempt from it.
const SELECT_BLOCKED: &str = "
    SELECT user_id FROM blocked_users
    WHERE sale_id = ? AND user_id > ? AND (reason <> 'risk' OR NOT EXISTS (
        SELECT 1 FROM user_list
        WHERE user_list.user_id = blocked_users.user_id AND status = 'allowed'))
    ORDER BY user_id LIMIT ?";

const SELECT_ONE_RESERVED: &str = "
    SELECT 1 AS one FROM reservations WHERE sale_id = ? AND user_id = ? AND admitted = 1";

const SELECT_ONE_BLOCKED: &str = "
    SELECT 1 AS one FROM blocked_users WHERE sale_id = ? AND user_id = ?";

const SELECT_ONE_BLOCKED_BY_OPERATORS: &str = "
    SELECT 1 AS one FROM blocked_users WHERE sale_id = ? AND user_id = ? AND reason <> 'risk'";

/// The reason of blocks by the risk check.
const RISK: &str = "risk";

/// Reservations and blocked users.
#[derive(Clone, Copy, Debug)]
pub struct ReservationStore<'a>(pub(super) &'a SaleStore);

impl ReservationStore<'_> {
    /// Creates a reservation without data for the risk check.
    pub async fn reserve(
        self,
        id: &SaleId,
        user: &UserId,
        now_ms: u64,
    ) -> Result<ReservationOutcome, SqlError> {
        let visitor = Visitor::default();
        self.reserve_from(id, user, &visitor, now_ms).await
    }

    /// Creates a reservation, with the client's address and agent for the risk check.
    pub async fn reserve_from(
        self,
        id: &SaleId,
        user: &UserId,
        visitor: &Visitor,
        now_ms: u64,
    ) -> Result<ReservationOutcome, SqlError> {
        let Some(sale) = self.0.sale(id).await? else {
            return Ok(ReservationOutcome::Unknown);
        };
        let Some(window) = sale.fields.reservation else {
            return Ok(ReservationOutcome::NoReservation);
        };
        if now_ms < window.from_ms {
            let wait_ms = window.from_ms - now_ms;
            return Ok(ReservationOutcome::NotOpen { wait_ms });
        }
        if now_ms >= window.until_ms {
            return Ok(ReservationOutcome::Closed);
        }
        let listed = self.0.user_list().listed_user(user).await?;
        if listed.is_some_and(|listed| listed.status == UserListStatus::Blocked) {
            return Ok(ReservationOutcome::Blocked);
        }
        let new = NewReservation {
            sale: id,
            user,
            visitor,
            now_ms,
        };
        let is_new = match self.0.draws().draw(id).await? {
            None => retried(|| self.0.db.insert(new.insert("", true))).await?,
            Some(_) => match self.0.draws().enter(&new).await? {
                None => return Ok(ReservationOutcome::Closed),
                Some(is_new) => is_new,
            },
        };
        Ok(if is_new {
            ReservationOutcome::Now
        } else {
            ReservationOutcome::Again
        })
    }

    /// Returns a user's reservation.
    pub async fn reservation(
        self,
        id: &SaleId,
        user: &UserId,
    ) -> Result<Option<StoredReservation>, SqlError> {
        let select = of_user(sql(SELECT_RESERVATION), id, user);
        let row = self.0.db.one(select).await?;
        Ok(row.as_ref().map(reservation).transpose()?)
    }

    /// Cancels a user's reservation. If the sale requires reservations, the user's claims can no longer become orders.
    /// After the list of a draw is closed, the reservation stays.
    pub async fn cancel_reservation(
        self,
        id: &SaleId,
        user: &UserId,
    ) -> Result<WithdrawOutcome, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if !draws::lock_open(&mut tx, id).await?
                && draws::in_transaction(&mut tx, id).await?.is_some()
            {
                tx.rollback().await?;
                return Ok(WithdrawOutcome::Closed);
            }
            let delete = of_user(sql(DELETE_RESERVATION), id, user);
            let deleted = tx.execute(delete).await?;
            tx.commit().await?;
            Ok(match deleted {
                0 => WithdrawOutcome::Again,
                _ => WithdrawOutcome::Now,
            })
        };
        Ok(retried(once).await?)
    }

    /// Returns up to `limit` users without a score whose check is due, earliest due time first. A check is due at the
    /// time of the reservation, unless it is postponed.
    pub async fn reservations_to_score(
        self,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<UnscoredReservation>, SqlError> {
        let select = sql(SELECT_UNSCORED).number(now_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(unscored).collect::<Result<_, _>>()?)
    }

    /// Number of users without a score.
    pub async fn risk_pending(self) -> Result<u64, SqlError> {
        let row = self.0.db.one(sql(COUNT_PENDING)).await?;
        Ok(row.map_or(Ok(0), |row| row.number("pending"))?)
    }

    /// Whether the user has a reservation and, if the sale has a draw, has won.
    pub async fn is_admitted(self, id: &SaleId, user: &UserId) -> Result<bool, SqlError> {
        let reservation = self.reservation(id, user).await?;
        Ok(reservation.is_some_and(|reservation| reservation.is_admitted))
    }

    /// Counts a failed risk check; the next one is due at `check_at_ms`.
    pub async fn postpone_check(
        self,
        id: &SaleId,
        user: &UserId,
        check_at_ms: u64,
    ) -> Result<(), SqlError> {
        let postpone = || of_user(sql(POSTPONE_CHECK).number(check_at_ms), id, user);
        retried(|| self.0.db.execute(postpone())).await?;
        Ok(())
    }

    /// Stores a user's score, and blocks the user if `score.block`. Returns false if the user has no reservation.
    pub async fn set_score(
        self,
        id: &SaleId,
        user: &UserId,
        score: Score,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let set = of_user(sql(SET_SCORE).number(score.score), id, user);
            let there = tx.execute(set).await? == 1;
            if there && score.block {
                insert_blocked(&mut tx, id, user, RISK, now_ms).await?;
            }
            tx.commit().await?;
            Ok(there)
        };
        Ok(retried(once).await?)
    }

    /// Blocks a user. Returns false if the user is blocked already; the first reason stays.
    pub async fn block(
        self,
        id: &SaleId,
        user: &UserId,
        reason: &str,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let new = insert_blocked(&mut tx, id, user, reason, now_ms).await?;
            tx.commit().await?;
            Ok(new)
        };
        Ok(retried(once).await?)
    }

    /// Unblocks a user. Returns false if the user is not blocked.
    pub async fn unblock(self, id: &SaleId, user: &UserId) -> Result<bool, SqlError> {
        let delete = || of_user(sql(DELETE_BLOCKED), id, user);
        Ok(retried(|| self.0.db.execute(delete())).await? == 1)
    }

    /// Whether Redis should list a user. The reserved list contains only valid reservations; the blocked list also
    /// contains users in a cooldown.
    pub async fn is_listed(
        self,
        id: &SaleId,
        list: UserList,
        user: &UserId,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        match list {
            UserList::Blocked => self.0.cooldowns().is_barred(id, user, now_ms).await,
            UserList::Reserved if self.0.risk_fails_closed => {
                let reservation = self.reservation(id, user).await?;
                Ok(reservation.is_some_and(|existing| existing.is_checked && existing.is_admitted))
            }
            UserList::Reserved => {
                let row = self.0.db.one(select_listed(id, list, user)).await?;
                Ok(row.is_some())
            }
        }
    }

    /// Returns up to `limit` users with valid reservations, after `after`.
    pub async fn reserved_page(
        self,
        id: &SaleId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>, SqlError> {
        let select = match self.0.risk_fails_closed {
            true => SELECT_CHECKED,
            false => SELECT_RESERVED,
        };
        Ok(page(&self.0.db, sql(select), id, after, limit).await?)
    }

    /// Returns up to `limit` users blocked in this sale, after `after`.
    pub async fn blocked_page(
        self,
        id: &SaleId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>, SqlError> {
        Ok(page(&self.0.db, sql(SELECT_BLOCKED), id, after, limit).await?)
    }
}

/// A reservation to create.
pub(super) struct NewReservation<'a> {
    pub(super) sale: &'a SaleId,
    user: &'a UserId,
    visitor: &'a Visitor,
    now_ms: u64,
}

impl<'a> NewReservation<'a> {
    /// The insert statement. `ticket` is for a draw and otherwise empty; without a draw every reservation is admitted.
    pub(super) fn insert(&self, ticket: &'a str, is_admitted: bool) -> Statement<'a> {
        of_user(sql(INSERT_RESERVATION), self.sale, self.user)
            .number(self.now_ms)
            .number(self.now_ms)
            .text(&self.visitor.address)
            .text(&self.visitor.agent)
            .text(ticket)
            .number(is_admitted)
    }
}

fn select_listed<'a>(id: &'a SaleId, list: UserList, user: &'a UserId) -> Statement<'a> {
    let select = match list {
        UserList::Reserved => SELECT_ONE_RESERVED,
        UserList::Blocked => SELECT_ONE_BLOCKED,
    };
    of_user(sql(select), id, user)
}

/// Whether a user cannot buy from a sale. SQL checks it again, because Redis may have lost blocks and reservations.
pub(super) async fn is_barred(tx: &mut Tx, sale: &Sale, user: &UserId) -> Result<bool, Error> {
    let degrade = sale.degrade;
    let blocked = match user_list::user_status(tx, user).await? {
        // No degraded mode of a sale skips a global block.
        Some(UserListStatus::Blocked) => return Ok(true),
        Some(UserListStatus::Allowed) => SELECT_ONE_BLOCKED_BY_OPERATORS,
        None => SELECT_ONE_BLOCKED,
    };
    if !degrade.skip_risk {
        let blocked = of_user(sql(blocked), &sale.id, user);
        if tx.one(blocked).await?.is_some() {
            return Ok(true);
        }
    }
    if sale.reservation && !degrade.skip_reservation {
        let reserved = select_listed(&sale.id, UserList::Reserved, user);
        return Ok(tx.one(reserved).await?.is_none());
    }
    Ok(false)
}

fn reservation(row: &Row) -> Result<StoredReservation, Error> {
    Ok(StoredReservation {
        at_ms: row.number("at_ms")?,
        is_checked: row.text("risk_state")? == "scored",
        ticket: Some(row.text("ticket")?).filter(|ticket| !ticket.is_empty()),
        is_admitted: row.flag("admitted")?,
        place: row.maybe("place")?,
    })
}

fn unscored(row: &Row) -> Result<UnscoredReservation, Error> {
    Ok(UnscoredReservation {
        sale: sale_id(row, "sale_id")?,
        user: user_id(row)?,
        at_ms: row.number("at_ms")?,
        failed_checks: row.number("failed_checks")?,
        visitor: Visitor {
            address: row.text("address")?,
            agent: row.text("agent")?,
        },
    })
}

async fn insert_blocked(
    tx: &mut Tx,
    id: &SaleId,
    user: &UserId,
    reason: &str,
    now_ms: u64,
) -> Result<bool, Error> {
    let insert = of_user(sql(INSERT_BLOCKED), id, user);
    tx.insert(insert.text(reason).number(now_ms)).await
}

async fn page<'a>(
    db: &Database,
    select: Statement<'a>,
    id: &'a SaleId,
    after: Option<&'a UserId>,
    limit: usize,
) -> Result<Vec<UserId>, Error> {
    // User ids are never empty.
    let after = after.map_or("", UserId::as_str);
    let select = select.text(id.as_str()).text(after).number(limit);
    let rows = db.all(select).await?;
    rows.iter().map(user_id).collect()
}

fn of_user<'a>(statement: Statement<'a>, id: &'a SaleId, user: &'a UserId) -> Statement<'a> {
    statement.text(id.as_str()).text(user.as_str())
}
