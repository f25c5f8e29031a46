//! Reads the clock, and formats and parses times. No other module reads the system time.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock in milliseconds since the Unix epoch: [`now_ms`], except in tests.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Now, in milliseconds since the Unix epoch; 0 if the clock is set before it.
pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |time| time.as_millis().try_into().unwrap_or(u64::MAX))
}

/// Formats a time as RFC 3339, to the second: `2026-11-21T14:00:00Z`.
pub fn utc(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / DAY_MS, at_ms % DAY_MS / 1_000);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Converts days since 1970-01-01 to a date, with Howard Hinnant's `civil_from_days`: years start in March, so that the
/// leap day is a year's last day.
pub fn date(days: u64) -> (u64, u64, u64) {
    // Days per 400 years, per century, per four years and per year; and from 0000-03-01 to 1970-01-01.
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

/// Converts a date to days since 1970-01-01; `None`: the date does not exist or is earlier.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years start in March.
    let (year, of_year) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let since = 365 * year + leap_days + (153 * of_year + 2) / 5 + day - 1;
    // From 0000-03-01 to 1970-01-01.
    let since = since.checked_sub(719_468)?;
    // Rejects dates such as 30 February.
    (date(since).2 == day).then_some(since)
}

/// Parses RFC 3339 or ISO 8601 to milliseconds since the Unix epoch, such as `2026-11-21T14:00:00+01:00` or `2026-11-21
/// 13:00`. Without a zone the text is UTC. `None`: the text is not a time, or the time is before 1970.
pub fn parse_utc(text: &str) -> Option<u64> {
    let text = text.trim();
    let (date, rest) = text.split_at_checked(10)?;
    let parts: Option<Vec<u64>> = date.split('-').map(number).collect();
    let [year, month, day] = parts?[..] else {
        return None;
    };
    let day_ms = days(year, month, day)?.checked_mul(DAY_MS)?;
    let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else {
        return rest.is_empty().then_some(day_ms);
    };
    let end = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(end);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let parts: Option<Vec<u64>> = time.split(':').map(number).collect();
    let (hour, minute, second) = match parts?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    if hour > 23 || minute > 59 || second > 60 || number(fraction).is_none() {
        return None;
    }
    let at_ms = day_ms + ((hour * 60 + minute) * 60 + second) * 1_000;
    let offset_ms = match zone.strip_prefix(['+', '-']) {
        Some(offset) => offset_ms(offset)?,
        None if zone.len() <= 1 => 0,
        None => return None,
    };
    match zone.starts_with('-') {
        true => at_ms.checked_add(offset_ms),
        false => at_ms.checked_sub(offset_ms),
    }
}

/// Parses `01:00`, `0100` or `01`.
fn offset_ms(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(|char| *char != ':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = match minutes {
        "" => 0,
        minutes => number(minutes)?,
    };
    let hours = number(hours)?;
    (hours <= 23 && minutes <= 59).then_some((hours * 60 + minutes) * 60_000)
}

/// Parses digits only.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_written_timestamps_are_parsed() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000)),
            ("2000-02-29T01:00:00.123456+01:00", Some(951_782_400_000)),
            ("2000-02-28 19:00:00-0500", Some(951_782_400_000)),
            ("2100-03-01T00:00", Some(4_107_542_400_000)),
            ("2100-02-29", None),
            ("1969-12-31", None),
            ("1970-01-01T00:00:00+01:00", None),
            ("2000-02-29T24:00:00Z", None),
            ("2000-02-29T00:00:00 UTC", None),
            ("29.02.2000", None),
            ("2000-02-29X", None),
            ("", None),
        ] {
            assert_eq!(parse_utc(text), expected, "{text}");
        }
        for day in (0..60_000).step_by(7) {
            assert_eq!(parse_utc(&utc(day * DAY_MS)), Some(day * DAY_MS));
        }
    }

    #[test]
    fn timestamps_are_formatted_as_utc_dates() {
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
