//! Splits a file into parts of whole rows. Each part is a file with the header line.

use anyhow::{Context, Result};
use hyper::body::Bytes;

use crate::import::format::Format;
use crate::import::rows::{row_start, without_mark};

/// Number of rows in a part: some seconds of work for an origin.
const ROWS: usize = 500;

/// Maximum bytes of a part, unless a single row is longer.
const BYTES: usize = 4 * 1024 * 1024;

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileChunk {
    /// The line number of its first row.
    pub first_line: u64,
    /// The header line and the rows.
    pub bytes: Bytes,
    /// Its end, as a byte offset in the whole file.
    pub end: u64,
}

/// Start of a row: its line number and byte offset.
type LinePosition = (u64, usize);

/// Splits `file`.
///
/// # Errors
/// If the file is not a valid table.
pub(super) fn cut(format: Format, file: &[u8]) -> Result<Vec<FileChunk>> {
    let file = without_mark(file);
    let (head, places) = match format {
        Format::Ndjson => (&b""[..], lines(file)),
        _ => rows(file)?,
    };
    let end_of = |n: usize| places.get(n).map_or(file.len(), |(_, start)| *start);
    let mut parts = Vec::new();
    let mut n = 0;
    while let Some((first_line, start)) = places.get(n).copied() {
        let mut next = n + 1;
        while next < places.len() && next - n < ROWS && end_of(next + 1) - start <= BYTES {
            next += 1;
        }
        let end = end_of(next);
        parts.push(FileChunk {
            first_line,
            bytes: [head, &file[start..end]].concat().into(),
            end: end as u64,
        });
        n = next;
    }
    Ok(parts)
}

/// The header with its line end, and where each row begins.
fn rows(file: &[u8]) -> Result<(&[u8], Vec<LinePosition>)> {
    // Delimiters do not matter here: only quotes and line ends do.
    let mut table = csv::ReaderBuilder::new()
        .flexible(true)
        .has_headers(false)
        .from_reader(file);
    let mut places = Vec::new();
    let mut row = csv::ByteRecord::new();
    while table.read_byte_record(&mut row).context("the file")? {
        let position = row.position().context("a row without a place")?;
        places.push(row_start(file, position));
    }
    let first = places.get(1).map_or(file.len(), |(_, start)| *start);
    let places = places.split_off(places.len().min(1));
    Ok((&file[..first], places))
}

fn lines(file: &[u8]) -> Vec<LinePosition> {
    let mut start = 0;
    let mut places = Vec::new();
    for (n, line) in file.split_inclusive(|byte| *byte == b'\n').enumerate() {
        places.push((n as u64 + 1, start));
        start += line.len();
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::rows::Rows;

    /// All parts together have the same rows and lines as the whole file.
    #[test]
    fn file_parts_contain_all_rows_of_the_whole_file() {
        let mut file = "keyword,url,title\r\n".to_owned();
        for n in 0..1_234 {
            let title = match n % 3 {
                0 => "\"two\nlines, \"\"and\"\" more\"",
                1 => "plain",
                _ => "",
            };
            file += &format!("code{n},https://e.example/{n},{title}\r\n");
            if n % 100 == 0 {
                file += "\r\n";
            }
        }
        let of = |bytes: &[u8], first_line| -> Vec<(u64, String)> {
            let rows = Rows::read(Format::Yourls, bytes, first_line).unwrap();
            rows.map(|row| {
                (
                    row.line,
                    row.links.unwrap()[0].request.fields.target.clone(),
                )
            })
            .collect()
        };
        let parts = cut(Format::Yourls, file.as_bytes()).unwrap();
        assert_eq!(parts.len(), 3);
        let all: Vec<_> = parts
            .iter()
            .flat_map(|part| of(&part.bytes, part.first_line))
            .collect();
        assert!(all == of(file.as_bytes(), 2), "other rows or lines");
        assert_eq!(parts.last().unwrap().end, file.len() as u64);
    }

    #[test]
    fn json_lines_have_no_header() {
        let file = "{}\n".repeat(501);
        let parts = cut(Format::Ndjson, file.as_bytes()).unwrap();
        let places: Vec<_> = parts
            .iter()
            .map(|part| (part.first_line, part.bytes.len(), part.end))
            .collect();
        assert_eq!(places, [(1, 1_500, 1_500), (501, 3, 1_503)]);
        assert!(cut(Format::Csv, b"").unwrap().is_empty());
        assert!(cut(Format::Csv, b"code,target\n").unwrap().is_empty());
    }
}
