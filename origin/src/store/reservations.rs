//! Who has reserved, and who is blocked.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::database::{Database, Row, Statement, Tx, retried, sql};
use super::orders::user_id;
use super::sales::{self, sale_id};
use super::{Reserved, Score, Unscored};

const INSERT_RESERVATION: &str = "
    INSERT INTO reservations (sale_id, user_id, at_ms, check_at_ms, risk_state)
    VALUES (?, ?, ?, ?, 'pending')";

const SELECT_UNSCORED: &str = "
    SELECT sale_id, user_id, at_ms, failed_checks FROM reservations
    WHERE risk_state = 'pending' AND check_at_ms <= ?
    ORDER BY check_at_ms
    LIMIT ?";

const POSTPONE_CHECK: &str = "
    UPDATE reservations SET failed_checks = failed_checks + 1, check_at_ms = ?
    WHERE sale_id = ? AND user_id = ? AND risk_state = 'pending'";

const SET_SCORE: &str = "
    UPDATE reservations SET risk_state = 'scored', score = ? WHERE sale_id = ? AND user_id = ?";

const INSERT_BLOCKED: &str = "
    INSERT INTO blocked_users (sale_id, user_id, reason, at_ms) VALUES (?, ?, ?, ?)";

const DELETE_BLOCKED: &str = "DELETE FROM blocked_users WHERE sale_id = ? AND user_id = ?";

const SELECT_RESERVED: &str = "
    SELECT user_id FROM reservations WHERE sale_id = ? AND user_id > ? ORDER BY user_id LIMIT ?";

const SELECT_BLOCKED: &str = "
    SELECT user_id FROM blocked_users WHERE sale_id = ? AND user_id > ? ORDER BY user_id LIMIT ?";

/// The reason of users whom the risk check has blocked.
const RISK: &str = "risk";

pub(super) async fn reserve(
    db: &Database,
    id: &SaleId,
    user: &UserId,
    now_ms: u64,
) -> Result<Reserved, Error> {
    let Some(sale) = sales::one(db, id).await? else {
        return Ok(Reserved::Unknown);
    };
    let Some(window) = sale.reservation else {
        return Ok(Reserved::NoReservation);
    };
    if now_ms < window.from_ms {
        let wait_ms = window.from_ms - now_ms;
        return Ok(Reserved::NotOpen { wait_ms });
    }
    if now_ms >= window.until_ms {
        return Ok(Reserved::Closed);
    }
    let insert = || {
        of_user(sql(INSERT_RESERVATION), id, user)
            .number(now_ms)
            .number(now_ms)
    };
    let new = retried(|| db.insert(insert())).await?;
    Ok(if new { Reserved::Now } else { Reserved::Again })
}

pub(super) async fn to_score(
    db: &Database,
    now_ms: u64,
    limit: usize,
) -> Result<Vec<Unscored>, Error> {
    let select = sql(SELECT_UNSCORED).number(now_ms).number(limit);
    let rows = db.all(select).await?;
    rows.iter().map(unscored).collect()
}

fn unscored(row: &Row) -> Result<Unscored, Error> {
    Ok(Unscored {
        sale: sale_id(row, "sale_id")?,
        user: user_id(row)?,
        at_ms: row.number("at_ms")?,
        failed_checks: row.number("failed_checks")?,
    })
}

pub(super) async fn postpone_check(
    db: &Database,
    id: &SaleId,
    user: &UserId,
    check_at_ms: u64,
) -> Result<(), Error> {
    let postpone = || of_user(sql(POSTPONE_CHECK).number(check_at_ms), id, user);
    retried(|| db.execute(postpone())).await.map(drop)
}

pub(super) async fn set_score(
    db: &Database,
    id: &SaleId,
    user: &UserId,
    score: Score,
    now_ms: u64,
) -> Result<bool, Error> {
    let once = || async {
        let mut tx = db.begin().await?;
        let set = of_user(sql(SET_SCORE).number(score.score), id, user);
        let there = tx.execute(set).await? == 1;
        if there && score.block {
            insert_blocked(&mut tx, id, user, RISK, now_ms).await?;
        }
        tx.commit().await?;
        Ok(there)
    };
    retried(once).await
}

pub(super) async fn block(
    db: &Database,
    id: &SaleId,
    user: &UserId,
    reason: &str,
    now_ms: u64,
) -> Result<bool, Error> {
    let once = || async {
        let mut tx = db.begin().await?;
        let new = insert_blocked(&mut tx, id, user, reason, now_ms).await?;
        tx.commit().await?;
        Ok(new)
    };
    retried(once).await
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

pub(super) async fn unblock(db: &Database, id: &SaleId, user: &UserId) -> Result<bool, Error> {
    let delete = || of_user(sql(DELETE_BLOCKED), id, user);
    Ok(retried(|| db.execute(delete())).await? == 1)
}

pub(super) async fn reserved_page(
    db: &Database,
    id: &SaleId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<UserId>, Error> {
    page(db, sql(SELECT_RESERVED), id, after, limit).await
}

pub(super) async fn blocked_page(
    db: &Database,
    id: &SaleId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<UserId>, Error> {
    page(db, sql(SELECT_BLOCKED), id, after, limit).await
}

async fn page<'a>(
    db: &Database,
    select: Statement<'a>,
    id: &'a SaleId,
    after: Option<&'a UserId>,
    limit: usize,
) -> Result<Vec<UserId>, Error> {
    // No user's name is empty.
    let after = after.map_or("", UserId::as_str);
    let select = select.text(id.as_str()).text(after).number(limit);
    let rows = db.all(select).await?;
    rows.iter().map(user_id).collect()
}

fn of_user<'a>(statement: Statement<'a>, id: &'a SaleId, user: &'a UserId) -> Statement<'a> {
    statement.text(id.as_str()).text(user.as_str())
}
