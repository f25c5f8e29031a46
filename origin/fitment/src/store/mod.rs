//! Vehicle fitment in SQL, which is the truth; Redis is made of it.
//!
//! | module | |
//! |---|---|
//! | `vehicles` | ids and their offsets |
//! | `skus` | products, and what they fit |
//! | `inverse` | the same the other way round: what fits a vehicle |
//! | `outbox` | what Redis does not have as it is, and how far a rebuild is |
//! | `garages` | what users drive |
//! | `imports` | imports and what was read of them |
//!
//! Whoever changes anything takes a version first, by an UPDATE of the only row of `fitment_head`. So the changes of all origins
//! come one after the other, and offsets become visible in their order.

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

/// The only row of `fitment_head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last version.
    pub version: u64,
    /// Of the map of vehicles.
    pub generation: u64,
    /// Of pages.
    pub stamp: u64,
    /// How far a rebuild has come; `None`: none is under way.
    pub rebuilt_up_to: Option<u64>,
}

/// Vehicle fitment in SQL. Cloning it is cheap.
///
/// Instants are milliseconds since the Unix epoch. A call fails only when SQL does not answer or answers with an error.
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
    /// The store in this database.
    pub fn new(db: Database, clock: Clock) -> Self {
        Self { db, clock }
    }

    fn now_ms(&self) -> u64 {
        (self.clock)()
    }

    /// Version, generation and stamp.
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

    /// A transaction with a version of its own. Others that change fitment wait until it ends.
    async fn change(&self) -> Result<(Tx, u64), Error> {
        let mut tx = self.db.begin().await?;
        tx.execute(sql(TAKE_VERSION)).await?;
        let row = tx.one(sql(SELECT_HEAD)).await?;
        let row = row.ok_or_else(|| damaged("fitment_head", "has no row"))?;
        let version = row.number("version")?;
        Ok((tx, version))
    }

    /// Garages: what users drive.
    pub fn garages(&self) -> GarageStore<'_> {
        GarageStore(self)
    }

    /// Imports: how far they are, what is wrong in them, and what was read of relations until all of it is applied at once.
    pub fn import_jobs(&self) -> ImportStore<'_> {
        ImportStore(self)
    }

    /// What fits a vehicle: numbers of SKUs, in blobs of 16 vehicles and 65,536 SKUs.
    pub fn by_vehicle(&self) -> InverseStore<'_> {
        InverseStore(self)
    }

    /// What Redis does not have as it is: noted in the transaction that changes SQL, taken away when Redis has followed.
    pub fn changes(&self) -> OutboxStore<'_> {
        OutboxStore(self)
    }
}

/// A set of offsets as SQL has it. Empty bytes: nobody has said what it fits.
fn read_fits(bytes: &[u8]) -> Result<Option<RoaringBitmap>, Error> {
    match bytes {
        [] => Ok(None),
        bytes => read_set(bytes).map(Some),
    }
}

fn read_set(bytes: &[u8]) -> Result<RoaringBitmap, Error> {
    RoaringBitmap::deserialize_from(bytes).map_err(|error| damaged("fits", error))
}

/// The bytes of a set.
pub(crate) fn write_set(set: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(set.serialized_size());
    // A vector takes all.
    let _ = set.serialize_into(&mut bytes);
    bytes
}

/// Offsets of a set, which has nothing else.
pub(crate) fn offsets(set: &RoaringBitmap) -> Vec<Offset> {
    set.iter().filter_map(Offset::new).collect()
}
