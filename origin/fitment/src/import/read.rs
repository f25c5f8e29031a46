//! Reads a piece of an import's file: its valid records and its errors.

use std::fs::File;
use std::path::Path;

use roaring::RoaringBitmap;
use weir_fitment::{Merchant, Offset, ProductType, Sku, Spu, VehicleId};

#[cfg(feature = "aces")]
use super::aces;
use super::{Spec, table};
use crate::store::{
    ERRORS_MAX, ImportError, NewVehicle, Product, Progress, Qualifiers, StagedQualifier,
};

/// Maximum number of columns of a kind.
pub(super) const COLUMNS_MAX: usize = 7;

/// Maximum length of a record. A longer one has lost a quotation mark.
pub(super) const RECORD_LEN_MAX: usize = 16 * 1024;

/// A record's fields in the order of its kind's columns; empty if missing.
pub(super) type Fields<'a> = [&'a str; COLUMNS_MAX];

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Vehicles.
    Vehicles,
    /// Products.
    Products,
    /// Relations: which parts fit which vehicles.
    Relations,
}

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table with a header line, as in RFC 4180.
    Csv,
    /// XML in the style of ACES, for relations only.
    #[cfg(feature = "aces")]
    Aces,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Vehicles, Self::Products, Self::Relations];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Vehicles => "vehicles",
            Self::Products => "products",
            Self::Relations => "relations",
        }
    }

    /// Its columns, and the number of leading required columns.
    pub(super) const fn columns(self) -> (&'static [&'static str], usize) {
        match self {
            Self::Vehicles => (&["vehicle", "make", "model", "year", "engine"], 1),
            Self::Products => (&["sku", "spu", "type", "merchant"], 4),
            Self::Relations => (
                &[
                    "sku",
                    "vehicle",
                    "action",
                    "year_from",
                    "year_to",
                    "engine",
                    "position",
                ],
                2,
            ),
        }
    }
}

impl Format {
    /// All formats.
    pub const ALL: &[Self] = &[
        Self::Csv,
        #[cfg(feature = "aces")]
        Self::Aces,
    ];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            #[cfg(feature = "aces")]
            Self::Aces => "aces",
        }
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    File(String),
}

impl From<csv::Error> for ReadError {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Io(error),
            other => Self::File(format!("{other:?}")),
        }
    }
}

/// Offsets by vehicle id, as a two-level array: every relation needs a lookup.
#[derive(Default)]
pub(super) struct VehicleIndex(Vec<Option<Box<[u32; 1_000]>>>);

impl VehicleIndex {
    pub(super) fn insert(&mut self, vehicle: VehicleId, offset: Offset) {
        let (page, at) = Self::place(vehicle);
        if self.0.len() <= page {
            self.0.resize_with(page + 1, || None);
        }
        if let Some(page) = self.0.get_mut(page)
            && let Some(to) = page.get_or_insert_with(|| Box::new([0; 1_000])).get_mut(at)
        {
            *to = offset.get();
        }
    }

    fn get(&self, vehicle: VehicleId) -> Option<Offset> {
        let (page, at) = Self::place(vehicle);
        Offset::new(*self.0.get(page)?.as_ref()?.get(at)?)
    }

    fn place(vehicle: VehicleId) -> (usize, usize) {
        let number = vehicle.number() as usize;
        (number / 1_000, number % 1_000)
    }
}

/// The relations of one SKU in a piece.
#[derive(Debug)]
pub(super) struct SkuPiece {
    pub sku: Sku,
    /// Its first line.
    pub line: u64,
    pub added: RoaringBitmap,
    pub removed: RoaringBitmap,
    pub qualifiers: Vec<StagedQualifier>,
}

/// The valid records of a piece.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub vehicles: Vec<(VehicleId, NewVehicle)>,
    pub products: Vec<(Sku, Product)>,
    pub relations: Vec<SkuPiece>,
}

/// A piece of a file.
pub(super) struct FilePiece {
    pub content: Content,
    /// The first errors.
    pub errors: Vec<ImportError>,
    /// Where the next piece begins, and the totals up to there.
    pub progress: Progress,
    pub is_end: bool,
}

/// Collects records one at a time.
pub(super) struct RecordCollector<'v> {
    pub(super) kind: Kind,
    is_strict: bool,
    vehicles: &'v VehicleIndex,
    content: Content,
    errors: Vec<ImportError>,
    progress: Progress,
    remaining: usize,
}

/// Reads up to `records_max` records, starting at `progress`.
pub(super) fn read_piece(
    path: &Path,
    spec: Spec,
    vehicles: &VehicleIndex,
    progress: Progress,
    records_max: usize,
) -> Result<FilePiece, ReadError> {
    let file = File::open(path)?;
    let mut taker = RecordCollector {
        kind: spec.kind,
        is_strict: spec.is_strict,
        vehicles,
        content: Content::default(),
        errors: Vec::new(),
        progress,
        remaining: records_max.max(1),
    };
    let is_end = match spec.format {
        Format::Csv => table::read(file, &mut taker)?,
        #[cfg(feature = "aces")]
        Format::Aces => aces::read(file, &mut taker)?,
    };
    Ok(FilePiece {
        content: taker.content,
        errors: taker.errors,
        progress: taker.progress,
        is_end,
    })
}

impl RecordCollector<'_> {
    /// Number of records that it still accepts.
    pub(super) fn remaining(&self) -> usize {
        self.remaining
    }

    /// The position up to which the file is read.
    pub(super) fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// Whether to refuse records with qualifiers that would be dropped.
    #[cfg(feature = "aces")]
    pub(super) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Adds a record of a table, or stores its error.
    pub(super) fn take(&mut self, line: u64, fields: &Fields<'_>) {
        if let Err((column, reason)) = self.try_take(line, fields) {
            self.error(line, column, reason);
        }
    }

    /// Adds a record; lines count from 1. The caller must [store](Self::error) a returned error.
    pub(super) fn try_take(&mut self, line: u64, fields: &Fields<'_>) -> Result<(), ColumnProblem> {
        match self.kind {
            Kind::Vehicles => vehicle(fields).map(|vehicle| self.content.vehicles.push(vehicle)),
            Kind::Products => product(fields).map(|product| self.content.products.push(product)),
            Kind::Relations => self.relation(line, fields),
        }?;
        self.progress.records += 1;
        self.remaining = self.remaining.saturating_sub(1);
        Ok(())
    }

    /// Stores an error.
    pub(super) fn error(&mut self, line: u64, column: &str, reason: String) {
        self.remaining = self.remaining.saturating_sub(1);
        if self.progress.errors < ERRORS_MAX {
            self.errors.push(ImportError {
                line,
                column: column.to_owned(),
                reason,
            });
        }
        self.progress.errors += 1;
    }

    fn relation(&mut self, line: u64, fields: &Fields<'_>) -> Result<(), ColumnProblem> {
        let [name, vehicle, action, year_from, year_to, engine, position] = *fields;
        let vehicle: VehicleId = vehicle.parse().map_err(|error| wrong("vehicle", error))?;
        let offset = self
            .vehicles
            .get(vehicle)
            .ok_or_else(|| wrong("vehicle", format_args!("{vehicle} is unknown")))?;
        let is_added = match action {
            "" | "add" => true,
            "remove" => false,
            other => {
                return Err(wrong(
                    "action",
                    format_args!("is {other:?}, must be add or remove"),
                ));
            }
        };
        let qualifiers = Qualifiers {
            year_from: year(year_from, "year_from")?,
            year_to: year(year_to, "year_to")?,
            engine: engine.to_owned(),
            position: position.to_owned(),
        };
        qualifiers.check()?;
        // Files usually list the relations of a SKU consecutively.
        if self
            .content
            .relations
            .last()
            .is_none_or(|last| last.sku.as_str() != name)
        {
            let sku = Sku::new(name).map_err(|error| wrong("sku", error))?;
            self.content.relations.push(SkuPiece {
                sku,
                line,
                added: RoaringBitmap::new(),
                removed: RoaringBitmap::new(),
                qualifiers: Vec::new(),
            });
        }
        let Some(chunk) = self.content.relations.last_mut() else {
            return Ok(());
        };
        let (to, from) = match is_added {
            true => (&mut chunk.added, &mut chunk.removed),
            false => (&mut chunk.removed, &mut chunk.added),
        };
        to.insert(offset.get());
        from.remove(offset.get());
        if is_added && !qualifiers.is_empty() {
            chunk
                .qualifiers
                .push(StagedQualifier(offset.get(), qualifiers));
        }
        Ok(())
    }
}

/// The name of a column, and its problem.
pub(super) type ColumnProblem = (&'static str, String);

fn wrong(column: &'static str, reason: impl std::fmt::Display) -> ColumnProblem {
    (column, reason.to_string())
}

fn year(text: &str, column: &'static str) -> Result<u16, ColumnProblem> {
    match text {
        "" => Ok(0),
        text => text
            .parse()
            .ok()
            .filter(|year| (1_880..=2_100).contains(year))
            .ok_or_else(|| wrong(column, "must be a year, 1880 to 2100")),
    }
}

fn vehicle(fields: &Fields<'_>) -> Result<(VehicleId, NewVehicle), ColumnProblem> {
    let [vehicle, make, model, year_text, engine, ..] = *fields;
    let vehicle = vehicle.parse().map_err(|error| wrong("vehicle", error))?;
    let about = NewVehicle {
        make: make.to_owned(),
        model: model.to_owned(),
        year: year(year_text, "year")?,
        engine: engine.to_owned(),
    };
    about.check()?;
    Ok((vehicle, about))
}

fn product(fields: &Fields<'_>) -> Result<(Sku, Product), ColumnProblem> {
    let [sku, spu, product_type, merchant, ..] = *fields;
    let sku = Sku::new(sku).map_err(|error| wrong("sku", error))?;
    let product = Product {
        spu: Spu::new(spu).map_err(|error| wrong("spu", error))?,
        product_type: ProductType::new(product_type).map_err(|error| wrong("type", error))?,
        merchant: Merchant::new(merchant).map_err(|error| wrong("merchant", error))?,
    };
    Ok((sku, product))
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// Reads a file piece by piece, like an import. Returns the progress and the number of errors.
    fn read_all(text: &[u8], spec: Spec) -> Result<(Progress, usize), ReadError> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(text)?;
        let mut vehicles = VehicleIndex::default();
        for number in 1_000_001..1_000_010 {
            if let (Ok(id), Some(offset)) = (
                VehicleId::from_number(number),
                Offset::new(number - 1_000_000),
            ) {
                vehicles.insert(id, offset);
            }
        }
        let (mut progress, mut errors) = (Progress::default(), 0);
        loop {
            let chunk = read_piece(file.path(), spec, &vehicles, progress, 3)?;
            errors += chunk.errors.len();
            assert!(chunk.is_end || chunk.progress.position > progress.position);
            progress = chunk.progress;
            if chunk.is_end {
                return Ok((progress, errors));
            }
        }
    }

    /// Valid and invalid fragments for generated files.
    const CSV: [&str; 13] = [
        "sku,vehicle,action\n",
        "sku;vehicle;action\n",
        "S1,1000001,\n",
        "S2,1000002,remove\r\n",
        "\"S,3\",1000003,add\n",
        "S1,100000x,\n",
        "\"",
        ",",
        "\n",
        "\u{feff}",
        "S1,1000001,add,more\n",
        "é,\0",
        "\r",
    ];

    const XML: [&str; 15] = [
        "<ACES>",
        "<Qual id=\"1\"><text>2 Door</text>",
        "<App action=\"A\">",
        "<BaseVehicle id=\"1000001\"/>",
        "<Part>S1</Part>",
        "<Part>S&amp;1",
        "</Part>",
        "</App>",
        "<App action=\"D\"><BaseVehicle id=\"1000002\"/><Part>S2</Part></App>\n",
        "<Years from=\"x\" to=\"2015\"/>",
        "&nothing;",
        "<![CDATA[",
        "<!--",
        "\"<",
        "</ACES>",
    ];

    proptest! {
        /// Every uploaded file is read to its end or refused, and never past its end.
        #[test]
        fn arbitrary_files_never_panic_the_reader(
            pieces in prop::collection::vec(prop_oneof![4 => 0..14_usize, 1 => 14..200_usize], 0..30),
            is_begun in any::<bool>(),
        ) {
            for (format, all, begin) in [
                (Format::Csv, &CSV[..], CSV[0]),
                #[cfg(feature = "aces")]
                (Format::Aces, &XML[..], XML[0]),
            ] {
                let mut text = Vec::from(if is_begun { begin } else { "" });
                for chunk in &pieces {
                    match all.get(*chunk) {
                        Some(chunk) => text.extend_from_slice(chunk.as_bytes()),
                        None => text.push(*chunk as u8),
                    }
                }
                let spec = Spec {
                    kind: Kind::Relations,
                    format,
                    mode: Mode::Merge,
                    is_strict: false,
                };
                if let Ok((progress, errors)) = read_all(&text, spec) {
                    prop_assert!(progress.position <= text.len() as u64);
                    prop_assert!(errors as u64 == progress.errors);
                }
            }
        }
    }
}
