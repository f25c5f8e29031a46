//! The inverse index, from a vehicle to the parts that fit it: SKU numbers in blobs of 16 vehicles and 65,536 SKUs.
//!
//! With one row per vehicle, each relation of a SKU would rewrite a row. An import of a million relations would then
//! touch hundreds of thousands of rows. Larger groups make single changes more expensive. See ADR 30.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use sqlx::Error;
use weir_fitment::{Offset, Sku};

use super::{FitmentStore, read_set, write_set};
use weir_origin_core::sql::{SqlError, Tx, damaged, sql};

/// Vehicles per row.
const VEHICLES: u32 = 16;

/// SKUs per row.
const SKUS: u64 = 1 << 16;

/// SKUs per page.
pub const PAGE_LEN: usize = 50;

const SELECT: &str = "SELECT bits FROM fitment_inverse WHERE vehicles = ? AND skus = ?";

const REPLACE: &str = "REPLACE INTO fitment_inverse (vehicles, skus, bits) VALUES (?, ?, ?)";

const DELETE: &str = "DELETE FROM fitment_inverse WHERE vehicles = ? AND skus = ?";

const SELECT_NEXT: &str = "
    SELECT skus, bits FROM fitment_inverse WHERE vehicles = ? AND skus >= ? ORDER BY skus LIMIT 1";

/// Has [`PAGE_LEN`] placeholders.
const SELECT_NAMES: &str = concat!(
    "SELECT number, sku FROM fitment_skus WHERE number IN (",
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ",
    "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ORDER BY number"
);

/// Collects changes, so that a row touched by many relations of an import is written once.
#[derive(Default)]
pub(crate) struct Inverse {
    rows: BTreeMap<(u64, u32), Row>,
    relations: usize,
}

#[derive(Default)]
struct Row {
    added: Vec<u32>,
    removed: Vec<u32>,
}

fn group(offset: u32) -> u32 {
    (offset - 1) / VEHICLES
}

fn bit(offset: u32, number: u64) -> u32 {
    // Less than 16 × 65,536.
    ((offset - 1) % VEHICLES) * SKUS as u32 + (number % SKUS) as u32
}

impl Inverse {
    /// Adds the changes of SKU `number`. SKUs must come in ascending order, which avoids sorting.
    pub(crate) fn note(&mut self, number: u64, added: &RoaringBitmap, removed: &RoaringBitmap) {
        let skus = number / SKUS;
        for offset in added {
            let row = self.rows.entry((skus, group(offset))).or_default();
            row.added.push(bit(offset, number));
        }
        for offset in removed {
            let row = self.rows.entry((skus, group(offset))).or_default();
            row.removed.push(bit(offset, number));
        }
        self.relations += usize::try_from(added.len() + removed.len()).unwrap_or(usize::MAX);
    }

    /// Number of collected relations.
    pub(crate) fn len(&self) -> usize {
        self.relations
    }

    /// Writes all collected rows.
    pub(crate) async fn flush(&mut self, tx: &mut Tx) -> Result<(), Error> {
        self.relations = 0;
        for ((skus, vehicles), row) in std::mem::take(&mut self.rows) {
            let select = sql(SELECT).number(vehicles).number(skus);
            let mut bits = match tx.one(select).await? {
                Some(found) => read_set(&found.bytes("bits")?)?,
                None => RoaringBitmap::new(),
            };
            bits -= sorted(row.removed);
            bits |= sorted(row.added);
            if bits.is_empty() {
                tx.execute(sql(DELETE).number(vehicles).number(skus))
                    .await?;
                continue;
            }
            let bytes = write_set(&bits);
            let replace = sql(REPLACE).number(vehicles).number(skus).bytes(&bytes);
            tx.execute(replace).await?;
        }
        Ok(())
    }
}

fn sorted(mut bits: Vec<u32>) -> RoaringBitmap {
    bits.sort_unstable();
    bits.dedup();
    RoaringBitmap::from_sorted_iter(bits).unwrap_or_default()
}

/// Reads the parts that fit a vehicle.
#[derive(Clone, Copy, Debug)]
pub struct InverseStore<'a>(pub(super) &'a FitmentStore);

impl InverseStore<'_> {
    /// A page of SKUs that fit a vehicle, sorted by number and starting after `after`. Also returns the `after` of the
    /// next page, if there is one.
    pub async fn fits_vehicle(
        self,
        offset: Offset,
        after: u64,
    ) -> Result<(Vec<Sku>, Option<u64>), SqlError> {
        let mut numbers = Vec::new();
        let (mut skus, first) = ((after + 1) / SKUS, after + 1);
        while numbers.len() <= PAGE_LEN {
            let select = sql(SELECT_NEXT).number(group(offset.get())).number(skus);
            let Some(row) = self.0.db.one(select).await? else {
                break;
            };
            skus = row.number("skus")?;
            let begin = bit(offset.get(), 0);
            let end = begin + (SKUS - 1) as u32;
            let bits = read_set(&row.bytes("bits")?)?;
            let numbered = bits
                .range(begin..=end)
                .map(|at| skus * SKUS + u64::from(at - begin));
            let requested = numbered.filter(|number| *number >= first);
            numbers.extend(requested.take(PAGE_LEN + 1 - numbers.len()));
            skus += 1;
        }
        let has_more = numbers.len() > PAGE_LEN;
        numbers.truncate(PAGE_LEN);
        let next = numbers.last().copied().filter(|_| has_more);
        Ok((self.names(&numbers).await?, next))
    }

    async fn names(self, numbers: &[u64]) -> Result<Vec<Sku>, SqlError> {
        let Some(last) = numbers.last() else {
            return Ok(Vec::new());
        };
        // Repeat the last number to fill the remaining placeholders.
        let places = numbers.iter().chain(std::iter::repeat(last)).take(PAGE_LEN);
        let select = places.fold(sql(SELECT_NAMES), |select, number| select.number(*number));
        let rows = self.0.db.all(select).await?;
        let name = |text: String| Sku::new(text).map_err(|error| damaged("sku", error));
        let names = rows.iter().map(|row| row.text("sku").and_then(name));
        Ok(names.collect::<Result<_, _>>()?)
    }
}
