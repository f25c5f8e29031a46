//! The group `archive`: events as Parquet files in Hive-style folders, `type=view/day=2026-11-23/hour=14/…`, for those who ask
//! questions about months.
//!
//! | module | does |
//! |---|---|
//! | `work` | gathers events, and says which of them are one step |
//! | `table` | makes a file of events |
//! | `folder` | where files go: a folder or S3 |
//! | `read` | reads events from files |
//!
//! A step is a range of the log. It is noted in SQL before its first file is written, and a file's name follows from it: after a
//! crash the same files are written once more, in the place of those that were there. Ranges never overlap, whatever was sought,
//! so a reader finds each record of the log in one file.

mod folder;
mod read;
mod table;
mod work;

use std::time::Duration;

pub use folder::{ArchiveError, Folder};
pub use read::ArchivedEvent;
pub(crate) use work::ArchiveWork;

/// The group's name.
pub const ARCHIVE_GROUP: &str = "archive";

/// How events are archived.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Where files go.
    pub folder: Folder,
    /// With so many bytes of events files are written.
    pub bytes_max: usize,
    /// So long after an event was read at the latest its file is written.
    pub every: Duration,
}
