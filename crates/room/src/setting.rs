//! Settings that operators change at runtime.

use serde::{Deserialize, Serialize};

/// Mode of a waiting room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// New visitors get positions, and the queue moves.
    #[default]
    Open,
    /// New visitors get positions; the queue is frozen.
    Paused,
    /// No new visitors; the queue moves.
    Draining,
    /// No new visitors; the queue is frozen. Active sessions continue.
    Closed,
    /// Every request passes without a queue.
    Bypass,
}

impl Mode {
    /// All modes, in the order of their numbers in Redis, from 0.
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::Paused,
        Self::Draining,
        Self::Closed,
        Self::Bypass,
    ];

    /// Its number in Redis.
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The mode with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The label in JSON and SQL.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Draining => "draining",
            Self::Closed => "closed",
            Self::Bypass => "bypass",
        }
    }

    /// The mode with this label.
    pub fn from_label(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.label() == word)
    }

    /// Whether the queue moves.
    pub const fn calls(self) -> bool {
        matches!(self, Self::Open | Self::Draining)
    }

    /// Whether new visitors get positions.
    pub const fn takes_newcomers(self) -> bool {
        matches!(self, Self::Open | Self::Paused)
    }
}

/// Maximum admission rate, in entries per minute.
pub const PER_MINUTE_MAX: u64 = 10_000_000;

/// Maximum limit of active sessions.
pub const ACTIVE_MAX: u64 = 10_000_000;

/// The settings of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Increases with each change; 0 for the gateway's configuration.
    pub version: u64,
    /// The room's mode.
    pub mode: Mode,
    /// Entries per minute over all gateways; 0: unlimited.
    pub per_minute: u64,
    /// Active sessions over all gateways; 0: unlimited.
    pub active_max: u64,
    /// The opening, in milliseconds since the Unix epoch; 0 for none. Nobody enters before it, and it orders the
    /// visitors who wait at random.
    pub opens_at_ms: u64,
}

impl Setting {
    /// The numbers in the order of the scripts' ARGV.
    pub fn numbers(&self) -> [u64; 5] {
        [
            self.version,
            self.mode.number(),
            self.per_minute,
            self.active_max,
            self.opens_at_ms,
        ]
    }

    /// Parses [`Setting::numbers`].
    pub fn from_numbers(numbers: [u64; 5]) -> Option<Self> {
        let [version, mode, per_minute, active_max, opens_at_ms] = numbers;
        Some(Self {
            version,
            mode: Mode::from_number(mode)?,
            per_minute,
            active_max,
            opens_at_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_room_mode_has_a_unique_number_and_label() {
        for (number, mode) in (0..).zip(Mode::ALL) {
            assert_eq!(mode.number(), number);
            assert_eq!(Mode::from_number(number), Some(mode));
            assert_eq!(Mode::from_label(mode.label()), Some(mode));
        }
        assert_eq!(Mode::from_number(5), None);
        assert_eq!(Mode::from_label("shut"), None);
    }

    #[test]
    fn room_setting_round_trips_through_its_encoding() {
        let setting = Setting::from_numbers([7, 2, 60, 100, 5]).unwrap();
        assert_eq!(setting.numbers(), [7, 2, 60, 100, 5]);
        assert_eq!(setting.mode, Mode::Draining);
        assert_eq!(Setting::from_numbers([7, 9, 60, 100, 5]), None);
    }
}
