//! The keys of the decision counts that gateways publish.

use alloc::format;
use alloc::vec::Vec;

use crate::tally::Subject;

/// The key of the decision counts for `subject` in the minute of `at_ms`, in milliseconds since the Unix epoch.
pub fn tally(prefix: &str, subject: Subject, at_ms: u64) -> Vec<u8> {
    let (subject, minute) = (subject.label(), at_ms / 60_000);
    format!("{prefix}:tally:{subject}:{minute}").into_bytes()
}

/// The keys of the minute of `now_ms` and of the preceding minutes, `minutes` in total.
pub fn tallies(
    prefix: &str,
    subject: Subject,
    now_ms: u64,
    minutes: u64,
) -> impl Iterator<Item = Vec<u8>> {
    let ago_ms = (0..minutes).map(|ago| ago * 60_000);
    ago_ms.map(move |ago_ms| tally(prefix, subject, now_ms.saturating_sub(ago_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_its_own_tally_key() {
        assert_eq!(tally("w", Subject::Limits, 59_999), b"w:tally:limits:0");
        assert_eq!(tally("w", Subject::Sales, 60_000), b"w:tally:sales:1");
        let mut last = tallies("w", Subject::Sales, 660_000, 2);
        assert_eq!(last.next().unwrap(), b"w:tally:sales:11");
        assert_eq!(last.next().unwrap(), b"w:tally:sales:10");
        assert_eq!(last.next(), None);
    }
}
