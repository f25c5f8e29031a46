//! Products and the vehicles that they fit.

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use sqlx::Error;
use utoipa::ToSchema;
use weir_base::id::IdError;
use weir_fitment::{Merchant, Offset, Placement, ProductType, Sku, Spu, VehicleId};

use super::outbox::{mark_dirty, mark_left};
use super::vehicles::offset_in;
use super::{FitmentStore, Inverse, NEW_STAMP, read_fits, write_set};
use weir_origin_core::sql::{MANY, Row, SqlError, Tx, damaged, filled, in_many, retried, sql};

const SELECT: &str = "
    SELECT number, sku, spu, product_type, merchant, is_deleted, version, fits FROM fitment_skus WHERE sku = ?";

const SELECT_NUMBER: &str = "
    SELECT number, sku, spu, product_type, merchant, is_deleted, version, fits FROM fitment_skus WHERE number = ?";

const SELECT_BEHIND: &str = "
    SELECT number, sku, spu, product_type, merchant, is_deleted, version, fits FROM fitment_skus
    WHERE number > ? ORDER BY number LIMIT ?";

const SELECT_SPU: &str = "
    SELECT number, sku, spu, product_type, merchant, is_deleted, version, fits FROM fitment_skus
    WHERE spu = ? AND number > ? ORDER BY number LIMIT ?";

const SELECT_MANY: &str = in_many!(
    "SELECT number, sku, spu, product_type, merchant, is_deleted, version, fits FROM fitment_skus WHERE sku"
);

const SELECT_NAMES: &str = in_many!("SELECT sku FROM fitment_skus WHERE sku");

const NUMBER: &str = "SELECT number FROM fitment_skus WHERE sku = ? AND is_deleted = 0";

const INSERT: &str = "
    INSERT INTO fitment_skus (spu, product_type, merchant, is_deleted, version, sku, fits) VALUES (?, ?, ?, ?, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE fitment_skus SET spu = ?, product_type = ?, merchant = ?, is_deleted = ?, version = ? WHERE sku = ?";

const SELECT_SOURCE: &str = "SELECT source_version FROM fitment_skus WHERE sku = ?";

const UPDATE_SOURCE: &str = "UPDATE fitment_skus SET source_version = ? WHERE sku = ?";

const UPDATE_FITS: &str = "UPDATE fitment_skus SET fits = ?, version = ? WHERE number = ?";

const DELETE_QUALIFIERS: &str = "DELETE FROM fitment_qualifiers WHERE number = ? AND place = ?";

const DELETE_ALL_QUALIFIERS: &str = "DELETE FROM fitment_qualifiers WHERE number = ?";

const REPLACE_QUALIFIERS: &str = "
    REPLACE INTO fitment_qualifiers (number, place, year_from, year_to, engine, position) VALUES (?, ?, ?, ?, ?, ?)";

const SELECT_QUALIFIERS: &str = "
    SELECT year_from, year_to, engine, position FROM fitment_qualifiers WHERE number = ? AND place = ?";

/// A product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FitmentProduct)]
pub struct Product {
    /// The SKU's product (SPU); for own goods, the main SKU.
    #[schema(value_type = String)]
    pub spu: Spu,
    /// The type of product, which selects its Redis.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub product_type: ProductType,
    /// The merchant.
    #[schema(value_type = String)]
    pub merchant: Merchant,
}

/// Qualifiers of a relation. 0 or an empty string: no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Qualifiers {
    /// First matching year.
    pub year_from: u16,
    /// Last matching year.
    pub year_to: u16,
    /// With this engine.
    pub engine: String,
    /// At this position on the vehicle, such as `front`.
    pub position: String,
}

/// A product change from the upstream system. Missing fields stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductChange {
    /// The SKU.
    pub sku: Sku,
    /// Increases with each change of the SKU.
    pub version: u64,
    /// The product that the SKU belongs to now.
    pub spu: Spu,
    /// The type of product.
    pub product_type: Option<ProductType>,
    /// The merchant.
    pub merchant: Option<Merchant>,
}

/// Result of a product change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// Applied in SQL.
    Done,
    /// This change or a later one is already applied.
    Stale,
    /// The SKU is unknown, and its type or merchant is missing.
    Unknown,
}

/// Result of a single change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkuChangeOutcome {
    /// Stored in SQL; Redis is updated later.
    Done,
    /// Nothing changed.
    Known,
    /// The SKU does not exist.
    NoSku,
    /// The vehicle does not exist.
    NoVehicle,
}

/// A row of a SKU.
#[derive(Clone, Debug)]
pub(crate) struct SkuRow {
    pub number: u64,
    pub sku: Sku,
    pub product: Product,
    pub is_deleted: bool,
    pub version: u64,
    /// The vehicles that it fits; `None`: unknown.
    pub fits: Option<RoaringBitmap>,
}

impl Qualifiers {
    /// Whether there is no qualifier.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the fields. An error names the invalid field.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let at_most = |name, text: &str| match text.chars().count() <= 64 {
            true => Ok(()),
            false => Err((name, "has more than 64 characters".to_owned())),
        };
        at_most("engine", &self.engine)?;
        at_most("position", &self.position)?;
        if self.year_to != 0 && self.year_from > self.year_to {
            return Err(("year_to", "is before year_from".to_owned()));
        }
        Ok(())
    }
}

impl FitmentStore {
    /// Creates or changes products. `place` returns a product's place in Redis; if it changes, the former place is
    /// recorded.
    pub async fn put_products(
        &self,
        products: &[(Sku, Product)],
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<(), SqlError> {
        Ok(retried(async || {
            let (mut tx, version) = self.change().await?;
            for (sku, product) in products {
                self.put_product(&mut tx, version, sku, product, place)
                    .await?;
            }
            tx.execute(sql(NEW_STAMP)).await?;
            tx.commit().await
        })
        .await?)
    }

    /// Applies product changes in order, each once. Outdated changes have no effect.
    pub async fn change_products(
        &self,
        changes: &[ProductChange],
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<Vec<ChangeOutcome>, SqlError> {
        Ok(retried(async || {
            let (mut tx, version) = self.change().await?;
            let mut applied = Vec::with_capacity(changes.len());
            for change in changes {
                applied.push(self.change_product(&mut tx, version, change, place).await?);
            }
            if applied.contains(&ChangeOutcome::Done) {
                tx.execute(sql(NEW_STAMP)).await?;
            }
            tx.commit().await?;
            Ok(applied)
        })
        .await?)
    }

    async fn change_product(
        &self,
        tx: &mut Tx,
        version: u64,
        change: &ProductChange,
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<ChangeOutcome, Error> {
        let source = tx.one(sql(SELECT_SOURCE).text(change.sku.as_str())).await?;
        let source: Option<u64> = source.map(|row| row.number("source_version")).transpose()?;
        if source.is_some_and(|applied| applied >= change.version) {
            return Ok(ChangeOutcome::Stale);
        }
        let old = row_in(tx, &change.sku).await?.filter(|old| !old.is_deleted);
        let (old_type, old_merchant) = old
            .map(|old| (old.product.product_type, old.product.merchant))
            .unzip();
        let product_type = change.product_type.clone().or(old_type);
        let merchant = change.merchant.clone().or(old_merchant);
        let (Some(product_type), Some(merchant)) = (product_type, merchant) else {
            return Ok(ChangeOutcome::Unknown);
        };
        let product = Product {
            spu: change.spu.clone(),
            product_type,
            merchant,
        };
        self.put_product(tx, version, &change.sku, &product, place)
            .await?;
        let update = sql(UPDATE_SOURCE).number(change.version);
        tx.execute(update.text(change.sku.as_str())).await?;
        Ok(ChangeOutcome::Done)
    }

    pub(super) async fn put_product(
        &self,
        tx: &mut Tx,
        version: u64,
        sku: &Sku,
        product: &Product,
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<(), Error> {
        let with_values = |statement| {
            sql(statement)
                .text(product.spu.as_str())
                .text(product.product_type.as_str())
                .text(product.merchant.as_str())
                .number(0)
                .number(version)
                .text(sku.as_str())
        };
        let Some(old) = row_in(tx, sku).await? else {
            tx.execute(with_values(INSERT).bytes(&[])).await?;
            return Ok(());
        };
        if old.product == *product && !old.is_deleted {
            return Ok(());
        }
        tx.execute(with_values(UPDATE)).await?;
        if place(&old.product) != place(product) {
            mark_left(tx, old.number, &place(&old.product)).await?;
        }
        mark_dirty(tx, old.number, version, None, self.now_ms()).await
    }

    /// Deletes a product; it is unknown afterwards. Returns whether it existed.
    pub async fn delete_product(
        &self,
        sku: &Sku,
        place: &(dyn Fn(&Product) -> Placement + Sync),
    ) -> Result<bool, SqlError> {
        Ok(retried(async || {
            let (mut tx, version) = self.change().await?;
            let Some(old) = row_in(&mut tx, sku).await?.filter(|old| !old.is_deleted) else {
                return Ok(false);
            };
            let mut inverse = Inverse::default();
            inverse.note(
                old.number,
                &RoaringBitmap::new(),
                &old.fits.unwrap_or_default(),
            );
            inverse.flush(&mut tx).await?;
            let update = sql(UPDATE)
                .text(old.product.spu.as_str())
                .text(old.product.product_type.as_str())
                .text(old.product.merchant.as_str())
                .number(1)
                .number(version)
                .text(sku.as_str());
            tx.execute(update).await?;
            let forget = sql(UPDATE_FITS)
                .bytes(&[])
                .number(version)
                .number(old.number);
            tx.execute(forget).await?;
            tx.execute(sql(DELETE_ALL_QUALIFIERS).number(old.number))
                .await?;
            mark_left(&mut tx, old.number, &place(&old.product)).await?;
            mark_dirty(&mut tx, old.number, version, None, self.now_ms()).await?;
            tx.execute(sql(NEW_STAMP)).await?;
            tx.commit().await?;
            Ok(true)
        })
        .await?)
    }

    /// Adds a relation, or changes its qualifiers.
    pub async fn add_relation(
        &self,
        sku: &Sku,
        vehicle: VehicleId,
        qualifiers: &Qualifiers,
    ) -> Result<SkuChangeOutcome, SqlError> {
        Ok(retried(async || self.try_relation(sku, vehicle, Some(qualifiers)).await).await?)
    }

    /// Removes a relation.
    pub async fn remove_relation(
        &self,
        sku: &Sku,
        vehicle: VehicleId,
    ) -> Result<SkuChangeOutcome, SqlError> {
        Ok(retried(async || self.try_relation(sku, vehicle, None).await).await?)
    }

    async fn try_relation(
        &self,
        sku: &Sku,
        vehicle: VehicleId,
        qualifiers: Option<&Qualifiers>,
    ) -> Result<SkuChangeOutcome, Error> {
        let (mut tx, version) = self.change().await?;
        let Some(row) = row_in(&mut tx, sku).await?.filter(|row| !row.is_deleted) else {
            return Ok(SkuChangeOutcome::NoSku);
        };
        let Some(offset) = offset_in(&mut tx, vehicle).await? else {
            return Ok(SkuChangeOutcome::NoVehicle);
        };
        let one = RoaringBitmap::from_iter([offset.get()]);
        let (added, removed) = match qualifiers {
            Some(_) => (one, RoaringBitmap::new()),
            None => (RoaringBitmap::new(), one),
        };
        let is_new = self
            .change_fits(&mut tx, &row, version, added, removed)
            .await?;
        put_qualifiers(&mut tx, row.number, offset, qualifiers).await?;
        tx.commit().await?;
        // The qualifiers may have changed, which Redis does not store.
        Ok(if is_new {
            SkuChangeOutcome::Done
        } else {
            SkuChangeOutcome::Known
        })
    }

    /// Changes the fitment of one SKU in both directions, and records the change for Redis. Returns false if nothing
    /// changed.
    async fn change_fits(
        &self,
        tx: &mut Tx,
        row: &SkuRow,
        version: u64,
        added: RoaringBitmap,
        removed: RoaringBitmap,
    ) -> Result<bool, Error> {
        let old = row.fits.clone().unwrap_or_default();
        let (added, removed) = (added - &old, removed & &old);
        if added.is_empty() && removed.is_empty() && row.fits.is_some() {
            return Ok(false);
        }
        let fits = (old - &removed) | &added;
        let bytes = write_set(&fits);
        tx.execute(
            sql(UPDATE_FITS)
                .bytes(&bytes)
                .number(version)
                .number(row.number),
        )
        .await?;
        let mut inverse = Inverse::default();
        inverse.note(row.number, &added, &removed);
        inverse.flush(tx).await?;
        let delta = row
            .fits
            .is_some()
            .then(|| delta(row.version, &added, &removed));
        mark_dirty(tx, row.number, version, delta.as_deref(), self.now_ms()).await?;
        Ok(true)
    }

    /// Writes the imported changes of one SKU. The caller flushes `inverse`.
    pub(crate) async fn apply_fits(
        &self,
        tx: &mut Tx,
        inverse: &mut Inverse,
        version: u64,
        row: &SkuRow,
        fits: &RoaringBitmap,
    ) -> Result<(), Error> {
        let old = row.fits.clone().unwrap_or_default();
        inverse.note(row.number, &(fits - &old), &(&old - fits));
        let bytes = write_set(fits);
        tx.execute(
            sql(UPDATE_FITS)
                .bytes(&bytes)
                .number(version)
                .number(row.number),
        )
        .await?;
        mark_dirty(tx, row.number, version, None, self.now_ms()).await
    }

    /// Reads one SKU, including deleted ones.
    pub(crate) async fn sku(&self, sku: &Sku) -> Result<Option<SkuRow>, SqlError> {
        let row = self.db.one(sql(SELECT).text(sku.as_str())).await?;
        Ok(row.as_ref().map(read).transpose()?)
    }

    /// Reads SKUs, in any order.
    pub(crate) async fn skus(&self, skus: &[&Sku]) -> Result<Vec<SkuRow>, SqlError> {
        self.many(SELECT_MANY, skus, read).await
    }

    /// Filters these SKUs to those in SQL, including deleted ones; in any order.
    pub(crate) async fn existing(&self, skus: &[&Sku]) -> Result<Vec<Sku>, SqlError> {
        let name = |row: &Row| {
            let name = row.text("sku")?;
            Sku::new(name).map_err(|error| damaged("sku", error))
        };
        self.many(SELECT_NAMES, skus, name).await
    }

    async fn many<T>(
        &self,
        select: &'static str,
        skus: &[&Sku],
        read: impl Fn(&Row) -> Result<T, Error>,
    ) -> Result<Vec<T>, SqlError> {
        let mut found = Vec::with_capacity(skus.len());
        for chunk in skus.chunks(MANY) {
            let select = filled(chunk).fold(sql(select), |select, sku| select.text(sku.as_str()));
            for row in self.db.all(select).await? {
                found.push(read(&row)?);
            }
        }
        Ok(found)
    }

    /// Lists up to `limit` SKUs after a number, of one product or of all.
    pub(crate) async fn skus_behind(
        &self,
        spu: Option<&Spu>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SkuRow>, SqlError> {
        let select = match spu {
            None => sql(SELECT_BEHIND).number(after).number(limit),
            Some(spu) => sql(SELECT_SPU)
                .text(spu.as_str())
                .number(after)
                .number(limit),
        };
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The qualifiers of a relation.
    pub async fn qualifiers(&self, sku: &Sku, offset: Offset) -> Result<Qualifiers, SqlError> {
        let Some(row) = self.sku(sku).await? else {
            return Ok(Qualifiers::default());
        };
        let select = sql(SELECT_QUALIFIERS)
            .number(row.number)
            .number(offset.get());
        let Some(row) = self.db.one(select).await? else {
            return Ok(Qualifiers::default());
        };
        Ok(Qualifiers {
            year_from: row.number("year_from")?,
            year_to: row.number("year_to")?,
            engine: row.text("engine")?,
            position: row.text("position")?,
        })
    }

    /// The number of a SKU, unless it is deleted.
    pub(crate) async fn sku_number(&self, sku: &Sku) -> Result<Option<u64>, SqlError> {
        let row = self.db.one(sql(NUMBER).text(sku.as_str())).await?;
        Ok(row.map(|row| row.number("number")).transpose()?)
    }
}

/// Reads one SKU by number inside a transaction.
pub(super) async fn numbered_in(tx: &mut Tx, number: u64) -> Result<Option<SkuRow>, Error> {
    let row = tx.one(sql(SELECT_NUMBER).number(number)).await?;
    row.as_ref().map(read).transpose()
}

async fn row_in(tx: &mut Tx, sku: &Sku) -> Result<Option<SkuRow>, Error> {
    let row = tx.one(sql(SELECT).text(sku.as_str())).await?;
    row.as_ref().map(read).transpose()
}

/// Writes the qualifiers of a relation; `None` removes them.
pub(super) async fn put_qualifiers(
    tx: &mut Tx,
    number: u64,
    offset: Offset,
    qualifiers: Option<&Qualifiers>,
) -> Result<(), Error> {
    let statement = match qualifiers.filter(|qualifiers| !qualifiers.is_empty()) {
        None => sql(DELETE_QUALIFIERS).number(number).number(offset.get()),
        Some(of) => sql(REPLACE_QUALIFIERS)
            .number(number)
            .number(offset.get())
            .number(of.year_from)
            .number(of.year_to)
            .text(&of.engine)
            .text(&of.position),
    };
    tx.execute(statement).await.map(drop)
}

/// Removes all qualifiers of a SKU.
pub(super) async fn clear_qualifiers(tx: &mut Tx, number: u64) -> Result<(), Error> {
    tx.execute(sql(DELETE_ALL_QUALIFIERS).number(number))
        .await
        .map(drop)
}

fn delta(version: u64, added: &RoaringBitmap, removed: &RoaringBitmap) -> String {
    let mut text = version.to_string();
    for (sign, offsets) in [('+', added), ('-', removed)] {
        for offset in offsets {
            text.push(' ');
            text.push(sign);
            text.push_str(&offset.to_string());
        }
    }
    text
}

pub(super) fn read(row: &Row) -> Result<SkuRow, Error> {
    fn name<T>(
        row: &Row,
        column: &str,
        read: fn(String) -> Result<T, IdError>,
    ) -> Result<T, Error> {
        read(row.text(column)?).map_err(|error| damaged(column, error))
    }
    Ok(SkuRow {
        number: row.number("number")?,
        sku: name(row, "sku", Sku::new)?,
        product: Product {
            spu: name(row, "spu", Spu::new)?,
            product_type: name(row, "product_type", ProductType::new)?,
            merchant: name(row, "merchant", Merchant::new)?,
        },
        is_deleted: row.flag("is_deleted")?,
        version: row.number("version")?,
        fits: read_fits(&row.bytes("fits")?)?,
    })
}
