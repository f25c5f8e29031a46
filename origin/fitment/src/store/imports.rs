//! Stores imports: progress, errors, and staged relations, which are all applied in one transaction.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::Error;
use weir_fitment::{Offset, Placement, Sku, VehicleId};

use super::import_rows::{Import, ImportError, NewImport, Progress, State, import};
use super::skus::{clear_qualifiers, numbered_in, put_qualifiers};
use super::vehicles::put_vehicle;
use super::{
    FitmentStore, Inverse, NEW_STAMP, NewVehicle, Product, Qualifiers, read_set, write_set,
};
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, retried, sql};

/// Maximum number of stored errors of an import. All errors are counted.
pub const ERRORS_MAX: u64 = 1_000;

/// Number of relations collected before inverse rows are written: about 200 MB.
const INVERSE_MAX: usize = 16_000_000;

/// Staged rows read per statement.
const STAGED_READ: usize = 500;

const INSERT: &str = "
    INSERT INTO fitment_imports
    (kind, format, mode, is_strict, file, state, size, position, line, records, errors, message, created_at_ms, holder, lease_until_ms)
    VALUES (?, ?, ?, ?, ?, 'waiting', ?, 0, 0, 0, 0, '', ?, '', 0)";

const SELECT_FILE: &str = "SELECT id FROM fitment_imports WHERE file = ?";

const SELECT: &str = "
    SELECT id, kind, format, mode, is_strict, file, state, size, position, line, records, errors, qualifiers_dropped, message,
    created_at_ms, ended_at_ms
    FROM fitment_imports WHERE id = ?";

const SELECT_LATEST: &str = "
    SELECT id, kind, format, mode, is_strict, file, state, size, position, line, records, errors, qualifiers_dropped, message,
    created_at_ms, ended_at_ms
    FROM fitment_imports WHERE id < ? ORDER BY id DESC LIMIT ?";

const SELECT_OPEN: &str = "
    SELECT id, kind, format, mode, is_strict, file, state, size, position, line, records, errors, qualifiers_dropped, message,
    created_at_ms, ended_at_ms
    FROM fitment_imports WHERE state IN ('waiting', 'reading', 'applying') ORDER BY id LIMIT 100";

const TAKE: &str = "
    UPDATE fitment_imports SET holder = ?, lease_until_ms = ? WHERE id = ? AND (holder = ? OR lease_until_ms < ?)
    AND state IN ('waiting', 'reading', 'applying')";

const HOLDER: &str = "
    SELECT holder FROM fitment_imports WHERE id = ? AND state IN ('waiting', 'reading', 'applying')";

const ADVANCE: &str = "
    UPDATE fitment_imports SET state = ?, position = ?, line = ?, records = ?, errors = ?, qualifiers_dropped = ? WHERE id = ?";

const SET_SIZE: &str = "UPDATE fitment_imports SET size = ? WHERE id = ?";

const END: &str = "
    UPDATE fitment_imports SET state = ?, message = ?, records = ?, errors = ?, qualifiers_dropped = ?, ended_at_ms = ?
    WHERE id = ?";

const GIVEN_UP: &str = "cancelled";

const INSERT_ERROR: &str = "
    REPLACE INTO fitment_import_errors (import_id, place, line, field, reason) VALUES (?, ?, ?, ?, ?)";

const SELECT_ERRORS: &str = "
    SELECT line, field, reason FROM fitment_import_errors WHERE import_id = ? AND place >= ? ORDER BY place LIMIT ?";

const STAGE: &str = "
    REPLACE INTO fitment_staged (import_id, number, position, added, removed, qualifiers) VALUES (?, ?, ?, ?, ?, ?)";

const SELECT_STAGED: &str = "
    SELECT number, position, added, removed, qualifiers FROM fitment_staged
    WHERE import_id = ? AND (number > ? OR (number = ? AND position > ?)) ORDER BY number, position LIMIT ?";

const UNSTAGE: &str = "DELETE FROM fitment_staged WHERE import_id = ?";

/// Qualifiers of a relation, with the vehicle's offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedQualifier(pub u32, pub Qualifiers);

/// The changes of one SKU in a part of an import.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StagedSku {
    /// The SKU's number.
    pub number: u64,
    /// Offsets of vehicles that it now fits.
    pub added: RoaringBitmap,
    /// Offsets of vehicles that it no longer fits.
    pub removed: RoaringBitmap,
    /// Qualifiers of its relations.
    pub qualifiers: Vec<StagedQualifier>,
}

/// The final state of an import.
struct ImportResult<'a> {
    state: State,
    message: &'a str,
    progress: Progress,
}

/// Stores imports.
#[derive(Clone, Copy, Debug)]
pub struct ImportStore<'a>(pub(super) &'a FitmentStore);

impl ImportStore<'_> {
    /// Creates an import and returns its id.
    pub async fn new_import(self, new: &NewImport) -> Result<u64, SqlError> {
        let insert = sql(INSERT)
            .text(&new.kind)
            .text(&new.format)
            .text(&new.mode)
            .number(u8::from(new.is_strict))
            .text(&new.file)
            .number(new.size)
            .number(self.0.now_ms());
        self.0.db.execute(insert).await?;
        let row = self.0.db.one(sql(SELECT_FILE).text(&new.file)).await?;
        let row = row.ok_or_else(|| damaged("fitment_imports", "misses the row"))?;
        Ok(row.number("id")?)
    }

    /// Reads an import.
    pub async fn import(self, id: u64) -> Result<Option<Import>, SqlError> {
        let row = self.0.db.one(sql(SELECT).number(id)).await?;
        Ok(row.as_ref().map(import).transpose()?)
    }

    /// Lists imports with a smaller id than `before`, newest first.
    pub async fn imports(self, before: u64, limit: usize) -> Result<Vec<Import>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT_LATEST).number(before).number(limit))
            .await?;
        Ok(rows.iter().map(import).collect::<Result<_, _>>()?)
    }

    /// Lists the errors of an import, starting at the n-th.
    pub async fn import_errors(
        self,
        id: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<ImportError>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT_ERRORS).number(id).number(from).number(limit))
            .await?;
        let error = |row: &Row| {
            Ok(ImportError {
                line: row.number("line")?,
                column: row.text("field")?,
                reason: row.text("reason")?,
            })
        };
        let all: Result<_, Error> = rows.iter().map(error).collect();
        Ok(all?)
    }

    /// Leases the next import whose file is in this folder to `holder`. `None` if there is none, or another origin
    /// holds it.
    pub async fn take_import(
        self,
        holder: &str,
        life_ms: u64,
        is_here: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Option<Import>, SqlError> {
        for row in self.0.db.all(sql(SELECT_OPEN)).await? {
            let next = import(&row)?;
            if is_here(&next.file) && self.hold_import(next.id, holder, life_ms).await? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Renews the lease of an import. Returns false if the import has ended or another origin holds it.
    pub async fn hold_import(self, id: u64, holder: &str, life_ms: u64) -> Result<bool, SqlError> {
        let now_ms = self.0.now_ms();
        let take = sql(TAKE)
            .text(holder)
            .number(now_ms + life_ms)
            .number(id)
            .text(holder)
            .number(now_ms);
        Ok(self.0.db.execute(take).await? > 0)
    }

    /// Stores everything read since the last position, with the new position, in one transaction. The first of `errors`
    /// has the number `first_error`. Returns false if another origin holds the import.
    pub async fn stage(
        self,
        held: (u64, &str),
        state: State,
        progress: Progress,
        staged: &[StagedSku],
        (first_error, errors): (u64, &[ImportError]),
    ) -> Result<bool, SqlError> {
        let (id, holder) = held;
        Ok(retried(async || {
            let mut tx = self.0.db.begin().await?;
            if !is_held(&mut tx, id, holder).await? {
                return Ok(false);
            }
            for one in staged {
                stage_one(&mut tx, id, progress.position, one).await?;
            }
            for (place, error) in (first_error..ERRORS_MAX).zip(errors) {
                let insert = sql(INSERT_ERROR)
                    .number(id)
                    .number(place)
                    .number(error.line);
                let reason: String = error.reason.chars().take(255).collect();
                tx.execute(insert.text(&error.column).text(&reason)).await?;
            }
            let Progress {
                position,
                line,
                records,
                errors,
                qualifiers_dropped,
            } = progress;
            let advance = sql(ADVANCE)
                .text(state.label())
                .number(position)
                .number(line)
                .number(records)
                .number(errors)
                .number(qualifiers_dropped)
                .number(id);
            tx.execute(advance).await?;
            tx.commit().await?;
            Ok(true)
        })
        .await?)
    }

    /// Stores the length of a decoded file.
    pub async fn set_size(self, id: u64, size: u64) -> Result<(), SqlError> {
        let update = sql(SET_SIZE).number(size).number(id);
        Ok(self.0.db.execute(update).await.map(drop)?)
    }

    /// Marks an import as failed; nothing of it is applied. Returns false if another origin holds it.
    pub async fn fail_import(
        self,
        held: (u64, &str),
        message: &str,
        progress: Progress,
    ) -> Result<bool, SqlError> {
        let message: String = message.chars().take(500).collect();
        let mut tx = self.0.db.begin().await?;
        if !is_held(&mut tx, held.0, held.1).await? {
            return Ok(false);
        }
        tx.execute(sql(UNSTAGE).number(held.0)).await?;
        let ended = ImportResult {
            state: State::Failed,
            message: &message,
            progress,
        };
        self.end_in(&mut tx, held.0, &ended).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Cancels an import and marks it as failed. `None` if it has ended or does not exist. Waits for an import that is
    /// being applied.
    pub async fn give_up_import(self, id: u64) -> Result<Option<Import>, SqlError> {
        let (mut tx, _) = self.0.change().await?;
        let row = tx.one(sql(SELECT).number(id)).await?;
        let open = row.as_ref().map(import).transpose()?;
        let Some(open) = open.filter(|import| !import.state.is_end()) else {
            return Ok(None);
        };
        tx.execute(sql(UNSTAGE).number(id)).await?;
        let ended = ImportResult {
            state: State::Failed,
            message: GIVEN_UP,
            progress: open.progress,
        };
        self.end_in(&mut tx, id, &ended).await?;
        tx.commit().await?;
        Ok(Some(open))
    }

    async fn end_in(self, tx: &mut Tx, id: u64, ended: &ImportResult<'_>) -> Result<(), Error> {
        let end = sql(END)
            .text(ended.state.label())
            .text(ended.message)
            .number(ended.progress.records)
            .number(ended.progress.errors)
            .number(ended.progress.qualifiers_dropped)
            .number(self.0.now_ms())
            .number(id);
        tx.execute(end).await.map(drop)
    }

    /// Applies an import of vehicles, once. Returns false if another origin holds it.
    pub async fn apply_vehicles(
        self,
        held: (u64, &str),
        progress: Progress,
        vehicles: &[(VehicleId, NewVehicle)],
    ) -> Result<bool, SqlError> {
        Ok(retried(async || {
            let (mut tx, _) = self.0.change().await?;
            if !is_held(&mut tx, held.0, held.1).await? {
                return Ok(false);
            }
            for (vehicle, about) in vehicles {
                put_vehicle(&mut tx, *vehicle, about).await?;
            }
            self.done(tx, held.0, progress).await
        })
        .await?)
    }

    /// Applies an import of products, once. Returns false if another origin holds it.
    pub async fn apply_products(
        self,
        held: (u64, &str),
        progress: Progress,
        products: &[(Sku, Product)],
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<bool, SqlError> {
        Ok(retried(async || {
            let (mut tx, version) = self.0.change().await?;
            if !is_held(&mut tx, held.0, held.1).await? {
                return Ok(false);
            }
            for (sku, product) in products {
                self.0
                    .put_product(&mut tx, version, sku, product, place)
                    .await?;
            }
            self.done(tx, held.0, progress).await
        })
        .await?)
    }

    /// Applies all staged relations of an import, in one transaction. With `is_whole`, they replace the existing
    /// relations of each SKU. Returns false if another origin holds the import.
    pub async fn apply_relations(
        self,
        held: (u64, &str),
        progress: Progress,
        is_whole: bool,
        applied: &(dyn Fn(u64) + Sync),
    ) -> Result<bool, SqlError> {
        Ok(retried(async || {
            let (mut tx, version) = self.0.change().await?;
            if !is_held(&mut tx, held.0, held.1).await? {
                return Ok(false);
            }
            let (mut inverse, mut at, mut relations) = (Inverse::default(), (0, 0), 0);
            let mut current: Option<StagedSku> = None;
            loop {
                let pieces = staged_behind(&mut tx, held.0, at).await?;
                let is_end = pieces.is_empty();
                for (position, chunk) in pieces {
                    at = (chunk.number, position);
                    match &mut current {
                        Some(staged) if staged.number == chunk.number => staged.merge(chunk),
                        _ => {
                            let before = current.replace(chunk);
                            relations += self
                                .apply(&mut tx, &mut inverse, version, is_whole, before)
                                .await?;
                        }
                    }
                }
                if is_end {
                    break;
                }
                applied(relations);
            }
            self.apply(&mut tx, &mut inverse, version, is_whole, current)
                .await?;
            inverse.flush(&mut tx).await?;
            self.done(tx, held.0, progress).await
        })
        .await?)
    }

    /// Applies the staged changes of one SKU and returns the number of relations.
    async fn apply(
        self,
        tx: &mut Tx,
        inverse: &mut Inverse,
        version: u64,
        is_whole: bool,
        staged: Option<StagedSku>,
    ) -> Result<u64, Error> {
        let Some(staged) = staged else {
            return Ok(0);
        };
        // A SKU deleted meanwhile stays deleted.
        let row = numbered_in(tx, staged.number)
            .await?
            .filter(|row| !row.is_deleted);
        let Some(row) = row else {
            return Ok(0);
        };
        let count = staged.added.len() + staged.removed.len();
        let fits = match (is_whole, &row.fits) {
            (false, Some(old)) => (old - &staged.removed) | &staged.added,
            _ => staged.added,
        };
        self.0.apply_fits(tx, inverse, version, &row, &fits).await?;
        if is_whole {
            clear_qualifiers(tx, row.number).await?;
        }
        for offset in staged.removed.iter().filter_map(Offset::new) {
            if !is_whole {
                put_qualifiers(tx, row.number, offset, None).await?;
            }
        }
        for StagedQualifier(offset, of) in &staged.qualifiers {
            if let Some(offset) = Offset::new(*offset) {
                put_qualifiers(tx, row.number, offset, Some(of)).await?;
            }
        }
        if inverse.len() >= INVERSE_MAX {
            inverse.flush(tx).await?;
        }
        Ok(count)
    }

    async fn done(self, mut tx: Tx, id: u64, progress: Progress) -> Result<bool, Error> {
        tx.execute(sql(UNSTAGE).number(id)).await?;
        tx.execute(sql(NEW_STAMP)).await?;
        let ended = ImportResult {
            state: State::Done,
            message: "",
            progress,
        };
        self.end_in(&mut tx, id, &ended).await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl StagedSku {
    /// Merges a later part of the file, which takes precedence.
    pub(crate) fn merge(&mut self, later: Self) {
        self.added -= &later.removed;
        self.removed -= &later.added;
        self.added |= later.added;
        self.removed |= later.removed;
        self.qualifiers.extend(later.qualifiers);
    }
}

async fn is_held(tx: &mut Tx, id: u64, holder: &str) -> Result<bool, Error> {
    let row = tx.one(sql(HOLDER).number(id)).await?;
    Ok(row.map(|row| row.text("holder")).transpose()?.as_deref() == Some(holder))
}

async fn stage_one(tx: &mut Tx, id: u64, position: u64, one: &StagedSku) -> Result<(), Error> {
    let (added, removed) = (write_set(&one.added), write_set(&one.removed));
    let qualifiers = match one.qualifiers.as_slice() {
        [] => String::new(),
        all => json!(all).to_string(),
    };
    let stage = sql(STAGE)
        .number(id)
        .number(one.number)
        .number(position)
        .bytes(&added)
        .bytes(&removed)
        .bytes(qualifiers.as_bytes());
    tx.execute(stage).await.map(drop)
}

async fn staged_behind(
    tx: &mut Tx,
    id: u64,
    (number, position): (u64, u64),
) -> Result<Vec<(u64, StagedSku)>, Error> {
    let select = sql(SELECT_STAGED)
        .number(id)
        .number(number)
        .number(number)
        .number(position)
        .number(STAGED_READ);
    let rows = tx.all(select).await?;
    let one = |row: &Row| {
        let qualifiers = match row.bytes("qualifiers")?.as_slice() {
            [] => Vec::new(),
            json => serde_json::from_slice(json).map_err(|error| damaged("qualifiers", error))?,
        };
        let staged = StagedSku {
            number: row.number("number")?,
            added: read_set(&row.bytes("added")?)?,
            removed: read_set(&row.bytes("removed")?)?,
            qualifiers,
        };
        Ok((row.number("position")?, staged))
    };
    rows.iter().map(one).collect()
}
