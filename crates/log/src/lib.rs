//! A log: what was appended is kept, in its order, until all who need it have it.
//!
//! - [`Log`] appends. Whatever arrives while the disk writes is written together (group commit), so that many appends
//!   cost hardly more than one. An append returns when its records are as safe as [`Sync`] says.
//! - [`Reader`] reads from a [`Position`], without ever holding up the writer. Each reader keeps its position where its
//!   effects are, in one transaction with them, or in a [`Cursor`].
//! - [`Log::retain`] deletes whole files that nobody needs any more, by age and size.
//! - [`Log::seek`] finds the position of a time.
//!
//! A log is a folder of files, each only ever appended to. After a crash the next process leaves them as they are and
//! begins a new one; a reader passes over an end that was cut, which was never acknowledged, and keeps it aside.
//!
//! - `kill -9` loses nothing that was acknowledged: what was written is the kernel's.
//! - A power cut loses nothing with [`Sync::Disk`]; with [`Sync::Os`] it may lose what the system had not written yet, a
//!   few seconds at most.
//! - A full disk refuses appends; what was acknowledged stays.
//!
//! One process at a time has a folder: it holds the lock of the file `lock`. The file `id` names the log.

#![forbid(unsafe_code)]

mod cursor;
mod folder;
mod frame;
#[cfg(feature = "kafka")]
pub mod kafka;
mod read;
mod retain;
mod seek;
mod state;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use cursor::Cursor;
pub use frame::PAYLOAD_LEN_MAX;
pub use read::{Batch, Reader};
pub use retain::Retention;
pub use write::{AppendError, Limits, Log};

/// When a record counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the operating system has it: it survives the process, not the machine.
    #[default]
    Os,
    /// When the disk says that it has it: it survives the machine. Records that come together share one wait.
    Disk,
}

/// A place in a log: between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the file.
    pub file: u64,
    /// The bytes of it that lie before.
    pub byte: u64,
}

/// What is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Whose order counts: records of one partition belong together.
    pub partition: u16,
    /// What it is about, at most [`PAYLOAD_LEN_MAX`] bytes.
    pub payload: &'a [u8],
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it begins.
    pub position: Position,
    /// When it was appended, in milliseconds since the Unix epoch; 0 if nobody knows.
    pub time_ms: u64,
    /// As [`NewRecord::partition`].
    pub partition: u16,
    /// As [`NewRecord::payload`].
    pub payload: Vec<u8>,
}

/// Why there is no log to write to or to read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the folder.
    #[error("log folder \"{}\" is in use by another process: give each process its own", .0.display())]
    Taken(PathBuf),
    /// The folder or a file in it cannot be made or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file `id` holds something else.
    #[error("\"{}\" is not a log file name", .0.display())]
    Id(PathBuf),
    /// A cursor's file holds something else.
    #[error("\"{}\" is not a log position", .0.display())]
    Cursor(PathBuf),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { path, source }
}
