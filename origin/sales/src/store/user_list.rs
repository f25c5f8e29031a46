//! Users whom operators block in all sales, or exempt from risk checks. Each change is logged in its transaction.

use sqlx::Error;
use weir_base::id::UserId;

use super::SaleStore;
use super::orders::user_id;
use weir_origin_core::sql::{Row, SqlError, Statement, Tx, damaged, retried, sql};

const SELECT: &str = "SELECT * FROM user_list WHERE user_id = ?";

const SELECT_PAGE: &str = "
    SELECT * FROM user_list WHERE status = ? AND user_id > ? ORDER BY user_id LIMIT ?";

const DELETE: &str = "DELETE FROM user_list WHERE user_id = ?";

const INSERT: &str = "
    INSERT INTO user_list (user_id, status, reason, operator, at_ms) VALUES (?, ?, ?, ?, ?)";

const INSERT_LOG: &str = "
    INSERT INTO user_list_log (user_id, status, reason, operator, at_ms)
    VALUES (?, ?, ?, ?, ?)";

const SELECT_LOG: &str = "
    SELECT status, reason, operator, at_ms FROM user_list_log
    WHERE user_id = ? ORDER BY id DESC LIMIT ?";

/// Status in the log of a user removed from the list.
const NONE: &str = "none";

/// A user's status in all sales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserListStatus {
    /// Cannot buy.
    Blocked,
    /// Can buy, exempt from risk checks.
    Allowed,
}

impl UserListStatus {
    /// All statuses.
    pub const ALL: [Self; 2] = [Self::Blocked, Self::Allowed];

    /// The label in SQL and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Allowed => "allowed",
        }
    }

    fn read(word: &str) -> Result<Self, Error> {
        let mut all = Self::ALL.into_iter();
        all.find(|status| status.label() == word)
            .ok_or_else(|| damaged("status", "is not a list entry"))
    }
}

/// Reason and author of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Reason.
    pub reason: String,
    /// Operator, as given.
    pub operator: String,
}

/// A user on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedUser {
    /// The user.
    pub user: UserId,
    /// The user's status.
    pub status: UserListStatus,
    /// Reason and author.
    pub remark: Remark,
    /// Time of the change, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// An entry of the change log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The new status; `None`: not listed.
    pub status: Option<UserListStatus>,
    /// Reason and author.
    pub remark: Remark,
    /// Time of the change, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Users whom operators block in all sales, or exempt from risk checks.
#[derive(Clone, Copy, Debug)]
pub struct UserListStore<'a>(pub(super) &'a SaleStore);

impl UserListStore<'_> {
    /// A user's entry, if the user is listed.
    pub async fn listed_user(self, user: &UserId) -> Result<Option<ListedUser>, SqlError> {
        let row = self.0.db.one(sql(SELECT).text(user.as_str())).await?;
        Ok(row.as_ref().map(listed).transpose()?)
    }

    /// At most `limit` users with this status, after `after`, sorted by the bytes of their names.
    pub async fn listed_users(
        self,
        status: UserListStatus,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<ListedUser>, SqlError> {
        let after = after.map_or("", UserId::as_str);
        let select = sql(SELECT_PAGE).text(status.label()).text(after);
        let rows = self.0.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(listed).collect::<Result<_, _>>()?)
    }

    /// At most `limit` changes of a user's status, newest first.
    pub async fn list_log(self, user: &UserId, limit: usize) -> Result<Vec<ListEntry>, SqlError> {
        let select = sql(SELECT_LOG).text(user.as_str()).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(entry).collect::<Result<_, _>>()?)
    }

    /// Sets a user's status, or removes the user from the list; false if nothing changes.
    pub async fn set_user_status(
        self,
        user: &UserId,
        status: Option<UserListStatus>,
        remark: &Remark,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let before = tx.one(sql(SELECT).text(user.as_str())).await?;
            let before = before.as_ref().map(listed).transpose()?;
            let is_so = match (&before, status) {
                (None, None) => true,
                (Some(before), Some(status)) => before.status == status && before.remark == *remark,
                _ => false,
            };
            if is_so {
                tx.rollback().await?;
                return Ok(false);
            }
            set(&mut tx, user, status, remark, now_ms).await?;
            tx.commit().await?;
            Ok(true)
        };
        Ok(retried(once).await?)
    }
}

async fn set(
    tx: &mut Tx,
    user: &UserId,
    status: Option<UserListStatus>,
    remark: &Remark,
    now_ms: u64,
) -> Result<(), Error> {
    tx.execute(sql(DELETE).text(user.as_str())).await?;
    if let Some(status) = status {
        tx.execute(row(INSERT, user, status.label(), remark, now_ms))
            .await?;
    }
    let word = status.map_or(NONE, UserListStatus::label);
    tx.execute(row(INSERT_LOG, user, word, remark, now_ms))
        .await?;
    Ok(())
}

fn row<'a>(
    statement: &'static str,
    user: &'a UserId,
    status: &'a str,
    remark: &'a Remark,
    now_ms: u64,
) -> Statement<'a> {
    sql(statement)
        .text(user.as_str())
        .text(status)
        .text(&remark.reason)
        .text(&remark.operator)
        .number(now_ms)
}

/// A user's status, read by key within a transaction.
pub(super) async fn user_status(
    tx: &mut Tx,
    user: &UserId,
) -> Result<Option<UserListStatus>, Error> {
    let row = tx.one(sql(SELECT).text(user.as_str())).await?;
    row.map(|row| UserListStatus::read(&row.text("status")?))
        .transpose()
}

fn listed(row: &Row) -> Result<ListedUser, Error> {
    Ok(ListedUser {
        user: user_id(row)?,
        status: UserListStatus::read(&row.text("status")?)?,
        remark: read_remark(row)?,
        at_ms: row.number("at_ms")?,
    })
}

fn entry(row: &Row) -> Result<ListEntry, Error> {
    let status = match row.text("status")?.as_str() {
        NONE => None,
        word => Some(UserListStatus::read(word)?),
    };
    Ok(ListEntry {
        status,
        remark: read_remark(row)?,
        at_ms: row.number("at_ms")?,
    })
}

fn read_remark(row: &Row) -> Result<Remark, Error> {
    Ok(Remark {
        reason: row.text("reason")?,
        operator: row.text("operator")?,
    })
}
