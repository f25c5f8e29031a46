//! Who may hand out which numbers.

use sqlx::Error;
use weir_link::code::{DomainId, Length};
use weir_link::segment::Segment;

use crate::store::database::{Database, Statement, damaged, retried, sql};

const INSERT: &str = "
    INSERT INTO link_segments (digits, round_no, first_index, numbers, reserved_at_ms)
    VALUES (?, ?, ?, ?, ?)";

const DELETE: &str =
    "DELETE FROM link_segments WHERE digits = ? AND round_no = ? AND first_index = ?";

const LAST: &str = "
    SELECT round_no, first_index, numbers FROM link_segments WHERE digits = ?
    ORDER BY round_no DESC, first_index DESC LIMIT 1";

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

pub(super) async fn reserve(
    db: &Database,
    segments: &[Segment],
    now_ms: u64,
) -> Result<Vec<bool>, Error> {
    let once = || async {
        let mut tx = db.begin().await?;
        let mut reserved = Vec::with_capacity(segments.len());
        for segment in segments {
            let insert = of(INSERT, segment.length).number(segment.round);
            let insert = insert.number(segment.start).number(segment.len);
            reserved.push(tx.insert(insert.number(now_ms)).await?);
        }
        tx.commit().await?;
        Ok(reserved)
    };
    retried(once).await
}

pub(super) async fn release(db: &Database, segment: &Segment) -> Result<(), Error> {
    let delete = of(DELETE, segment.length).number(segment.round);
    db.execute(delete.number(segment.start)).await.map(drop)
}

pub(super) async fn last(db: &Database, length: Length) -> Result<Option<Segment>, Error> {
    let Some(row) = db.one(of(LAST, length)).await? else {
        return Ok(None);
    };
    Ok(Some(Segment {
        length,
        round: row.number("round_no")?,
        start: row.number("first_index")?,
        len: row.number("numbers")?,
    }))
}

pub(super) async fn reserved_before(
    db: &Database,
    segment: &Segment,
) -> Result<Option<u64>, Error> {
    let numbers = segment.indexes();
    let select = of(RESERVED_BEFORE, segment.length).number(segment.round);
    let row = db.one(select.number(numbers.end).number(numbers.start));
    row.await?
        .map_or(Ok(None), |row| row.maybe("reserved_at_ms"))
}

pub(super) async fn is_reserved(
    db: &Database,
    length: Length,
    index: u64,
    since_ms: u64,
) -> Result<bool, Error> {
    let select = of(IS_RESERVED, length).number(index).number(index);
    let select = select.number(since_ms).number(length.digits());
    Ok(db.one(select).await?.is_some())
}

pub(super) async fn open_round(
    db: &Database,
    length: Length,
    round: u64,
    now_ms: u64,
) -> Result<(), Error> {
    let insert = of(INSERT_ROUND, length).number(round).number(now_ms);
    db.insert(insert).await.map(drop)
}

pub(super) async fn is_round_open(
    db: &Database,
    length: Length,
    round: u64,
) -> Result<bool, Error> {
    let row = db.one(of(SELECT_ROUND, length).number(round)).await?;
    Ok(row.is_some())
}

pub(super) async fn add_custom(
    db: &Database,
    length: Length,
    index: u64,
    domain: &DomainId,
) -> Result<bool, Error> {
    let insert = of(INSERT_CUSTOM, length)
        .number(index)
        .text(domain.as_str());
    db.insert(insert).await
}

pub(super) async fn remove_custom(
    db: &Database,
    length: Length,
    index: u64,
    domain: &DomainId,
) -> Result<(), Error> {
    let delete = of(DELETE_CUSTOM, length)
        .number(index)
        .text(domain.as_str());
    db.execute(delete).await.map(drop)
}

pub(super) async fn customs(db: &Database, segment: &Segment) -> Result<Vec<u64>, Error> {
    let numbers = segment.indexes();
    let select = of(CUSTOMS, segment.length).number(numbers.start);
    let rows = db.all(select.number(numbers.end)).await?;
    rows.iter().map(|row| row.number("number_index")).collect()
}

pub(super) async fn domains(db: &Database, known: &[DomainId]) -> Result<Vec<DomainId>, Error> {
    for id in known {
        db.insert(sql(INSERT_DOMAIN).text(id.as_str())).await?;
    }
    let rows = db.all(sql(DOMAINS)).await?;
    let read = |row: &crate::store::database::Row| {
        DomainId::new(row.text("id")?).map_err(|error| damaged("id", error))
    };
    rows.iter().map(read).collect()
}

pub(super) async fn numbering(db: &Database, fingerprint: &str) -> Result<String, Error> {
    if let Some(row) = db.one(sql(SELECT_SETTING)).await? {
        return row.text("value");
    }
    db.insert(sql(INSERT_SETTING).text(fingerprint)).await?;
    let row = db.one(sql(SELECT_SETTING)).await?;
    row.map_or_else(|| Ok(fingerprint.to_owned()), |row| row.text("value"))
}
