//! Vehicle fitment in SQL, the source of truth. Redis is derived from it.
//!
//! | module | |
//! |---|---|
//! | `vehicles` | vehicle ids and their offsets |
//! | `skus` | products, and the vehicles that they fit |
//! | `inverse` | the inverse index: the parts that fit a vehicle |
//! | `outbox` | changes that Redis does not have yet, and the progress of rebuilds |
//! | `garages` | the vehicles of users |
//! | `imports` | imports, with their staged relations |
//!
//! Each change first takes a version, by an UPDATE of the single row of `fitment_head`. This serializes the changes of
//! all origins, and offsets become visible in order.

mod garages;
mod import_rows;
mod imports;
mod inverse;
mod outbox;
mod skus;
mod vehicles;

use roaring::RoaringBitmap;
use sqlx::Error;
use weir_fitment::Offset;

use weir_origin_core::clock::Clock;
use weir_origin_core::sql::{Database, SqlError, Tx, damaged, sql};

pub use garages::{Bound, GARAGE_MAX, GarageStore, GarageVehicle};
pub use import_rows::{Import, ImportError, NewImport, Progress, State};
pub use imports::{ERRORS_MAX, ImportStore, StagedQualifier, StagedSku};
pub use inverse::{InverseStore, PAGE_LEN};
pub use outbox::{Dirty, FormerPlacement, OutboxStore};
pub use skus::{ChangeOutcome, Product, ProductChange, Qualifiers, SkuChangeOutcome};
pub use vehicles::{NewVehicle, Vehicle};

pub(crate) use inverse::Inverse;
pub(crate) use skus::SkuRow;

const TAKE_VERSION: &str = "UPDATE fitment_head SET version = version + 1 WHERE id = 1";

const NEW_STAMP: &str = "UPDATE fitment_head SET stamp = stamp + 1 WHERE id = 1";

const NEW_GENERATION: &str = "UPDATE fitment_head SET generation = generation + 1 WHERE id = 1";

const SELECT_HEAD: &str =
    "SELECT version, generation, stamp, rebuilt_up_to FROM fitment_head WHERE id = 1";

/// The single row of `fitment_head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last version.
    pub version: u64,
    /// Generation of the vehicle map.
    pub generation: u64,
    /// Stamp of cached pages.
    pub stamp: u64,
    /// Progress of a rebuild: the last completed SKU number. `None`: no rebuild is running.
    pub rebuilt_up_to: Option<u64>,
}

/// Vehicle fitment in SQL. Cloning is cheap.
///
/// Times are milliseconds since the Unix epoch. A call fails only if SQL is unreachable or returns an error.
#[derive(Clone)]
pub struct FitmentStore {
    db: Database,
    clock: Clock,
}

impl std::fmt::Debug for FitmentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FitmentStore").finish_non_exhaustive()
    }
}

impl FitmentStore {
    /// Creates the store on a database.
    pub fn new(db: Database, clock: Clock) -> Self {
        Self { db, clock }
    }

    fn now_ms(&self) -> u64 {
        (self.clock)()
    }

    /// Reads version, generation and stamp.
    pub async fn head(&self) -> Result<Head, SqlError> {
        let row = self.db.one(sql(SELECT_HEAD)).await?;
        let row = row.ok_or_else(|| damaged("fitment_head", "has no row"))?;
        Ok(Head {
            version: row.number("version")?,
            generation: row.number("generation")?,
            stamp: row.number("stamp")?,
            rebuilt_up_to: row.maybe("rebuilt_up_to")?,
        })
    }

    /// Begins a transaction with a new version. Other changes of fitment wait until it ends.
    async fn change(&self) -> Result<(Tx, u64), Error> {
        let mut tx = self.db.begin().await?;
        tx.execute(sql(TAKE_VERSION)).await?;
        let row = tx.one(sql(SELECT_HEAD)).await?;
        let row = row.ok_or_else(|| damaged("fitment_head", "has no row"))?;
        let version = row.number("version")?;
        Ok((tx, version))
    }

    /// Garages: the vehicles of users.
    pub fn garages(&self) -> GarageStore<'_> {
        GarageStore(self)
    }

    /// Imports: progress, errors and staged relations.
    pub fn import_jobs(&self) -> ImportStore<'_> {
        ImportStore(self)
    }

    /// The inverse index: parts by vehicle.
    pub fn by_vehicle(&self) -> InverseStore<'_> {
        InverseStore(self)
    }

    /// Changes that Redis does not have yet.
    pub fn changes(&self) -> OutboxStore<'_> {
        OutboxStore(self)
    }
}

/// Decodes a set of offsets. Empty bytes: the fitment is unknown.
fn read_fits(bytes: &[u8]) -> Result<Option<RoaringBitmap>, Error> {
    match bytes {
        [] => Ok(None),
        bytes => read_set(bytes).map(Some),
    }
}

fn read_set(bytes: &[u8]) -> Result<RoaringBitmap, Error> {
    RoaringBitmap::deserialize_from(bytes).map_err(|error| damaged("fits", error))
}

/// Encodes a set of offsets.
pub(crate) fn write_set(set: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(set.serialized_size());
    // Writing to a vector cannot fail.
    let _ = set.serialize_into(&mut bytes);
    bytes
}

/// The offsets in a set.
pub(crate) fn offsets(set: &RoaringBitmap) -> Vec<Offset> {
    set.iter().filter_map(Offset::new).collect()
}
