//! Cooldowns of users with unpaid holds.
//!
//! An expired hold counts as one. Cancelled holds count by their duration: they count as one expired hold whenever,
//! together, they have lasted as long as one. So cancelling just before the deadline gains nothing, and users who
//! cancel early may do so many times.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::orders::user_id;
use super::sales::sale_id;
use super::{HoldRules, SaleStore, Shortage, StoredOrder};
use weir_origin_core::sql::{Row, SqlError, Statement, Tx, retried, sql};

/// End of a permanent cooldown.
pub const FOR_GOOD_MS: u64 = 9_007_199_254_740_991;

// The order of assignments matters: MySQL uses the new value of an assigned column, SQLite the old one.
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

// Users whom operators have allowed in all sales are exempt from blocks by the risk check.
const SELECT_BARRED: &str = "
    SELECT 1 AS one FROM user_list WHERE user_id = ? AND status = 'blocked'
    UNION ALL
    SELECT 1 AS one FROM blocked_users WHERE sale_id = ? AND user_id = ? AND (reason <> 'risk'
        OR NOT EXISTS (SELECT 1 FROM user_list WHERE user_id = ? AND status = 'allowed'))
    UNION ALL
    SELECT 1 AS one FROM buyers WHERE sale_id = ? AND user_id = ? AND cooldown_until_ms > ?";

/// An expired cooldown that Redis still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// The sale.
    pub sale: SaleId,
    /// Number of the sale's shards.
    pub shards: u32,
    /// The user who may buy again.
    pub user: UserId,
    /// When the cooldown ended, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// Cooldowns of users with unpaid holds.
#[derive(Clone, Copy, Debug)]
pub struct CooldownStore<'a>(pub(super) &'a SaleStore);

impl CooldownStore<'_> {
    /// Whether the user cannot buy: blocked in this sale or in all, or in a cooldown.
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

    /// Returns up to `limit` expired cooldowns, earliest end first.
    pub async fn cooldowns_over(
        self,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<Cooldown>, SqlError> {
        let select = sql(SELECT_OVER).number(now_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(cooldown).collect::<Result<_, _>>()?)
    }

    /// Deletes a cooldown, unless a later one has replaced it.
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

/// Counts an expired hold, and starts a cooldown if the rules require one.
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

/// Counts the duration of a cancelled hold, and starts a cooldown if the rules require one. `order` is the order before
/// the cancellation. The caller must have locked the user's row, because this reads it before writing.
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
    // The hold may be past its deadline but not expired yet.
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

/// Why the user cannot have more units.
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
