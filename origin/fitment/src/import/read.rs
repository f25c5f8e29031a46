//! Reads a piece of an import's file: what is sound of it, and what is wrong with the rest.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use roaring::RoaringBitmap;
use weir_fitment::{Merchant, Offset, ProductType, Sku, Spu, VehicleId};

#[cfg(feature = "aces")]
use super::aces;
use super::source::Bounded;
use crate::store::{
    ERRORS_MAX, ImportError, NewVehicle, Product, Progress, Qualifiers, StagedQualifier,
};

/// The most columns of a kind.
pub(super) const COLUMNS_MAX: usize = 7;

/// The longest record: what is longer has lost a quotation mark.
pub(super) const RECORD_LEN_MAX: usize = 16 * 1024;

const TOO_LONG: &str = "is too long: is there a quotation mark without its other?";

/// A record's fields in the order of its kind's columns; empty where there is none.
pub(super) type Fields<'a> = [&'a str; COLUMNS_MAX];

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Vehicles.
    Vehicles,
    /// Products.
    Products,
    /// What fits what.
    Relations,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table with a line of names, by RFC 4180.
    Csv,
    /// XML in the manner of ACES: relations only.
    #[cfg(feature = "aces")]
    Aces,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Vehicles, Self::Products, Self::Relations];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vehicles => "vehicles",
            Self::Products => "products",
            Self::Relations => "relations",
        }
    }

    /// Its columns, and how many of the first must be there.
    const fn columns(self) -> (&'static [&'static str], usize) {
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
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Csv,
        #[cfg(feature = "aces")]
        Self::Aces,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            #[cfg(feature = "aces")]
            Self::Aces => "aces",
        }
    }
}

/// Why a file cannot be read at all.
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

/// Offsets by id: two steps into arrays, as each relation asks.
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

/// What a piece says of one SKU.
#[derive(Debug)]
pub(super) struct SkuPiece {
    pub sku: Sku,
    /// The first line about it.
    pub line: u64,
    pub added: RoaringBitmap,
    pub removed: RoaringBitmap,
    pub qualifiers: Vec<StagedQualifier>,
}

/// What is sound of a piece.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub vehicles: Vec<(VehicleId, NewVehicle)>,
    pub products: Vec<(Sku, Product)>,
    pub relations: Vec<SkuPiece>,
}

/// A piece of a file.
pub(super) struct Piece {
    pub content: Content,
    /// The first of what is wrong.
    pub errors: Vec<ImportError>,
    /// Where the next piece begins, and what was read up to there.
    pub progress: Progress,
    pub is_end: bool,
}

/// Takes records, one after the other.
pub(super) struct Taker<'v> {
    kind: Kind,
    vehicles: &'v VehicleIndex,
    content: Content,
    errors: Vec<ImportError>,
    progress: Progress,
    left: usize,
}

/// Reads up to `records_max` records from `progress` on.
pub(super) fn read_piece(
    path: &Path,
    kind: Kind,
    format: Format,
    vehicles: &VehicleIndex,
    progress: Progress,
    records_max: usize,
) -> Result<Piece, ReadError> {
    let file = File::open(path)?;
    let mut taker = Taker {
        kind,
        vehicles,
        content: Content::default(),
        errors: Vec::new(),
        progress,
        left: records_max.max(1),
    };
    let is_end = match format {
        Format::Csv => read_csv(file, &mut taker)?,
        #[cfg(feature = "aces")]
        Format::Aces => aces::read(file, &mut taker)?,
    };
    Ok(Piece {
        content: taker.content,
        errors: taker.errors,
        progress: taker.progress,
        is_end,
    })
}

fn csv_reader<R: Read>(from: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .buffer_capacity(1 << 18)
        .from_reader(from)
}

/// Where each column of the kind stands, and how many fields a record has.
fn header(file: &mut File, kind: Kind) -> Result<(Vec<Option<usize>>, usize, u64), ReadError> {
    file.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    let mut reader = BufReader::new(&mut *file).take(RECORD_LEN_MAX as u64);
    reader.read_until(b'\n', &mut first)?;
    let length = first.len() as u64;
    // What Excel puts before a table in UTF-8.
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
    let mut names = csv::ByteRecord::new();
    csv_reader(text).read_byte_record(&mut names)?;
    let (columns, needed) = kind.columns();
    let place = |name: &&str| {
        names
            .iter()
            .position(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    if let Some(unknown) = names.iter().find(|name| {
        !columns
            .iter()
            .any(|column| name.eq_ignore_ascii_case(column.as_bytes()))
    }) {
        let unknown = String::from_utf8_lossy(unknown);
        return Err(ReadError::File(format!(
            "line 1: unknown column {unknown:?}; there may be {}",
            columns.join(", ")
        )));
    }
    let places: Vec<_> = columns.iter().map(place).collect();
    let missing = columns
        .iter()
        .zip(&places)
        .take(needed)
        .find(|(_, place)| place.is_none());
    match missing {
        Some((name, _)) => Err(ReadError::File(format!(
            "line 1: there is no column {name}"
        ))),
        None => Ok((places, names.len(), length)),
    }
}

fn read_csv(mut file: File, taker: &mut Taker<'_>) -> Result<bool, ReadError> {
    let (places, width, header_len) = header(&mut file, taker.kind)?;
    let (base, base_line) = match taker.progress.position {
        0 => (header_len, 1),
        position => (position, taker.progress.line),
    };
    file.seek(SeekFrom::Start(base))?;
    let mut reader = csv_reader(Bounded::new(file));
    let mut record = csv::ByteRecord::new();
    while taker.left > 0 {
        reader.get_mut().search();
        let begins = base_line + reader.position().line();
        let read = reader.read_byte_record(&mut record);
        if !read.map_err(|error| broken(error, begins))? {
            return Ok(true);
        }
        let line = base_line + record.position().map_or(0, csv::Position::line);
        taker.record(line, &record, &places, width);
        let behind = reader.position();
        taker.progress.position = base + behind.byte();
        // The reader counts lines from 1.
        taker.progress.line = base_line + behind.line() - 1;
    }
    Ok(false)
}

/// Where a reader found no end.
fn broken(error: csv::Error, line: u64) -> ReadError {
    match ReadError::from(error) {
        ReadError::Io(error) if error.kind() == ErrorKind::FileTooLarge => {
            ReadError::File(format!("line {line}: {TOO_LONG}"))
        }
        other => other,
    }
}

impl Taker<'_> {
    fn record(
        &mut self,
        line: u64,
        record: &csv::ByteRecord,
        places: &[Option<usize>],
        width: usize,
    ) {
        if record.len() != width {
            let reason = format!("has {} fields, must have {width}", record.len());
            return self.error(line, "", reason);
        }
        if record.as_slice().len() > RECORD_LEN_MAX {
            return self.error(line, "", TOO_LONG.to_owned());
        }
        let mut fields = [""; COLUMNS_MAX];
        for ((to, place), name) in fields.iter_mut().zip(places).zip(self.kind.columns().0) {
            let bytes = place
                .and_then(|place| record.get(place))
                .unwrap_or_default();
            match std::str::from_utf8(bytes) {
                Ok(text) => *to = text,
                Err(_) => return self.error(line, name, "is not UTF-8".to_owned()),
            }
        }
        self.take(line, &fields);
    }

    /// How many records it still takes.
    #[cfg(feature = "aces")]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Where the file is read up to.
    #[cfg(feature = "aces")]
    pub(super) fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// Takes a record; its line is from 1.
    pub(super) fn take(&mut self, line: u64, fields: &Fields<'_>) {
        let taken = match self.kind {
            Kind::Vehicles => vehicle(fields).map(|vehicle| self.content.vehicles.push(vehicle)),
            Kind::Products => product(fields).map(|product| self.content.products.push(product)),
            Kind::Relations => self.relation(line, fields),
        };
        match taken {
            Ok(()) => {
                self.progress.records += 1;
                self.left = self.left.saturating_sub(1);
            }
            Err((column, reason)) => self.error(line, column, reason),
        }
    }

    /// Notes what is wrong.
    pub(super) fn error(&mut self, line: u64, column: &str, reason: String) {
        self.left = self.left.saturating_sub(1);
        if self.progress.errors < ERRORS_MAX {
            self.errors.push(ImportError {
                line,
                column: column.to_owned(),
                reason,
            });
        }
        self.progress.errors += 1;
    }

    fn relation(&mut self, line: u64, fields: &Fields<'_>) -> Result<(), Wrong> {
        let [name, vehicle, action, year_from, year_to, engine, position] = *fields;
        let vehicle: VehicleId = vehicle.parse().map_err(|error| wrong("vehicle", error))?;
        let offset = self
            .vehicles
            .get(vehicle)
            .ok_or_else(|| wrong("vehicle", format_args!("{vehicle} is unknown")))?;
        let is_added = match action {
            "" | "add" | "A" => true,
            "remove" | "D" => false,
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
        // Files have the relations of a SKU one after the other, mostly.
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
        let Some(piece) = self.content.relations.last_mut() else {
            return Ok(());
        };
        let (to, from) = match is_added {
            true => (&mut piece.added, &mut piece.removed),
            false => (&mut piece.removed, &mut piece.added),
        };
        to.insert(offset.get());
        from.remove(offset.get());
        if is_added && !qualifiers.is_empty() {
            piece
                .qualifiers
                .push(StagedQualifier(offset.get(), qualifiers));
        }
        Ok(())
    }
}

/// A column and what is wrong there.
type Wrong = (&'static str, String);

fn wrong(column: &'static str, reason: impl std::fmt::Display) -> Wrong {
    (column, reason.to_string())
}

fn year(text: &str, column: &'static str) -> Result<u16, Wrong> {
    match text {
        "" => Ok(0),
        text => text
            .parse()
            .ok()
            .filter(|year| (1_880..=2_100).contains(year))
            .ok_or_else(|| wrong(column, "must be a year, 1880 to 2100")),
    }
}

fn vehicle(fields: &Fields<'_>) -> Result<(VehicleId, NewVehicle), Wrong> {
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

fn product(fields: &Fields<'_>) -> Result<(Sku, Product), Wrong> {
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
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// Reads a file piece by piece, as an import does; what it says of it.
    fn read_all(text: &[u8], kind: Kind, format: Format) -> Result<(Progress, usize), ReadError> {
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
            let piece = read_piece(file.path(), kind, format, &vehicles, progress, 3)?;
            errors += piece.errors.len();
            assert!(piece.is_end || piece.progress.position > progress.position);
            progress = piece.progress;
            if piece.is_end {
                return Ok((progress, errors));
            }
        }
    }

    /// Pieces that a file may be made of, sound and broken.
    const CSV: [&str; 12] = [
        "sku,vehicle,action\n",
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

    const XML: [&str; 14] = [
        "<ACES>",
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
        /// Whatever is uploaded is read to its end or refused, and never past its end.
        #[test]
        fn no_file_breaks_the_reader(
            pieces in prop::collection::vec(prop_oneof![4 => 0..14_usize, 1 => 14..200_usize], 0..30),
            is_begun in any::<bool>(),
        ) {
            for (format, all, begin) in [
                (Format::Csv, &CSV[..], CSV[0]),
                #[cfg(feature = "aces")]
                (Format::Aces, &XML[..], XML[0]),
            ] {
                let mut text = Vec::from(if is_begun { begin } else { "" });
                for piece in &pieces {
                    match all.get(*piece) {
                        Some(piece) => text.extend_from_slice(piece.as_bytes()),
                        None => text.push(*piece as u8),
                    }
                }
                if let Ok((progress, errors)) = read_all(&text, Kind::Relations, format) {
                    prop_assert!(progress.position <= text.len() as u64);
                    prop_assert!(errors as u64 == progress.errors);
                }
            }
        }
    }
}
