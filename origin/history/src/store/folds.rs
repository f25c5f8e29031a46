//! Progress of folds. Each day is divided into parts, so that several origins can work on it. An origin leases a part.
//! Two holders of one part are harmless: they do the same work twice.

use sqlx::Error;
use weir_history::DAY_MS;
use weir_history::slot::SLOTS;

use super::HistoryStore;
use weir_origin_core::sql::{Row, SqlError, sql};

/// Number of parts in a day.
pub const PARTS: u16 = 16;

/// Maximum number of days added at once, after a long downtime of all origins: no list lives longer.
const DAYS_BACK_MAX: u64 = 7;

const SELECT_LAST: &str = "SELECT MAX(day) AS day FROM history_folds";

const INSERT: &str = "
    INSERT INTO history_folds (day, part, next_slot, holder, lease_until_ms) VALUES (?, ?, ?, '', 0)";

const SELECT_OPEN: &str = "
    SELECT day, part, next_slot FROM history_folds
    WHERE done_at_ms IS NULL AND day <= ? AND (lease_until_ms <= ? OR holder = ?)
    ORDER BY day, part";

const TAKE: &str = "
    UPDATE history_folds SET holder = ?, lease_until_ms = ?
    WHERE day = ? AND part = ? AND done_at_ms IS NULL AND (lease_until_ms <= ? OR holder = ?)";

const ADVANCE: &str = "
    UPDATE history_folds SET next_slot = ?, lease_until_ms = ?, done_at_ms = ?
    WHERE day = ? AND part = ? AND holder = ?";

const SELECT_OLDEST: &str =
    "SELECT MIN(day) AS day FROM history_folds WHERE done_at_ms IS NULL AND day < ?";

const DELETE_OLD: &str = "DELETE FROM history_folds WHERE done_at_ms IS NOT NULL AND day < ?";

/// An unfinished part of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayPart {
    /// The day, counted from the Unix epoch.
    pub day: u64,
    /// The part.
    pub part: u16,
    /// The next slot.
    pub next_slot: u16,
}

impl DayPart {
    /// The slot after the part's last one.
    pub fn end(&self) -> u16 {
        (self.part + 1) * (SLOTS / PARTS)
    }
}

/// Stores the progress of folds.
#[derive(Clone, Copy, Debug)]
pub struct FoldStore<'a>(pub(super) &'a HistoryStore);

impl FoldStore<'_> {
    /// Adds all days up to that of `now_ms`, including days without a running origin.
    pub async fn note_days(self, now_ms: u64) -> Result<(), SqlError> {
        let today = now_ms / DAY_MS;
        let last = self.0.db.one(sql(SELECT_LAST)).await?;
        let last = last.map_or(Ok(None), |row| row.maybe("day"))?;
        // Add all parts of the last day: its writer may have stopped halfway. At the first start, also add yesterday,
        // because midnight may just have passed.
        let from = last.unwrap_or(today.saturating_sub(1));
        let from = from.max(today.saturating_sub(DAYS_BACK_MAX));
        if last == Some(today) && self.has_all_parts(today).await? {
            return Ok(());
        }
        for day in from..=today {
            for part in 0..PARTS {
                let first_slot = part * (SLOTS / PARTS);
                let insert = sql(INSERT).number(day).number(part).number(first_slot);
                self.0.db.insert(insert).await?;
            }
        }
        Ok(())
    }

    async fn has_all_parts(self, day: u64) -> Result<bool, SqlError> {
        const COUNT: &str = "SELECT COUNT(*) AS n FROM history_folds WHERE day = ?";
        let row = self.0.db.one(sql(COUNT).number(day)).await?;
        let count: u64 = row.map_or(Ok(0), |row| row.number("n"))?;
        Ok(count == u64::from(PARTS))
    }

    /// Unfinished parts of days up to `day` that no other origin holds.
    pub async fn open_parts(
        self,
        day: u64,
        holder: &str,
        now_ms: u64,
    ) -> Result<Vec<DayPart>, SqlError> {
        let select = sql(SELECT_OPEN).number(day).number(now_ms).text(holder);
        let rows = self.0.db.all(select).await?;
        let part = |row: &Row| {
            Ok(DayPart {
                day: row.number("day")?,
                part: row.number("part")?,
                next_slot: row.number("next_slot")?,
            })
        };
        Ok(rows.iter().map(part).collect::<Result<_, Error>>()?)
    }

    /// Leases a part until `until_ms`. Returns false if another origin holds it, or if it is done.
    pub async fn take_part(
        self,
        part: DayPart,
        holder: &str,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<bool, SqlError> {
        let take = sql(TAKE).text(holder).number(until_ms);
        let take = take.number(part.day).number(part.part);
        let accepted = self.0.db.execute(take.number(now_ms).text(holder)).await?;
        Ok(accepted > 0)
    }

    /// Stores a part's progress and renews its lease until `until_ms`. Returns false if another origin holds it by now.
    pub async fn advance_part(
        self,
        part: DayPart,
        holder: &str,
        until_ms: u64,
    ) -> Result<bool, SqlError> {
        let is_done = part.next_slot >= part.end();
        let done_at_ms = is_done.then(|| (self.0.clock)());
        let advance = sql(ADVANCE).number(part.next_slot).number(until_ms);
        let advance = advance.maybe(done_at_ms).number(part.day);
        let advanced = self
            .0
            .db
            .execute(advance.number(part.part).text(holder))
            .await?;
        Ok(advanced > 0)
    }

    /// The first unfinished day before `day`.
    pub async fn oldest_open_day(self, day: u64) -> Result<Option<u64>, SqlError> {
        let row = self.0.db.one(sql(SELECT_OLDEST).number(day)).await?;
        Ok(row.map_or(Ok(None), |row| row.maybe("day"))?)
    }

    /// Deletes days that were finished long ago.
    pub async fn forget_days(self, before: u64) -> Result<(), SqlError> {
        self.0.db.execute(sql(DELETE_OLD).number(before)).await?;
        Ok(())
    }
}
