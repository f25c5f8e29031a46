//! Changes that Redis does not have yet. The transaction that changes SQL adds them; they are deleted after Redis is
//! updated.

use sqlx::Error;
use weir_fitment::{Cluster, Placement, Sku, Spu};

use super::skus::read;
use super::{FitmentStore, SkuRow};
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, sql};

const INSERT: &str =
    "INSERT INTO fitment_dirty (number, version, delta, since_ms) VALUES (?, ?, ?, ?)";

/// A whole rewrite includes all pending deltas.
const WHOLE: &str = "UPDATE fitment_dirty SET version = ?, delta = NULL WHERE number = ?";

const SELECT: &str = "
    SELECT s.number, s.sku, s.spu, s.product_type, s.merchant, s.is_deleted, s.version, s.fits, d.delta, d.version AS noted
    FROM fitment_dirty d JOIN fitment_skus s ON s.number = d.number
    WHERE d.number > ? ORDER BY d.number LIMIT ?";

const DELETE: &str = "DELETE FROM fitment_dirty WHERE number = ? AND version = ?";

const COUNT: &str = "SELECT COUNT(*) AS waiting, MIN(since_ms) AS since_ms FROM fitment_dirty";

const SELECT_LEFT: &str = "
    SELECT number, cluster, spu FROM fitment_left
    WHERE number >= ? AND number <= ? AND dropped_at_ms IS NULL ORDER BY number";

const INSERT_LEFT: &str =
    "REPLACE INTO fitment_left (number, cluster, spu, dropped_at_ms) VALUES (?, ?, ?, NULL)";

/// Only if the SKU is unchanged: it may have come back and left again meanwhile.
const NOTE_DROPPED: &str = "
    UPDATE fitment_left SET dropped_at_ms = ? WHERE number = ? AND cluster = ? AND spu = ?
    AND EXISTS (SELECT 1 FROM fitment_skus WHERE number = ? AND version = ?)";

const SELECT_MARKS: &str = "
    SELECT l.number, l.cluster, l.spu, l.dropped_at_ms, s.sku, s.version
    FROM fitment_left l JOIN fitment_skus s ON s.number = l.number
    WHERE l.dropped_at_ms < ? ORDER BY l.dropped_at_ms LIMIT ?";

/// Unless the SKU came back and left again.
const DELETE_MARK: &str =
    "DELETE FROM fitment_left WHERE number = ? AND cluster = ? AND spu = ? AND dropped_at_ms = ?";

const BEGIN_REBUILD: &str = "UPDATE fitment_head SET rebuilt_up_to = 0 WHERE id = 1";

/// Only forward, and only if the rebuild is running: another origin may have restarted or ended it.
const ADVANCE_REBUILD: &str =
    "UPDATE fitment_head SET rebuilt_up_to = ? WHERE id = 1 AND rebuilt_up_to = ?";

const END_REBUILD: &str =
    "UPDATE fitment_head SET rebuilt_up_to = NULL WHERE id = 1 AND rebuilt_up_to = ?";

/// A SKU with changes that Redis does not have yet.
#[derive(Clone, Debug)]
pub struct Dirty {
    pub(crate) row: SkuRow,
    /// The version at which the change was recorded.
    pub(crate) recorded: u64,
    /// The changed offsets since the previous version, if nothing else changed.
    pub(crate) delta: Option<Delta>,
}

impl Dirty {
    /// The SKU's number and the recorded version in SQL.
    pub fn version(&self) -> (u64, u64) {
        (self.row.number, self.row.version)
    }
}

/// A small change: some offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub from_version: u64,
    pub added: Vec<u32>,
    pub removed: Vec<u32>,
}

/// The marker that a dropped SKU has left in Redis, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DropMark {
    pub remaining: FormerPlacement,
    pub sku: Sku,
    /// The SKU's version; the marker's is not higher.
    pub version: u64,
    dropped_at_ms: u64,
}

/// A former place of a SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerPlacement {
    /// The SKU's number.
    pub number: u64,
    /// The former place.
    pub place: Placement,
}

/// Records a change for Redis: as `delta`, or as a whole rewrite.
pub(super) async fn mark_dirty(
    tx: &mut Tx,
    number: u64,
    version: u64,
    delta: Option<&str>,
    now_ms: u64,
) -> Result<(), Error> {
    // A second pending change turns both into a whole rewrite.
    if tx
        .execute(sql(WHOLE).number(version).number(number))
        .await?
        > 0
    {
        return Ok(());
    }
    let insert = sql(INSERT).number(number).number(version);
    tx.execute(insert.maybe_text(delta).number(now_ms))
        .await
        .map(drop)
}

/// Records that a SKU leaves a place.
pub(super) async fn mark_left(tx: &mut Tx, number: u64, place: &Placement) -> Result<(), Error> {
    let insert = sql(INSERT_LEFT).number(number).text(place.cluster.as_str());
    tx.execute(insert.text(place.spu.as_str())).await.map(drop)
}

/// Stores the changes that Redis does not have yet.
#[derive(Clone, Copy, Debug)]
pub struct OutboxStore<'a>(pub(super) &'a FitmentStore);

impl OutboxStore<'_> {
    /// Lists up to `limit` SKUs with pending changes, after a number.
    pub async fn dirty(self, after: u64, limit: usize) -> Result<Vec<Dirty>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT).number(after).number(limit))
            .await?;
        let dirty = |row: &Row| {
            Ok(Dirty {
                row: read(row)?,
                recorded: row.number("noted")?,
                delta: row.maybe_text("delta")?.as_deref().and_then(read_delta),
            })
        };
        let all: Result<_, Error> = rows.iter().map(dirty).collect();
        Ok(all?)
    }

    /// Deletes changes that are now in Redis, by SKU number and version.
    pub async fn clean(self, done: &[(u64, u64)]) -> Result<(), SqlError> {
        let mut tx = self.0.db.begin().await?;
        for (number, version) in done {
            tx.execute(sql(DELETE).number(*number).number(*version))
                .await?;
        }
        Ok(tx.commit().await?)
    }

    /// Number of pending changes, and time of the oldest in milliseconds since the Unix epoch.
    pub async fn waiting(self) -> Result<(u64, Option<u64>), SqlError> {
        let row = self.0.db.one(sql(COUNT)).await?;
        let row = row.ok_or_else(|| damaged("fitment_dirty", "no row"))?;
        Ok((row.number("waiting")?, row.maybe("since_ms")?))
    }

    /// Lists the former places of SKUs in a range of numbers.
    pub async fn former_placements(
        self,
        first: u64,
        last: u64,
    ) -> Result<Vec<FormerPlacement>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT_LEFT).number(first).number(last))
            .await?;
        Ok(rows.iter().map(read_left).collect::<Result<_, _>>()?)
    }

    /// Records that a SKU of this version was dropped from its former places. If it has changed since, the next
    /// publication drops it again.
    pub async fn dropped(
        self,
        former_placements: &[FormerPlacement],
        version: u64,
    ) -> Result<(), SqlError> {
        let mut tx = self.0.db.begin().await?;
        for FormerPlacement { number, place } in former_placements {
            let note = sql(NOTE_DROPPED)
                .number(self.0.now_ms())
                .number(*number)
                .text(place.cluster.as_str())
                .text(place.spu.as_str())
                .number(*number)
                .number(version);
            tx.execute(note).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Lists up to `limit` markers of SKUs dropped before this time.
    pub(crate) async fn marks(
        self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<DropMark>, SqlError> {
        let select = sql(SELECT_MARKS).number(before_ms).number(limit);
        let mark = |row: &Row| {
            Ok(DropMark {
                remaining: read_left(row)?,
                sku: Sku::new(row.text("sku")?).map_err(|error| damaged("sku", error))?,
                version: row.number("version")?,
                dropped_at_ms: row.number("dropped_at_ms")?,
            })
        };
        let rows = self.0.db.all(select).await?;
        let all: Result<_, Error> = rows.iter().map(mark).collect();
        Ok(all?)
    }

    /// Deletes markers that Redis no longer has.
    pub(crate) async fn forget_marks(self, marks: &[DropMark]) -> Result<(), SqlError> {
        let mut tx = self.0.db.begin().await?;
        for DropMark {
            remaining: former_placements,
            dropped_at_ms,
            ..
        } in marks
        {
            let delete = sql(DELETE_MARK)
                .number(former_placements.number)
                .text(former_placements.place.cluster.as_str())
                .text(former_placements.place.spu.as_str())
                .number(*dropped_at_ms);
            tx.execute(delete).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Starts a full rebuild of Redis.
    pub async fn begin_rebuild(self) -> Result<(), SqlError> {
        self.0.db.execute(sql(BEGIN_REBUILD)).await?;
        Ok(())
    }

    /// Advances a rebuild from one SKU number to another; `None`: to the end.
    pub async fn advance_rebuild(self, from: u64, to: Option<u64>) -> Result<(), SqlError> {
        let advance = match to {
            Some(to) => sql(ADVANCE_REBUILD).number(to).number(from),
            None => sql(END_REBUILD).number(from),
        };
        self.0.db.execute(advance).await?;
        Ok(())
    }
}

fn read_left(row: &Row) -> Result<FormerPlacement, Error> {
    let cluster = Cluster::new(&row.text("cluster")?);
    let spu = Spu::new(row.text("spu")?).map_err(|error| damaged("spu", error))?;
    Ok(FormerPlacement {
        number: row.number("number")?,
        place: Placement {
            cluster: cluster.ok_or_else(|| damaged("cluster", "is not a name"))?,
            spu,
        },
    })
}

fn read_delta(text: &str) -> Option<Delta> {
    let mut words = text.split(' ');
    let from_version = words.next()?.parse().ok()?;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for word in words {
        let (sign, number) = word.split_at_checked(1)?;
        let to = if sign == "+" {
            &mut added
        } else {
            &mut removed
        };
        to.push(number.parse().ok()?);
    }
    Some(Delta {
        from_version,
        added,
        removed,
    })
}
