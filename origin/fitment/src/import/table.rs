//! Tables: CSV by RFC 4180, with commas, semicolons or tabs.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

use super::read::{COLUMNS_MAX, Kind, RECORD_LEN_MAX, ReadError, RecordCollector};
use super::source::Bounded;

const NOT_UTF8: &str =
    "is not UTF-8 and looks like Windows-1252: save the file as UTF-8 (in Excel, \"CSV UTF-8\")";

/// The delimiters of fields.
const DELIMITERS: [u8; 3] = *b",;\t";

const TOO_LONG: &str = "is too long: check for an unclosed quotation mark";

fn csv_reader<R: Read>(from: R, delimiter: u8) -> csv::Reader<R> {
    csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .buffer_capacity(1 << 18)
        .from_reader(from)
}

/// The header line of a table.
struct Header {
    delimiter: u8,
    /// The index of each column of the kind in a record.
    places: Vec<Option<usize>>,
    /// Number of fields in a record.
    width: usize,
    len_bytes: u64,
}

/// Splits the header line by the delimiter that gives the most known names.
fn names(line: &[u8], columns: &[&str]) -> Result<(u8, csv::ByteRecord), ReadError> {
    let mut best = (0, b',', csv::ByteRecord::new());
    for (at, delimiter) in DELIMITERS.into_iter().enumerate() {
        let mut names = csv::ByteRecord::new();
        csv_reader(line, delimiter).read_byte_record(&mut names)?;
        let existing = names.iter().filter(|name| is_column(name, columns)).count();
        if at == 0 || existing > best.0 {
            best = (existing, delimiter, names);
        }
    }
    Ok((best.1, best.2))
}

fn is_column(name: &[u8], columns: &[&str]) -> bool {
    let mut columns = columns.iter();
    columns.any(|column| name.eq_ignore_ascii_case(column.as_bytes()))
}

fn header(file: &mut File, kind: Kind) -> Result<Header, ReadError> {
    file.seek(SeekFrom::Start(0))?;
    let mut first = Vec::new();
    let mut reader = BufReader::new(&mut *file).take(RECORD_LEN_MAX as u64);
    reader.read_until(b'\n', &mut first)?;
    let length = first.len() as u64;
    // Excel writes this byte order mark before a table in UTF-8.
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
    if std::str::from_utf8(text).is_err() {
        return Err(ReadError::File(format!("line 1 {NOT_UTF8}")));
    }
    let (columns, needed) = kind.columns();
    let (delimiter, names) = names(text, columns)?;
    let place = |name: &&str| {
        names
            .iter()
            .position(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    if let Some(unknown) = names.iter().find(|name| !is_column(name, columns)) {
        let unknown = String::from_utf8_lossy(unknown);
        return Err(ReadError::File(format!(
            "line 1: unknown column {unknown:?}; the columns are {}",
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
            "line 1: the column {name} is missing"
        ))),
        None => Ok(Header {
            delimiter,
            width: names.len(),
            places,
            len_bytes: length,
        }),
    }
}

/// Reads from the collector's position: the start of the file, or after a record. Returns true at the end of the file.
pub(super) fn read(mut file: File, taker: &mut RecordCollector<'_>) -> Result<bool, ReadError> {
    let header = header(&mut file, taker.kind)?;
    let (base, base_line) = match taker.progress().position {
        0 => (header.len_bytes, 1),
        position => (position, taker.progress().line),
    };
    file.seek(SeekFrom::Start(base))?;
    let mut reader = csv_reader(Bounded::new(file), header.delimiter);
    let mut record = csv::ByteRecord::new();
    while taker.remaining() > 0 {
        reader.get_mut().search();
        let begins = base_line + reader.position().line();
        let read = reader.read_byte_record(&mut record);
        if !read.map_err(|error| broken(error, begins))? {
            return Ok(true);
        }
        let line = base_line + record.position().map_or(0, csv::Position::line);
        taker.record(line, &record, &header);
        let behind = reader.position();
        let progress = taker.progress();
        progress.position = base + behind.byte();
        // The reader counts lines from 1.
        progress.line = base_line + behind.line() - 1;
    }
    Ok(false)
}

/// Converts a CSV error; a record without an end gets its own message.
fn broken(error: csv::Error, line: u64) -> ReadError {
    match ReadError::from(error) {
        ReadError::Io(error) if error.kind() == ErrorKind::FileTooLarge => {
            ReadError::File(format!("line {line}: {TOO_LONG}"))
        }
        other => other,
    }
}

impl RecordCollector<'_> {
    fn record(&mut self, line: u64, record: &csv::ByteRecord, header: &Header) {
        if record.len() != header.width {
            let reason = format!("has {} fields, must have {}", record.len(), header.width);
            return self.error(line, "", reason);
        }
        if record.as_slice().len() > RECORD_LEN_MAX {
            return self.error(line, "", TOO_LONG.to_owned());
        }
        let mut fields = [""; COLUMNS_MAX];
        for ((to, place), name) in fields
            .iter_mut()
            .zip(&header.places)
            .zip(self.kind.columns().0)
        {
            let bytes = place
                .and_then(|place| record.get(place))
                .unwrap_or_default();
            match std::str::from_utf8(bytes) {
                Ok(text) => *to = text,
                Err(_) => return self.error(line, name, NOT_UTF8.to_owned()),
            }
        }
        self.take(line, &fields);
    }
}
