//! Days in the time zone of a statistics viewer.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::stats::DAY_MS;

/// An IANA time zone other than UTC, whose days are stored directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Finds a time zone by name, such as `Europe/Berlin`; `Some(None)`: UTC. `None`: it does not exist.
    pub fn by_name(name: &str) -> Option<Option<Self>> {
        if name.eq_ignore_ascii_case("UTC") {
            return Some(None);
        }
        TimeZone::get(name).ok().map(|zone| Some(Self(zone)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The starts of days, from the day that contains `from_ms` to the end of the day that contains `last_ms`. A day
    /// has 23 to 25 hours when clocks change.
    pub fn borders(&self, from_ms: u64, last_ms: u64) -> Vec<u64> {
        let mut borders = Vec::new();
        let mut day = self.date(from_ms);
        while let Some(date) = day {
            let Some(start_ms) = self.start_ms(date) else {
                break;
            };
            borders.push(start_ms);
            if start_ms > last_ms {
                break;
            }
            day = date.tomorrow().ok();
        }
        borders
    }

    /// Start of the day that is `days` days before the one that contains this time.
    pub fn days_before(&self, at_ms: u64, days: u64) -> u64 {
        let back_ms = days.saturating_mul(DAY_MS);
        let start = self
            .date(at_ms)
            .and_then(|date| {
                let days = i64::try_from(days).ok()?;
                date.checked_sub(jiff::Span::new().try_days(days).ok()?)
                    .ok()
            })
            .and_then(|date| self.start_ms(date));
        start.unwrap_or_else(|| at_ms.saturating_sub(back_ms))
    }

    fn date(&self, at_ms: u64) -> Option<Date> {
        let at = Timestamp::from_millisecond(i64::try_from(at_ms).ok()?).ok()?;
        Some(at.to_zoned(self.0.clone()).date())
    }

    fn start_ms(&self, date: Date) -> Option<u64> {
        let start = date.to_zoned(self.0.clone()).ok()?;
        // No clicks exist before 1970.
        Some(u64::try_from(start.timestamp().as_millisecond()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stats::HOUR_MS;
    use weir_origin_core::clock::parse_utc;

    fn at(text: &str) -> u64 {
        parse_utc(text).unwrap()
    }

    #[test]
    fn days_start_at_zone_midnight_despite_clock_changes() {
        let berlin = Zone::by_name("Europe/Berlin").unwrap().unwrap();
        let borders = berlin.borders(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"));
        let expected = [
            "2026-03-28T00:00:00+01:00",
            "2026-03-29T00:00:00+01:00",
            // Clocks went forward in between.
            "2026-03-30T00:00:00+02:00",
            "2026-03-31T00:00:00+02:00",
        ];
        assert_eq!(borders, expected.map(at));
        assert_eq!(borders[2] - borders[1], 23 * HOUR_MS);
        let autumn = berlin.borders(at("2026-10-24T22:00:00Z"), at("2026-10-24T22:00:00Z"));
        assert_eq!(autumn[1] - autumn[0], 25 * HOUR_MS);
        let start = berlin.days_before(at("2026-03-30T12:00:00Z"), 2);
        assert_eq!(start, at("2026-03-28T00:00:00+01:00"));
    }

    #[test]
    fn zone_is_found_by_name_and_utc_needs_no_zone() {
        assert_eq!(Zone::by_name("utc"), Some(None));
        for name in ["Mars/Olympus", "", "+02:00", "../etc"] {
            assert_eq!(Zone::by_name(name), None, "{name}");
        }
        assert_eq!(
            Zone::by_name("asia/shanghai").unwrap().unwrap().name(),
            "Asia/Shanghai"
        );
    }
}
