//! Reads relations from XML in the style of ACES, the Auto Care Association's standard for parts catalogues:
//!
//! ```xml
//! <ACES version="4.2">
//!   <App action="A" id="1">
//!     <BaseVehicle id="1000001"/> <Years from="2012" to="2015"/> <EngineBase id="2.0 TDI"/> <Position id="front"/>
//!     <Part>S1</Part>
//!   </App>
//! </ACES>
//! ```
//!
//! Each `App` is a relation: action `A` adds it, `D` removes it. `Years`, `EngineBase` and `Position` are stored as its
//! qualifiers. Elements that do not restrict the fitment, such as `Qty`, are ignored. All other elements are qualifiers
//! that are dropped: such an `App` is counted, and refused by a strict import.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::read::{ColumnProblem, Fields, RECORD_LEN_MAX, ReadError, RecordCollector};
use super::source::Bounded;

/// Elements of an `App` that do not restrict which vehicles the part fits.
const NEUTRAL: [&str; 6] = [
    "AssetItemOrder",
    "AssetItemRef",
    "AssetName",
    "DisplayOrder",
    "PartType",
    "Qty",
];

/// Maximum number of dropped qualifiers named in an error.
const DROPPED_NAMED: usize = 5;

/// An `App` that is being parsed.
#[derive(Default)]
struct App {
    line: u64,
    id: String,
    /// Number of open elements inside it.
    depth: usize,
    sku: String,
    vehicle: String,
    action: String,
    year_from: String,
    year_to: String,
    engine: String,
    position: String,
    is_in_part: bool,
    /// Names of the first dropped qualifiers.
    dropped: Vec<String>,
}

/// Reads from the collector's position: the start of the file, or after an `App`. Returns true at the end of the file.
pub(super) fn read(mut file: File, taker: &mut RecordCollector<'_>) -> Result<bool, ReadError> {
    let (position, line) = (taker.progress().position, taker.progress().line);
    file.seek(SeekFrom::Start(position))?;
    let from = BufReader::with_capacity(1 << 18, Bounded::new(file));
    let mut reader = Reader::from_reader(CountingReader::new(from, position, line));
    let config = reader.config_mut();
    // After a resume in the middle of the file, the start tags are missing.
    config.allow_unmatched_ends = true;
    config.check_end_names = false;
    let (mut buffer, mut app) = (Vec::new(), None::<App>);
    while taker.remaining() > 0 {
        buffer.clear();
        reader.get_mut().from.get_mut().search();
        let line = reader.get_ref().lines + 1;
        let event = reader.read_event_into(&mut buffer);
        let event = event.map_err(|error| broken(&error, line))?;
        match &event {
            Event::Eof if app.is_some() => {
                return Err(ReadError::File(format!(
                    "line {line}: an App has no end tag"
                )));
            }
            Event::Eof => return Ok(true),
            Event::End(end) if end.name().as_ref() == "App" => {
                if let Some(app) = app.take() {
                    app.hand_to(taker);
                }
                let (bytes, lines) = (reader.get_ref().bytes, reader.get_ref().lines);
                taker.progress().position = bytes;
                taker.progress().line = lines;
            }
            event => note(&mut app, event, line)?,
        }
    }
    Ok(false)
}

fn broken(error: &quick_xml::Error, line: u64) -> ReadError {
    match error {
        quick_xml::Error::Io(error) if error.kind() == ErrorKind::FileTooLarge => {
            ReadError::File(format!("line {line}: an element has no end tag"))
        }
        quick_xml::Error::Encoding(_) => ReadError::File(format!(
            "line {line}: the text is not UTF-8 and looks like Windows-1252: declare encoding=\"windows-1252\", or save the file as UTF-8"
        )),
        other => ReadError::File(format!("line {line}: {other}")),
    }
}

fn note(app: &mut Option<App>, event: &Event<'_>, line: u64) -> Result<(), ReadError> {
    match (event, app) {
        (Event::Start(start), app) if start.name().as_ref() == "App" => {
            *app = Some(App {
                line,
                id: attribute(start, "id", line)?,
                action: attribute(start, "action", line)?,
                ..App::default()
            });
        }
        (Event::Start(start), Some(app)) => {
            app.element(start, line)?;
            app.depth += 1;
        }
        (Event::Empty(start), Some(app)) => {
            app.element(start, line)?;
            app.is_in_part &= app.depth > 0;
        }
        (Event::End(_), Some(app)) => {
            app.depth = app.depth.saturating_sub(1);
            app.is_in_part &= app.depth > 0;
        }
        // Ignore further text: it is already too long for a SKU.
        (_, Some(app)) if app.sku.len() > RECORD_LEN_MAX => {}
        (Event::Text(text), Some(app)) if app.is_in_part => app.sku.push_str(text.trim()),
        (Event::CData(text), Some(app)) if app.is_in_part => app.sku.push_str(text.trim()),
        (Event::GeneralRef(entity), Some(app)) if app.is_in_part => {
            let broken = || ReadError::File(format!("line {line}: unknown XML entity"));
            let char = entity.resolve_char_ref().map_err(|_| broken())?;
            match (char, quick_xml::escape::resolve_predefined_entity(entity)) {
                (Some(char), _) => app.sku.push(char),
                (None, Some(text)) => app.sku.push_str(text),
                (None, None) => return Err(broken()),
            }
        }
        _ => {}
    }
    Ok(())
}

fn attribute(start: &BytesStart<'_>, name: &str, line: u64) -> Result<String, ReadError> {
    let broken = |error: &dyn std::fmt::Display| ReadError::File(format!("line {line}: {error}"));
    let found = start
        .try_get_attribute(name)
        .map_err(|error| broken(&error))?;
    let value = found.map(|found| {
        found
            .normalized_value(XmlVersion::Implicit1_0)
            .map(|value| value.trim().to_owned())
    });
    Ok(value
        .transpose()
        .map_err(|error| broken(&error))?
        .unwrap_or_default())
}

impl App {
    fn element(&mut self, start: &BytesStart<'_>, line: u64) -> Result<(), ReadError> {
        if self.depth > 0 {
            return Ok(());
        }
        match start.name().as_ref() {
            "BaseVehicle" => self.vehicle = attribute(start, "id", line)?,
            "EngineBase" => self.engine = attribute(start, "id", line)?,
            "Position" => self.position = attribute(start, "id", line)?,
            "Years" => {
                self.year_from = attribute(start, "from", line)?;
                self.year_to = attribute(start, "to", line)?;
            }
            "Part" => self.is_in_part = true,
            name if NEUTRAL.contains(&name) => {}
            name => self.drop_qualifier(name),
        }
        Ok(())
    }

    fn drop_qualifier(&mut self, name: &str) {
        let is_new = self.dropped.iter().all(|existing| existing != name);
        if is_new && self.dropped.len() < DROPPED_NAMED {
            self.dropped.push(name.to_owned());
        }
    }

    /// The name of the `App` in errors.
    fn name(&self) -> String {
        match self.id.as_str() {
            "" => "the App".to_owned(),
            id => format!("App {id}"),
        }
    }

    fn hand_to(mut self, taker: &mut RecordCollector<'_>) {
        if let Err((element, reason)) = self.checked(taker.is_strict()) {
            return taker.error(self.line, element, reason);
        }
        match taker.try_take(self.line, &self.fields()) {
            Ok(()) => taker.progress().qualifiers_dropped += u64::from(!self.dropped.is_empty()),
            Err((column, reason)) => {
                let element = element_of(column);
                let reason = match element {
                    "Years" => format!(
                        "{}: Years must be 1880 to 2100, with from before to",
                        self.name()
                    ),
                    _ => format!("{}: {element} {reason}", self.name()),
                };
                taker.error(self.line, element, reason);
            }
        }
    }

    /// Translates the action. An error names the invalid or missing element.
    fn checked(&mut self, is_strict: bool) -> Result<(), ColumnProblem> {
        let name = self.name();
        for (element, text) in [("BaseVehicle", &self.vehicle), ("Part", &self.sku)] {
            if text.is_empty() {
                return Err((element, format!("{name} has no {element}")));
            }
        }
        self.action = match self.action.as_str() {
            "" | "A" => "add",
            "D" => "remove",
            other => {
                return Err((
                    "action",
                    format!("{name}: action is {other:?}, must be A or D"),
                ));
            }
        }
        .to_owned();
        if is_strict && !self.dropped.is_empty() {
            let dropped = self.dropped.join(", ");
            let reason = format!(
                "{name}: cannot store {dropped}: without strict=true the part fits every such vehicle"
            );
            return Err(("App", reason));
        }
        Ok(())
    }

    fn fields(&self) -> Fields<'_> {
        [
            &self.sku,
            &self.vehicle,
            &self.action,
            &self.year_from,
            &self.year_to,
            &self.engine,
            &self.position,
        ]
    }
}

/// The element of an `App` that corresponds to a relation's column.
pub(super) fn element_of(column: &str) -> &'static str {
    match column {
        "vehicle" => "BaseVehicle",
        "sku" => "Part",
        "year_from" | "year_to" => "Years",
        "engine" => "EngineBase",
        "position" => "Position",
        _ => "App",
    }
}

/// Counts the lines and bytes read.
struct CountingReader<R> {
    from: R,
    bytes: u64,
    lines: u64,
}

impl<R: BufRead> CountingReader<R> {
    fn new(from: R, bytes: u64, lines: u64) -> Self {
        Self { from, bytes, lines }
    }
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let some = self.fill_buf()?;
        let length = some.len().min(to.len());
        for (to, from) in to.iter_mut().zip(some) {
            *to = *from;
        }
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        if let Ok(some) = self.from.fill_buf() {
            let lines = some
                .iter()
                .take(length)
                .filter(|byte| **byte == b'\n')
                .count();
            self.lines += lines as u64;
        }
        self.bytes += length as u64;
        self.from.consume(length);
    }
}
