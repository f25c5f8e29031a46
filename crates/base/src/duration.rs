//! Durations as text, such as `5m`, for configurations.
//!
//! A field with the unit in its name, such as `deadline_ms`, is a number instead.

use alloc::borrow::Cow;
use core::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A whole number and a unit: `100ms`, `1s`, `5m`, `1h`, `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    /// In milliseconds.
    pub ms: u64,
}

impl Duration {
    /// One second.
    pub const SECOND: Self = Self { ms: 1_000 };

    /// Parses a duration; `None` if the text is invalid.
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
        Some(Self { ms })
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 100ms, 1s, 5m, 1h or 1d")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        Duration::read(text).ok_or_else(|| {
            let text: Cow<'_, str> = text.chars().take(40).collect();
            E::invalid_value(serde::de::Unexpected::Str(&text), &self)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error as Refusal;

    #[test]
    fn duration_is_read_from_text_and_error_shows_the_format() {
        fn read<'de, T: IntoDeserializer<'de, Refusal>>(value: T) -> Result<Duration, Refusal> {
            Duration::deserialize(value.into_deserializer())
        }
        assert_eq!(read("5m"), Ok(Duration { ms: 300_000 }));
        let refused = |problem: &str| {
            let expected = "expected a duration such as 100ms, 1s, 5m, 1h or 1d";
            alloc::format!("{problem}, {expected}")
        };
        let message = read("soon").unwrap_err().to_string();
        assert_eq!(message, refused("invalid value: string \"soon\""));
        let message = read(5_u64).unwrap_err().to_string();
        assert_eq!(message, refused("invalid type: integer `5`"));
        let long = read("9".repeat(500).as_str()).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn only_numbers_with_units_are_durations() {
        let read = |text| Duration::read(text).map(|duration| duration.ms);
        assert_eq!(read("100ms"), Some(100));
        assert_eq!(read("0s"), Some(0));
        assert_eq!(read("5m"), Some(300_000));
        assert_eq!(read("2h"), Some(7_200_000));
        assert_eq!(read("366d"), Some(31_622_400_000));
        for bad in [
            "",
            "1",
            "s",
            "1 s",
            "-1s",
            "1.5s",
            "1S",
            "1w",
            "99999999999999999999s",
            "400000000000000d",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
