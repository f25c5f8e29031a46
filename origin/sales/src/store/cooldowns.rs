//! Users who keep units and do not pay: for how long they may not buy.
//!
//! A hold that expires counts as one. A hold that its user cancels counts by the time it lasted: together, cancelled holds
//! count as one whenever they have lasted as long as one that expires. So cancelling just before the end gains nothing,
//! however it is timed, and who cancels soon may do so many times.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::orders::user_id;
use super::sales::sale_id;
use super::{HoldRules, SaleStore, Shortage, StoredOrder};
use weir_origin_core::sql::{Row, SqlError, Statement, Tx, retried, sql};

/// The end of a cooldown that does not end.
pub const FOR_GOOD_MS: u64 = 9_007_199_254_740_991;

// In this order: in MySQL what follows an assignment sees it, in SQLite it does not.
const COUNT_EXPIRED: &str = "
    UPDATE buyers SET
        cooldown_until_ms = CASE
            WHEN ? > 0 AND expired_holds >= ? THEN ?
            WHEN ? > 0 THEN ?
            ELSE cooldown_until_ms
        END,
        expired_holds = expired_holds + 1
    WHERE sale_id = ? AND user_id = ?";

const SELECT_CANCELLED: &str = "
    SELECT cancelled_hold_ms FROM buyers WHERE sale_id = ? AND user_id = ?";

const NOTE_CANCELLED: &str = "
    UPDATE buyers SET cancelled_hold_ms = ? WHERE sale_id = ? AND user_id = ?";

const SELECT_BUYER: &str = "
    SELECT units, cooldown_until_ms FROM buyers WHERE sale_id = ? AND user_id = ?";

const SELECT_OVER: &str = "
    SELECT buyers.sale_id, buyers.user_id, buyers.cooldown_until_ms, sales.shards
    FROM buyers JOIN sales ON sales.id = buyers.sale_id
    WHERE cooldown_until_ms <= ?
    ORDER BY cooldown_until_ms
    LIMIT ?";

const END: &str = "
    UPDATE buyers SET cooldown_until_ms = NULL
    WHERE sale_id = ? AND user_id = ? AND cooldown_until_ms = ?";

// Whom operators have allowed in every sale, no risk check blocks.
const SELECT_BARRED: &str = "
    SELECT 1 AS one FROM user_list WHERE user_id = ? AND status = 'blocked'
    UNION ALL
    SELECT 1 AS one FROM blocked_users WHERE sale_id = ? AND user_id = ? AND (reason <> 'risk'
        OR NOT EXISTS (SELECT 1 FROM user_list WHERE user_id = ? AND status = 'allowed'))
    UNION ALL
    SELECT 1 AS one FROM buyers WHERE sale_id = ? AND user_id = ? AND cooldown_until_ms > ?";

/// A cooldown that is over, and which Redis has yet to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// The sale.
    pub sale: SaleId,
    /// Over how many shards it is spread.
    pub shards: u32,
    /// Who may buy again.
    pub user: UserId,
    /// When the cooldown ended, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// Users who keep units and do not pay: for how long they may not buy.
#[derive(Clone, Copy, Debug)]
pub struct CooldownStore<'a>(pub(super) &'a SaleStore);

impl CooldownStore<'_> {
    /// Whether the user may not buy: blocked, in this sale or in every one, or in a cooldown.
    pub async fn is_barred(
        self,
        sale: &SaleId,
        user: &UserId,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let select = sql(SELECT_BARRED).text(user.as_str());
        let select = of_user(select, sale, user).text(user.as_str());
        let select = of_user(select, sale, user);
        Ok(self.0.db.one(select.number(now_ms)).await?.is_some())
    }

    /// At most `limit` cooldowns that are over, the first to end first.
    pub async fn cooldowns_over(
        self,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<Cooldown>, SqlError> {
        let select = sql(SELECT_OVER).number(now_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(cooldown).collect::<Result<_, _>>()?)
    }

    /// Forgets a cooldown, unless a later one has taken its place.
    pub async fn end_cooldown(self, over: &Cooldown) -> Result<(), SqlError> {
        let end = || of_user(sql(END), &over.sale, &over.user).number(over.until_ms);
        retried(|| self.0.db.execute(end())).await?;
        Ok(())
    }
}

fn cooldown(row: &Row) -> Result<Cooldown, Error> {
    Ok(Cooldown {
        sale: sale_id(row, "sale_id")?,
        shards: row.number("shards")?,
        user: user_id(row)?,
        until_ms: row.number("cooldown_until_ms")?,
    })
}

/// Counts a hold that has expired, with what follows for its user.
pub(super) async fn count_expired(
    tx: &mut Tx,
    order: &StoredOrder,
    rules: HoldRules,
    now_ms: u64,
) -> Result<(), Error> {
    let count = sql(COUNT_EXPIRED)
        .number(rules.expired_max)
        .number(rules.expired_max.saturating_sub(1))
        .number(FOR_GOOD_MS)
        .number(rules.cooldown_ms)
        .number(now_ms.saturating_add(rules.cooldown_ms));
    tx.execute(of_user(count, &order.sale, &order.user)).await?;
    Ok(())
}

/// Counts the time of a hold that its user cancels, with what follows. The order is as it was before. The row of its user
/// must be locked: what was counted is read first.
pub(super) async fn count_cancelled(
    tx: &mut Tx,
    order: &StoredOrder,
    rules: HoldRules,
    now_ms: u64,
) -> Result<(), Error> {
    let Some(pay_by_ms) = order.pay_by_ms else {
        return Ok(()); // It would not have expired.
    };
    let whole_ms = pay_by_ms.saturating_sub(order.created_at_ms);
    // Past its end, if it is cancelled before it is expired.
    let held_ms = now_ms.saturating_sub(order.created_at_ms).min(whole_ms);
    let select = of_user(sql(SELECT_CANCELLED), &order.sale, &order.user);
    let Some(row) = tx.one(select).await? else {
        return Ok(()); // The sale is archived.
    };
    let counted_ms: u64 = row.number("cancelled_hold_ms")?;
    let mut sum_ms = counted_ms.saturating_add(held_ms);
    if sum_ms >= whole_ms {
        sum_ms -= whole_ms;
        count_expired(tx, order, rules, now_ms).await?;
    }
    let note = sql(NOTE_CANCELLED).number(sum_ms);
    tx.execute(of_user(note, &order.sale, &order.user)).await?;
    Ok(())
}

/// Why this user may not have more units.
pub(super) async fn shortage(
    tx: &mut Tx,
    sale: &SaleId,
    user: &UserId,
    now_ms: u64,
) -> Result<Shortage, Error> {
    let row = tx.one(of_user(sql(SELECT_BUYER), sale, user)).await?;
    let until_ms = row.map(|row| row.maybe("cooldown_until_ms")).transpose()?;
    Ok(match until_ms.flatten() {
        Some(FOR_GOOD_MS) => Shortage::UnpaidHolds,
        Some(until_ms) if until_ms > now_ms => Shortage::CoolingDown {
            wait_ms: until_ms - now_ms,
        },
        _ => Shortage::UserCap,
    })
}

fn of_user<'a>(statement: Statement<'a>, sale: &'a SaleId, user: &'a UserId) -> Statement<'a> {
    statement.text(sale.as_str()).text(user.as_str())
}
