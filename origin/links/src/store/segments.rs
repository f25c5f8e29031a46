//! Stores the owners of number segments.

use weir_link::code::{DomainId, Length};
use weir_link::segment::Segment;

use super::LinkStore;
use weir_origin_core::sql::{Row, SqlError, Statement, damaged, retried, sql};

const INSERT: &str = "
    INSERT INTO link_segments (digits, round_no, first_index, numbers, reserved_at_ms)
    VALUES (?, ?, ?, ?, ?)";

const DELETE: &str =
    "DELETE FROM link_segments WHERE digits = ? AND round_no = ? AND first_index = ?";

const LAST: &str = "
    SELECT round_no, first_index, numbers FROM link_segments WHERE digits = ?
    ORDER BY round_no DESC, first_index DESC LIMIT 1";

const FIRST_SINCE: &str = "
    SELECT round_no, first_index, numbers FROM link_segments
    WHERE digits = ? AND reserved_at_ms >= ?
    ORDER BY reserved_at_ms, round_no, first_index LIMIT 1";

const RESERVED_BEFORE: &str = "
    SELECT MAX(reserved_at_ms) AS reserved_at_ms FROM link_segments
    WHERE digits = ? AND round_no < ? AND first_index < ? AND first_index + numbers > ?";

const IS_RESERVED: &str = "
    SELECT 1 AS found FROM link_segments
    WHERE digits = ? AND first_index <= ? AND first_index + numbers > ?
        AND (reserved_at_ms > ?
            OR round_no = (SELECT MAX(round_no) FROM link_segments WHERE digits = ?))
    LIMIT 1";

const INSERT_ROUND: &str =
    "INSERT INTO link_rounds (digits, round_no, opened_at_ms) VALUES (?, ?, ?)";

const SELECT_ROUND: &str = "SELECT 1 AS found FROM link_rounds WHERE digits = ? AND round_no = ?";

const INSERT_CUSTOM: &str =
    "INSERT INTO link_customs (digits, number_index, domain) VALUES (?, ?, ?)";

const DELETE_CUSTOM: &str =
    "DELETE FROM link_customs WHERE digits = ? AND number_index = ? AND domain = ?";

const CUSTOMS: &str = "
    SELECT number_index FROM link_customs
    WHERE digits = ? AND number_index >= ? AND number_index < ? ORDER BY number_index";

const INSERT_DOMAIN: &str = "INSERT INTO link_domains (id) VALUES (?)";

const DOMAINS: &str = "SELECT id FROM link_domains ORDER BY id";

const INSERT_SETTING: &str = "INSERT INTO settings (name, value) VALUES ('link_numbering', ?)";

const SELECT_SETTING: &str = "SELECT value FROM settings WHERE name = 'link_numbering'";

fn of<'a>(statement: &'static str, length: Length) -> Statement<'a> {
    sql(statement).number(length.digits())
}

fn segment(row: &Row, length: Length) -> Result<Segment, sqlx::Error> {
    Ok(Segment {
        length,
        round: row.number("round_no")?,
        start: row.number("first_index")?,
        len: row.number("numbers")?,
    })
}

/// Stores the owners of number segments.
#[derive(Clone, Copy, Debug)]
pub struct SegmentStore<'a>(pub(super) &'a LinkStore);

impl SegmentStore<'_> {
    /// Reserves segments for the caller. Returns for each whether it was free in its round.
    pub async fn reserve(self, segments: &[Segment], now_ms: u64) -> Result<Vec<bool>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let mut reserved = Vec::with_capacity(segments.len());
            for segment in segments {
                let insert = of(INSERT, segment.length).number(segment.round);
                let insert = insert.number(segment.start).number(segment.len);
                reserved.push(tx.insert(insert.number(now_ms)).await?);
            }
            tx.commit().await?;
            Ok(reserved)
        };
        Ok(retried(once).await?)
    }

    /// Releases a segment of which no number was handed out.
    pub async fn release(self, segment: &Segment) -> Result<(), SqlError> {
        let delete = of(DELETE, segment.length).number(segment.round);
        self.0.db.execute(delete.number(segment.start)).await?;
        Ok(())
    }

    /// The last reserved segment of a length.
    pub async fn last_segment(self, length: Length) -> Result<Option<Segment>, SqlError> {
        let row = self.0.db.one(of(LAST, length)).await?;
        Ok(row.map(|row| segment(&row, length)).transpose()?)
    }

    /// The first segment of a length that was reserved at or after `since_ms`.
    pub async fn first_segment_since(
        self,
        length: Length,
        since_ms: u64,
    ) -> Result<Option<Segment>, SqlError> {
        let select = of(FIRST_SINCE, length).number(since_ms);
        let row = self.0.db.one(select).await?;
        Ok(row.map(|row| segment(&row, length)).transpose()?)
    }

    /// When numbers of this segment were last reserved in an earlier round.
    pub async fn reserved_before(self, segment: &Segment) -> Result<Option<u64>, SqlError> {
        let numbers = segment.indexes();
        let select = of(RESERVED_BEFORE, segment.length).number(segment.round);
        let row = self
            .0
            .db
            .one(select.number(numbers.end).number(numbers.start));
        Ok(row
            .await?
            .map_or(Ok(None), |row| row.maybe("reserved_at_ms"))?)
    }

    /// Whether a number's segment is reserved in the last round, or was reserved after `since_ms`. An origin may be
    /// handing it out.
    pub async fn is_reserved(
        self,
        length: Length,
        index: u64,
        since_ms: u64,
    ) -> Result<bool, SqlError> {
        let select = of(IS_RESERVED, length).number(index).number(index);
        let select = select.number(since_ms).number(length.digits());
        Ok(self.0.db.one(select).await?.is_some())
    }

    /// Opens a round through the numbers of a length, unless it is open.
    pub async fn open_round(self, length: Length, round: u64, now_ms: u64) -> Result<(), SqlError> {
        let insert = of(INSERT_ROUND, length).number(round).number(now_ms);
        self.0.db.insert(insert).await?;
        Ok(())
    }

    /// Whether a round is open.
    pub async fn is_round_open(self, length: Length, round: u64) -> Result<bool, SqlError> {
        let row = self
            .0
            .db
            .one(of(SELECT_ROUND, length).number(round))
            .await?;
        Ok(row.is_some())
    }

    /// Marks the code of this number in this domain as custom. Returns false if it already was.
    pub async fn add_custom(
        self,
        length: Length,
        index: u64,
        domain: &DomainId,
    ) -> Result<bool, SqlError> {
        let insert = of(INSERT_CUSTOM, length)
            .number(index)
            .text(domain.as_str());
        Ok(self.0.db.insert(insert).await?)
    }

    /// Removes this mark.
    pub async fn remove_custom(
        self,
        length: Length,
        index: u64,
        domain: &DomainId,
    ) -> Result<(), SqlError> {
        self.remove_customs(&[(length, index, domain)]).await
    }

    /// Removes many of these marks.
    pub async fn remove_customs(
        self,
        customs: &[(Length, u64, &DomainId)],
    ) -> Result<(), SqlError> {
        if customs.is_empty() {
            return Ok(());
        }
        let mut tx = self.0.db.begin().await?;
        for (length, index, domain) in customs {
            let delete = of(DELETE_CUSTOM, *length)
                .number(*index)
                .text(domain.as_str());
            tx.execute(delete).await?;
        }
        Ok(tx.commit().await?)
    }

    /// The numbers of a segment with custom codes.
    pub async fn customs(self, segment: &Segment) -> Result<Vec<u64>, SqlError> {
        let numbers = segment.indexes();
        let select = of(CUSTOMS, segment.length).number(numbers.start);
        let rows = self.0.db.all(select.number(numbers.end)).await?;
        Ok(rows
            .iter()
            .map(|row| row.number("number_index"))
            .collect::<Result<_, _>>()?)
    }

    /// Stores domains that may have links. Returns all that ever had.
    pub async fn domains(self, existing: &[DomainId]) -> Result<Vec<DomainId>, SqlError> {
        for id in existing {
            self.0
                .db
                .insert(sql(INSERT_DOMAIN).text(id.as_str()))
                .await?;
        }
        let rows = self.0.db.all(sql(DOMAINS)).await?;
        let read = |row: &Row| {
            let id = DomainId::new(row.text("id")?);
            Ok(id.map_err(|error| damaged("id", error))?)
        };
        rows.iter().map(read).collect()
    }

    /// Stores the fingerprint of the numbering unless one is stored. Returns the stored one.
    pub async fn numbering(self, fingerprint: &str) -> Result<String, SqlError> {
        if let Some(row) = self.0.db.one(sql(SELECT_SETTING)).await? {
            return Ok(row.text("value")?);
        }
        self.0
            .db
            .insert(sql(INSERT_SETTING).text(fingerprint))
            .await?;
        let row = self.0.db.one(sql(SELECT_SETTING)).await?;
        Ok(row.map_or_else(|| Ok(fingerprint.to_owned()), |row| row.text("value"))?)
    }
}
