//! A persistent log: it stores records in order until all consumers have handled them.
//!
//! - [`Log`] appends. Group commit writes concurrent records together, so that many appends cost little more than one.
//!   An append returns when its records are as durable as [`Sync`] requires.
//! - [`Reader`] reads from a [`Position`] without blocking the writer. Each reader stores its position in one
//!   transaction with its effects, or in a [`Cursor`].
//! - [`Log::retain`] deletes whole released files by age and size.
//! - [`Log::seek`] finds the position of a time.
//!
//! A log is a folder of append-only files. After a crash the next process leaves existing files unchanged and starts a
//! new one. A reader skips a truncated end, which was never acknowledged, and saves a copy of it.
//!
//! - `kill -9` loses no acknowledged record: written data is in the kernel.
//! - A power failure loses nothing with [`Sync::Disk`]; with [`Sync::Os`] it may lose the last few seconds.
//! - A full disk rejects appends; acknowledged records remain.
//!
//! One process at a time can open a folder: it locks the file `lock`. The file `id` contains the log's name.

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
    /// When the operating system has it: it survives a crash of the process, but not of the machine.
    #[default]
    Os,
    /// When the disk has confirmed it: it survives a power failure. Concurrent records share one sync.
    Disk,
}

/// A position in a log, between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the file.
    pub file: u64,
    /// The byte offset in the file.
    pub byte: u64,
}

/// A record to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Its partition: records of one partition belong together.
    pub partition: u16,
    /// The payload, at most [`PAYLOAD_LEN_MAX`] bytes.
    pub payload: &'a [u8],
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The position of its start.
    pub position: Position,
    /// When it was appended, in milliseconds since the Unix epoch; 0 if unknown.
    pub time_ms: u64,
    /// As [`NewRecord::partition`].
    pub partition: u16,
    /// As [`NewRecord::payload`].
    pub payload: Vec<u8>,
}

/// Why a log cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has locked the folder.
    #[error("log folder \"{}\" is in use by another process: give each process its own", .0.display())]
    Taken(PathBuf),
    /// The folder or a file in it cannot be created or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file `id` is invalid.
    #[error("\"{}\" is not a log file name", .0.display())]
    Id(PathBuf),
    /// A cursor's file is invalid.
    #[error("\"{}\" is not a log position", .0.display())]
    Cursor(PathBuf),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { path, source }
}
