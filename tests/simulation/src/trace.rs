//! A hash of all events, which must be equal for two runs of one schedule. Optionally also their text.

use weir_base::hash::seeded_hash;

/// The trace of one schedule.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// `keeps_lines` also records text.
    pub(crate) fn new(keeps_lines: bool) -> Self {
        Self {
            hash: 0,
            lines: keeps_lines.then(Vec::new),
        }
    }

    pub(crate) fn mix(&mut self, number: u64) {
        self.hash = seeded_hash(self.hash, &number.to_le_bytes());
    }

    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        self.hash = seeded_hash(self.hash, bytes);
    }

    /// Adds a line if text is recorded.
    pub(crate) fn line(&mut self, at_us: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (seconds, us) = (at_us / 1_000_000, at_us % 1_000_000);
            lines.push(format!("{seconds}.{us:06} {}", text()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
