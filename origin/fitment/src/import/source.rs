//! Hands the bytes of an uploaded file to its reader: no more at once than memory should hold.

use std::io::{ErrorKind, Read};

/// The most bytes that are read in search of a record's end. More than one record's: readers read ahead.
const SEARCH_LEN_MAX: usize = 1 << 20;

/// Gives up on a record that has no end, as its reader would hold all of it in memory.
pub(super) struct Bounded<R> {
    from: R,
    left: usize,
}

impl<R> Bounded<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            left: SEARCH_LEN_MAX,
        }
    }

    /// The search for the next end begins.
    pub(super) fn search(&mut self) {
        self.left = SEARCH_LEN_MAX;
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let length = to.len().min(self.left);
        let read = self.from.read(to.get_mut(..length).unwrap_or_default())?;
        self.left -= read;
        Ok(read)
    }
}
