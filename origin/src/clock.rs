//! The one place that reads the clock, and what instants are called.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Now, in milliseconds since the Unix epoch; 0 if the clock stands before it.
pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |time| time.as_millis().try_into().unwrap_or(u64::MAX))
}

/// An instant as RFC 3339 has it, to the second: `2026-11-21T14:00:00Z`.
pub fn utc(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / DAY_MS, at_ms % DAY_MS / 1_000);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date that is so many days after 1970-01-01, by Howard Hinnant's `civil_from_days`: years begin in
/// March, so that the leap day is the last of one.
pub fn date(days: u64) -> (u64, u64, u64) {
    // Days of 400 years, of a century, of four years, of a year; and from 0000-03-01 to 1970-01-01.
    const ERA: u64 = 146_097;
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, is_next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + is_next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_people_know_them() {
        for (at_ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_795_263_805_216, "2026-11-21T12:23:25Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(at_ms), expected);
        }
    }
}
