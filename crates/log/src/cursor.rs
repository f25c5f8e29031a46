//! A reader's position, stored in a file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::folder::replace;
use crate::{LogError, Position, at};

/// A position that survives a power failure. After a crash, a reader reads the records after the last [`Cursor::store`]
/// again, so handlers must be idempotent (at-least-once delivery).
#[derive(Clone, Debug)]
pub struct Cursor {
    path: PathBuf,
}

impl Cursor {
    /// The cursor in the file `path`, whose folder must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last stored position; the beginning if there is none.
    ///
    /// # Errors
    /// When the file is unreadable or invalid: to restart from the beginning would handle all records again.
    pub fn load(&self) -> Result<Position, LogError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&text).ok_or_else(|| LogError::Cursor(self.path.clone())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Position::default()),
            Err(error) => Err(at(&self.path)(error)),
        }
    }

    /// Stores `position` atomically.
    ///
    /// # Errors
    /// When the disk reports an error.
    pub fn store(&self, position: Position) -> Result<(), LogError> {
        replace(
            &self.path,
            &format!("{} {}\n", position.file, position.byte),
        )
    }
}

fn parse(text: &str) -> Option<Position> {
    let (file, byte) = text.trim_end().split_once(' ')?;
    Some(Position {
        file: file.parse().ok()?,
        byte: byte.parse().ok()?,
    })
}
