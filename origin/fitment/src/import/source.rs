//! How the bytes of an uploaded file come to its reader: no more at once than memory should hold, and counted.

use std::io::{BufRead, ErrorKind, Read};

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

/// Counts the lines and the bytes that pass.
pub(super) struct Counted<R> {
    pub from: R,
    pub bytes: u64,
    pub lines: u64,
}

impl<R: BufRead> Counted<R> {
    pub(super) fn new(from: R, bytes: u64, lines: u64) -> Self {
        Self { from, bytes, lines }
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let some = self.fill_buf()?;
        let length = some.len().min(to.len());
        for (to, from) in to.iter_mut().zip(some) {
            *to = *from;
        }
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.from.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        if let Ok(some) = self.from.fill_buf() {
            let lines = some
                .iter()
                .take(length)
                .filter(|byte| **byte == b'\n')
                .count();
            self.lines += lines as u64;
        }
        self.bytes += length as u64;
        self.from.consume(length);
    }
}
