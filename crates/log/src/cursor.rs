//! A reader's position, kept in a file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::folder::replace;
use crate::{LogError, Position, at};

/// A position that survives the machine. What was handled after the last [`Cursor::store`] is read again, so whoever
/// handles it must bear that (at least once).
#[derive(Clone, Debug)]
pub struct Cursor {
    path: PathBuf,
}

impl Cursor {
    /// The cursor in the file `path`, whose folder must be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was stored last; the beginning if nothing was.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else: going on from the beginning would handle all again.
    pub fn load(&self) -> Result<Position, LogError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&text).ok_or_else(|| LogError::Cursor(self.path.clone())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Position::default()),
            Err(error) => Err(at(&self.path)(error)),
        }
    }

    /// Stores `position`, whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses.
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
