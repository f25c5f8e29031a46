//! Deletes released files.

use std::io::ErrorKind;

use crate::{Log, LogError, at};

/// How much of the [released](Log::release) data to keep for later reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Files written within this many milliseconds.
    pub age_ms: u64,
    /// The latest files, up to this many bytes in total.
    pub bytes_max: u64,
}

impl Retention {
    /// Keeps nothing.
    pub const NONE: Self = Self {
        age_ms: 0,
        bytes_max: 0,
    };
}

impl Log {
    /// Deletes whole released files that are older than `retention` allows, and the oldest ones beyond its size.
    /// Unreleased files remain regardless of age and size, so that a slow reader loses nothing.
    ///
    /// # Errors
    /// When a file cannot be deleted.
    pub fn retain(&self, retention: Retention, now_ms: u64) -> Result<(), LogError> {
        let shared = self.shared();
        let released = *shared.released.borrow();
        let written = *shared.written.borrow();
        let mut bytes = 0_u64;
        let mut removed = Vec::new();
        for (number, info) in shared.files().iter().rev() {
            bytes = bytes.saturating_add(info.len);
            let is_old = now_ms.saturating_sub(info.written_at_ms) >= retention.age_ms;
            let is_kept = !is_old && bytes <= retention.bytes_max;
            if *number < released.file && *number < written.file && !is_kept {
                removed.push(*number);
            }
        }
        for number in removed {
            let path = shared.folder.file(number);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => shared.files().remove(&number),
            };
        }
        Ok(())
    }
}
