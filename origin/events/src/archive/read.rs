//! Reads events from files of the archive.

use axum::body::Bytes;
use object_store::path::Path;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::parser::parse_message_type;

use super::folder::{ArchiveError, Folder};
use super::work::day_folder;

/// The columns to read.
const COLUMNS: &str = "
    message event {
        required int64 at_ms (TIMESTAMP(MILLIS, true));
        optional binary customer (STRING);
        optional binary visitor (STRING);
        required binary attributes (STRING);
    }";

/// An archived event with the columns that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivedEvent {
    /// Event time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The customer.
    pub customer: Option<String>,
    /// The visitor id of the browser or app.
    pub visitor: Option<String>,
    /// All other attributes, as JSON.
    pub attributes: String,
}

impl Folder {
    /// Lists the files of this event type received on a day (UTC, counted from the Unix epoch).
    ///
    /// # Errors
    /// If the store fails or does not respond.
    pub async fn files(&self, event_type: &str, day: u64) -> Result<Vec<Path>, ArchiveError> {
        self.list(&day_folder(event_type, day)).await
    }

    /// Reads the events of a file.
    ///
    /// # Errors
    /// If the store fails, or the file is not an archive file.
    pub async fn events(&self, file: &Path) -> Result<Vec<ArchivedEvent>, ArchiveError> {
        let bytes = self.get(file).await?;
        let read = tokio::task::spawn_blocking(move || events(bytes)).await;
        let ended = |error: tokio::task::JoinError| ParquetError::General(error.to_string());
        Ok(read.map_err(ended)??)
    }
}

fn events(bytes: Bytes) -> Result<Vec<ArchivedEvent>, ParquetError> {
    let reader = SerializedFileReader::new(bytes)?;
    let columns = parse_message_type(COLUMNS)?;
    let rows = reader.get_row_iter(Some(columns))?;
    rows.map(|row| Ok(event(&row?))).collect()
}

fn event(row: &Row) -> ArchivedEvent {
    let mut event = ArchivedEvent::default();
    for (name, field) in row.get_column_iter() {
        match (name.as_str(), field) {
            ("at_ms", Field::TimestampMillis(at_ms)) => {
                event.at_ms = u64::try_from(*at_ms).unwrap_or(0);
            }
            ("customer", Field::Str(text)) => event.customer = Some(text.clone()),
            ("visitor", Field::Str(text)) => event.visitor = Some(text.clone()),
            ("attributes", Field::Str(text)) => event.attributes.clone_from(text),
            _ => {}
        }
    }
    event
}
