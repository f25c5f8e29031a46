//! Parses a file into rows. Each row gives links to create, or an error; none is skipped.

use csv::StringRecord;
use serde::Deserialize;
use serde_json::{Map, Value};
use weir_link::record::RedirectStatus;

use super::format::{Columns, Format, plain, split, tags};
use super::{FileError, ImportedLink, RowError};
use crate::model::fields::{AppRequest, LinkFields, PreviewRequest, RuleRequest};
use crate::model::labels::{NAME_LEN_MAX, NOTE_LEN_MAX, TITLE_LEN_MAX};
use crate::model::request::LinkRequest;
use weir_origin_core::clock::parse_utc;

/// The line of the first row, after the header line.
pub const FIRST_LINE: u64 = 2;

/// Fields of a Weir export that an import reads. The other fields describe the link's state.
const OWN: [&str; 24] = [
    "domain",
    "code",
    "url",
    "target",
    "tags",
    "title",
    "note",
    "folder",
    "external_id",
    "state",
    "disabled",
    "life_ms",
    "ends_at_ms",
    "max_clicks",
    "clicks_left",
    "status",
    "pass_query",
    "language",
    "ended_target",
    "apps",
    "rules",
    "preview",
    "protected",
    "conversion",
];

/// A row of a file.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its line number.
    pub line: u64,
    /// The links to create, or the row's error.
    pub links: Result<Vec<ImportedLink>, RowError>,
}

/// The rows of a file.
pub struct Rows<'a> {
    file: &'a [u8],
    format: Format,
    head: Vec<String>,
    source: Source<'a>,
    /// Line offset of this part of the file.
    offset: u64,
}

enum Source<'a> {
    Table(Box<csv::ByteRecordsIntoIter<&'a [u8]>>),
    Lines(std::iter::Enumerate<std::str::Lines<'a>>),
}

/// The fields of `GET /links/{code}` that an import can restore.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExportedLink {
    domain: Option<String>,
    code: String,
    url: String,
    target: String,
    tags: Vec<String>,
    title: Option<String>,
    note: Option<String>,
    folder: Option<String>,
    external_id: Option<String>,
    state: String,
    disabled: bool,
    life_ms: Option<u64>,
    ends_at_ms: Option<u64>,
    max_clicks: Option<u64>,
    clicks_left: Option<u64>,
    status: Option<RedirectStatus>,
    pass_query: Option<bool>,
    language: Option<String>,
    ended_target: Option<String>,
    apps: Vec<AppRequest>,
    rules: Vec<RuleRequest>,
    preview: Option<PreviewRequest>,
    protected: bool,
    conversion: bool,
}

impl<'a> Rows<'a> {
    /// Reads `file`, whose first row has the line number `first_line` in the whole file.
    ///
    /// # Errors
    /// If the file does not have this format.
    pub fn read(format: Format, file: &'a [u8], first_line: u64) -> Result<Self, FileError> {
        let file = without_mark(file);
        if format == Format::Ndjson {
            let text = std::str::from_utf8(file).map_err(|_| FileError::NoText)?;
            return Ok(Self {
                file,
                format,
                head: Vec::new(),
                source: Source::Lines(text.lines().enumerate()),
                // NDJSON has no header line.
                offset: first_line.saturating_sub(1),
            });
        }
        let mut table = csv::ReaderBuilder::new()
            .flexible(true)
            .delimiter(delimiter(file))
            .from_reader(file);
        let head = table.headers().map_err(|_| FileError::NoText)?;
        let head: Vec<String> = head.iter().map(str::to_owned).collect();
        let rows = Self {
            file,
            format,
            head,
            source: Source::Table(Box::new(table.into_byte_records())),
            offset: first_line.saturating_sub(FIRST_LINE),
        };
        rows.check_head()?;
        Ok(rows)
    }

    fn check_head(&self) -> Result<(), FileError> {
        let has = |names: &[&str]| self.column(names).is_some();
        let (target, code) = match self.format.columns() {
            Some(columns) => (has(columns.target), has(columns.code) || has(columns.short)),
            None => (has(&["target"]), has(&["code"])),
        };
        match (target, code) {
            (true, true) => Ok(()),
            (false, _) => Err(FileError::NoColumn("the target")),
            (true, false) => Err(FileError::NoColumn("the code or the short link")),
        }
    }

    /// Columns that the import ignores.
    pub fn ignored_columns(&self) -> Vec<String> {
        let is_used = |name: &String| match self.format.columns() {
            Some(columns) => columns.all().any(|existing| existing == plain(name)),
            None => OWN.contains(&name.as_str()),
        };
        let ignored = self.head.iter().filter(|name| !is_used(name));
        ignored.cloned().collect()
    }

    /// The column of the first existing name.
    fn column(&self, names: &[&str]) -> Option<usize> {
        let position =
            |existing: &&str| self.head.iter().position(|name| plain(name) == **existing);
        names.iter().find_map(position)
    }

    fn row(&self, line: u64, cells: &csv::ByteRecord) -> Row {
        let Ok(cells) = StringRecord::from_byte_record(cells.clone()) else {
            return broken_row(line, None, "is not UTF-8");
        };
        match self.format.columns() {
            Some(columns) => self.foreign(line, &cells, &columns),
            None => self.own(line, &cells),
        }
    }

    fn foreign(&self, line: u64, cells: &StringRecord, columns: &Columns) -> Row {
        let cell = |names| {
            let column = self.column(names)?;
            let text = cells.get(column).unwrap_or_default().trim();
            (!text.is_empty()).then_some(text)
        };
        let (short_host, short_code) = cell(columns.short).map_or((None, ""), split);
        let code = cell(columns.code).unwrap_or(short_code);
        if has_break(code) || cell(columns.target).is_some_and(has_break) {
            return broken_row(
                line,
                None,
                "has a line break in a cell: check for an unclosed quotation mark",
            );
        }
        let host = cell(columns.host).or(short_host);
        let custom = cell(columns.custom)
            .into_iter()
            .flat_map(|all| all.split([',', '|', ' ']));
        let custom = custom
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(split);
        let Some(target) = cell(columns.target) else {
            return broken_row(line, Some(code), "has no target");
        };
        let ends = match cell(columns.ends).map(parse_utc) {
            Some(None) => return broken_row(line, Some(code), "has an invalid expiry time"),
            Some(Some(ms)) => Some(ms),
            None => None,
        };
        // A label that is too long for Weir is cut: better a short title than no link.
        let text = |names, len_max| {
            let text = cell(names)?
                .chars()
                .map(|one| if one.is_control() { ' ' } else { one });
            Some(text.take(len_max).collect())
        };
        let import = |(host, code): (Option<&str>, &str)| ImportedLink {
            host: host.map(str::to_owned),
            request: LinkRequest {
                code: Some(code.to_owned()),
                fields: LinkFields {
                    target: target.to_owned(),
                    title: text(columns.title, TITLE_LEN_MAX),
                    note: text(columns.note, NOTE_LEN_MAX),
                    folder: text(columns.folder, NAME_LEN_MAX),
                    external_id: cell(columns.external_id).map(str::to_owned),
                    tags: cell(columns.tags).map(tags).unwrap_or_default(),
                    ends_at_ms: ends,
                    ..LinkFields::default()
                },
                ..LinkRequest::default()
            },
            is_disabled: false,
        };
        let names = std::iter::once((host, code)).chain(custom);
        let names: Vec<_> = names.filter(|(_, code)| !code.is_empty()).collect();
        if names.is_empty() {
            return broken_row(line, None, "has no code");
        }
        Row {
            line,
            links: Ok(names.into_iter().map(import).collect()),
        }
    }

    /// Reads a row of Weir's own CSV: each cell is the field with the column's name.
    fn own(&self, line: u64, cells: &StringRecord) -> Row {
        let mut members = Map::new();
        for (name, cell) in self.head.iter().zip(cells) {
            let cell = unguarded(cell);
            if !cell.is_empty() {
                members.insert(name.clone(), member(name, cell));
            }
        }
        exported(line, Value::Object(members))
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        match &mut self.source {
            Source::Table(table) => {
                let row = table.next()?;
                let behind = table.reader().position().line();
                Some(match row {
                    Ok(cells) => {
                        let place = cells
                            .position()
                            .map(|position| row_start(self.file, position));
                        let line = place.map_or(behind, |(line, _)| line);
                        self.row(line + self.offset, &cells)
                    }
                    Err(error) => broken_row(behind + self.offset, None, &error.to_string()),
                })
            }
            Source::Lines(lines) => loop {
                let (n, text) = lines.next()?;
                if text.trim().is_empty() {
                    continue;
                }
                let line = self.offset + n as u64 + 1;
                let value = serde_json::from_str(text);
                let refused = |error: serde_json::Error| broken_row(line, None, &error.to_string());
                return Some(value.map_or_else(refused, |value| exported(line, value)));
            },
        }
    }
}

impl Columns {
    fn all(&self) -> impl Iterator<Item = &'static str> {
        let first = [self.target, self.short, self.code, self.custom];
        let rest = [self.host, self.tags, self.ends];
        let labels = [self.title, self.note, self.folder, self.external_id];
        first
            .into_iter()
            .chain(rest)
            .chain(labels)
            .flatten()
            .copied()
    }
}

/// Where a row begins: its line number and byte offset. The reader counts preceding line ends as part of the row.
pub fn row_start(file: &[u8], position: &csv::Position) -> (u64, usize) {
    let mut start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let mut line = position.line();
    while let Some(byte @ (b'\r' | b'\n')) = file.get(start) {
        line += u64::from(*byte == b'\n');
        start += 1;
    }
    (line, start)
}

/// Strips the byte order mark that some programs write before UTF-8.
pub fn without_mark(file: &[u8]) -> &[u8] {
    file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file)
}

/// Detects the delimiter: spreadsheets in some locales write `;`.
fn delimiter(file: &[u8]) -> u8 {
    let head = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let count = |requested: u8| head.iter().filter(|byte| **byte == requested).count();
    let all = [b',', b';', b'\t'];
    all.into_iter()
        .rev()
        .max_by_key(|requested| count(*requested))
        .unwrap_or(b',')
}

/// Removes the `'` that protects a cell from being a formula.
fn unguarded(cell: &str) -> &str {
    let is_guarded = |rest: &&str| rest.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let rest = cell.strip_prefix('\'').filter(is_guarded);
    rest.unwrap_or(cell)
}

/// Converts a cell: text fields stay text, tags are split, all other fields are JSON.
fn member(name: &str, cell: &str) -> Value {
    let text = || Value::String(cell.to_owned());
    match name {
        "domain" | "code" | "url" | "target" | "state" | "language" | "ended_target" | "title"
        | "note" | "folder" | "external_id" => text(),
        "tags" => tags(cell).into(),
        _ => serde_json::from_str(cell).unwrap_or_else(|_| text()),
    }
}

fn exported(line: u64, value: Value) -> Row {
    let code = value.get("code").and_then(Value::as_str).map(str::to_owned);
    let refused = |detail: &str| broken_row(line, code.as_deref(), detail);
    let link: ExportedLink = match serde_path_to_error::deserialize(&value) {
        Ok(link) => link,
        Err(error) => return refused(&error.to_string()),
    };
    let requested = [("code", &link.code), ("target", &link.target)];
    for (name, text) in requested {
        if text.is_empty() {
            return refused(&format!("has no {name}"));
        }
        if has_break(text) {
            return refused("has a line break in a cell: check for an unclosed quotation mark");
        }
    }
    if ["ended", "used_up"].contains(&link.state.as_str()) {
        let detail = format!("it is already {}", link.state.replace('_', " "));
        let imports = Err(row_error(line, code, "link_ended", detail));
        return Row {
            line,
            links: imports,
        };
    }
    if link.protected {
        // Without its password, anyone could follow the link.
        let detail = "it has a password, which exports omit: create it again";
        let imports = Err(row_error(line, code, "link_protected", detail.to_owned()));
        return Row {
            line,
            links: imports,
        };
    }
    let (host, _) = split(&link.url);
    let import = ImportedLink {
        host: host.map(str::to_owned),
        is_disabled: link.disabled || link.state == "disabled",
        request: LinkRequest {
            domain: link.domain,
            code: Some(link.code),
            fields: LinkFields {
                target: link.target,
                life_ms: link.life_ms,
                // Clicks used before stay used.
                max_clicks: link.clicks_left.or(link.max_clicks),
                language: link.language,
                status: link.status,
                pass_query: link.pass_query,
                ends_at_ms: link.ends_at_ms,
                apps: link.apps,
                rules: link.rules,
                ended_target: link.ended_target,
                preview: link.preview,
                conversion: link.conversion.then_some(true),
                title: link.title,
                note: link.note,
                folder: link.folder,
                external_id: link.external_id,
                tags: link.tags,
            },
            ..LinkRequest::default()
        },
    };
    Row {
        line,
        links: Ok(vec![import]),
    }
}

fn has_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn row_error(line: u64, code: Option<String>, error: &'static str, detail: String) -> RowError {
    RowError {
        line,
        code,
        error,
        detail,
    }
}

fn broken_row(line: u64, code: Option<&str>, detail: &str) -> Row {
    let code = code.filter(|code| !code.is_empty()).map(str::to_owned);
    Row {
        line,
        links: Err(row_error(
            line,
            code,
            "invalid_row",
            format!("the row {detail}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, file: &str) -> Vec<Row> {
        Rows::read(format, file.as_bytes(), FIRST_LINE)
            .unwrap()
            .collect()
    }

    fn imports(row: &Row) -> &[ImportedLink] {
        row.links.as_ref().unwrap()
    }

    #[test]
    fn row_line_numbers_refer_to_the_whole_file() {
        let file = "keyword,url,title\nabc,https://a.example/,\"two\nlines\"\n\nxyz,,\n";
        let rows = read(Format::Yourls, file);
        let lines: Vec<u64> = rows.iter().map(|row| row.line).collect();
        assert_eq!(lines, [2, 5]);
        let flaw = rows[1].links.as_ref().unwrap_err();
        assert_eq!((flaw.line, flaw.code.as_deref()), (5, Some("xyz")));
        let part = Rows::read(Format::Yourls, b"keyword,url\nabc,\n", 1_001).unwrap();
        assert_eq!(part.map(|row| row.line).collect::<Vec<_>>(), [1_001]);
    }

    #[test]
    fn bitly_custom_link_becomes_a_second_link() {
        let file = "Link,Custom Link,Destination URL,Title,Tags\n\
            bit.ly/3xYz1aB,go.example/spring,https://example.com/a,T,\"x, y\"\n";
        let rows = read(Format::Bitly, file);
        let all = imports(&rows[0]);
        let names: Vec<_> = all
            .iter()
            .map(|import| (import.host.as_deref(), import.request.code.as_deref()))
            .collect();
        let expected = [
            (Some("bit.ly"), Some("3xYz1aB")),
            (Some("go.example"), Some("spring")),
        ];
        assert_eq!(names, expected);
        assert_eq!(all[1].request.fields.tags, ["x", "y"]);
    }

    #[test]
    fn links_that_ended_in_weir_stay_ended_after_import() {
        let file = "code,target,state,clicks_left,rules\n\
            '-ab,https://a.example/,disabled,3,\"[{\"\"percent\"\":5,\"\"target\"\":\"\"https://b.example/\"\"}]\"\n\
            abc,https://a.example/,used_up,0,\n";
        let rows = read(Format::Csv, file);
        let import = &imports(&rows[0])[0];
        assert_eq!(import.request.code.as_deref(), Some("-ab"));
        assert_eq!(
            (import.is_disabled, import.request.fields.max_clicks),
            (true, Some(3))
        );
        assert_eq!(import.request.fields.rules[0].percent, Some(5));
        assert_eq!(rows[1].links.as_ref().unwrap_err().error, "link_ended");
    }

    #[test]
    fn unclosed_quote_is_reported_with_its_line() {
        let file = "keyword,url\nabc,https://a.example/\nxyz,\"https://b.example/\nnext,https://c.example/\n";
        let rows = read(Format::Yourls, file);
        let flaw = rows[1].links.as_ref().unwrap_err();
        assert_eq!(flaw.line, 3);
        assert!(flaw.detail.contains("quotation mark"), "{flaw:?}");
    }

    #[test]
    fn file_of_another_format_is_refused_completely() {
        let refused = |format, file: &str| Rows::read(format, file.as_bytes(), 2).err();
        let no_target = Some(FileError::NoColumn("the target"));
        assert_eq!(refused(Format::Shlink, "keyword,url\na,b\n"), no_target);
        assert_eq!(refused(Format::Bitly, ""), no_target);
        let no_code = Some(FileError::NoColumn("the code or the short link"));
        assert_eq!(refused(Format::Csv, "target\nx\n"), no_code);
    }

    #[test]
    fn table_can_have_other_separators_and_a_byte_order_mark() {
        let rows = read(
            Format::Yourls,
            "\u{feff}keyword;url\nabc;https://a.example/?a=1,2\n",
        );
        assert_eq!(
            imports(&rows[0])[0].request.fields.target,
            "https://a.example/?a=1,2"
        );
        let table = Rows::read(Format::Shlink, b"createdAt,shortCode,longUrl,visits\n", 2).unwrap();
        assert_eq!(table.ignored_columns(), ["createdAt", "visits"]);
    }
}
