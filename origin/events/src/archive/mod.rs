//! The group `archive`: writes events as Parquet files in Hive-style folders, such as
//! `type=view/day=2026-11-23/hour=14/…`, for queries over months.
//!
//! | module | does |
//! |---|---|
//! | `work` | collects events, and divides the log into steps |
//! | `table` | encodes a file of events |
//! | `folder` | the target of files: a folder or S3 |
//! | `read` | reads events from files |
//!
//! A step is a range of the log. SQL stores the step before its first file is written, and file names derive from it.
//! After a crash the group therefore rewrites the same files. Ranges never overlap, even after a seek, so each record
//! of the log is in exactly one file.

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

/// Archive settings.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Target of the files.
    pub folder: Folder,
    /// Files are written after this many bytes of events.
    pub bytes_max: usize,
    /// An event's file is written at most this long after the event was read.
    pub every: Duration,
}
