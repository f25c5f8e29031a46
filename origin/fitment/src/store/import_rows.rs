//! The stored form of an import.

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;

use weir_origin_core::sql::{Row, damaged};

/// State of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ImportState)]
pub enum State {
    /// Not started.
    Waiting,
    /// The file is being read and checked; nothing changes.
    Reading,
    /// The file is valid and is being applied, in one transaction.
    Applying,
    /// It is applied.
    Done,
    /// Failed; nothing is applied.
    Failed,
}

impl State {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Reading => "reading",
            Self::Applying => "applying",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Whether this state is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// A new import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewImport {
    /// Content of the file.
    pub kind: String,
    /// Format of the file.
    pub format: String,
    /// What happens to existing relations.
    pub mode: String,
    /// Whether it refuses records with qualifiers that would be dropped.
    pub is_strict: bool,
    /// The unique name of its spool file.
    pub file: String,
    /// Its length in bytes.
    pub size: u64,
}

/// Its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ImportProgress)]
pub struct Progress {
    /// Bytes read.
    pub position: u64,
    /// Lines read.
    pub line: u64,
    /// Valid records.
    pub records: u64,
    /// Errors.
    pub errors: u64,
    /// Records with dropped qualifiers: their parts appear to fit more vehicles than in the file.
    pub qualifiers_dropped: u64,
}

/// An import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Import {
    /// Its id.
    pub id: u64,
    /// Content: `vehicles`, `products` or `relations`.
    pub kind: String,
    /// `csv` or `aces`.
    pub format: String,
    /// `merge` or `replace`.
    pub mode: String,
    /// Whether it refuses records with qualifiers that would be dropped.
    #[serde(rename = "strict")]
    pub is_strict: bool,
    #[serde(skip)]
    /// Its spool file.
    pub file: String,
    /// Its state.
    pub state: State,
    /// Bytes of the file.
    pub size: u64,
    /// Its progress.
    #[serde(flatten)]
    pub progress: Progress,
    /// Error message.
    pub message: String,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// End time, in milliseconds since the Unix epoch; null: still running.
    #[schema(required)]
    pub ended_at_ms: Option<u64>,
}

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ImportErrorsError)]
pub struct ImportError {
    /// The line, from 1.
    pub line: u64,
    /// The column's name; empty: the whole line.
    pub column: String,
    /// Description of the error.
    pub reason: String,
}

/// Decodes a row.
pub(super) fn import(row: &Row) -> Result<Import, Error> {
    let state = match row.text("state")?.as_str() {
        "waiting" => State::Waiting,
        "reading" => State::Reading,
        "applying" => State::Applying,
        "done" => State::Done,
        "failed" => State::Failed,
        _ => return Err(damaged("state", "is none")),
    };
    Ok(Import {
        id: row.number("id")?,
        kind: row.text("kind")?,
        format: row.text("format")?,
        mode: row.text("mode")?,
        is_strict: row.flag("is_strict")?,
        file: row.text("file")?,
        state,
        size: row.number("size")?,
        progress: Progress {
            position: row.number("position")?,
            line: row.number("line")?,
            records: row.number("records")?,
            errors: row.number("errors")?,
            qualifiers_dropped: row.number("qualifiers_dropped")?,
        },
        message: row.text("message")?,
        created_at_ms: row.number("created_at_ms")?,
        ended_at_ms: row.maybe("ended_at_ms")?,
    })
}
