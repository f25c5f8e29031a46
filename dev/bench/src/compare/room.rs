//! A million people in the queue of a waiting room: what they take in Redis, and how long it takes to be told one's position.

use super::measure::Effort;
use super::statistics::Spread;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;
use weir_stack::{build, command};

const LIMIT: Duration = Duration::from_secs(1_800);

/// What `weir-room-times` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Room {
    pub(super) people: u64,
    /// Newcomers of one call to Redis.
    pub(super) batch: u64,
    pub(super) connections: u64,
    /// Positions of a round.
    pub(super) positions: u64,
    /// What all of them take in Redis.
    pub(super) redis_bytes: u64,
    /// How many newcomers get their places in a second, by one connection.
    pub(super) places_a_second: f64,
    pub(super) rounds: Vec<Positions>,
}

/// One round of people who ask where they stand.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Positions {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Answers a second.
    pub(super) rate: f64,
    /// Script calls that Redis had, an answer.
    pub(super) commands: f64,
}

impl Room {
    pub(super) fn spread(&self, of: impl Fn(&Positions) -> f64) -> Option<Spread> {
        Spread::from_values(self.rounds.iter().map(of))
    }
}

/// By a program of its own: it fills the room as the tests of waiting rooms do.
pub(super) fn measure(effort: &Effort) -> Result<Room> {
    let mut program = Command::new(build::binary("weir-room-times", &[], None)?);
    program.arg(effort.rounds.to_string());
    let said = command::succeed(&mut program, LIMIT)?;
    serde_json::from_str(&said).context("unexpected output of weir-room-times")
}

/// For the tests of what is made of reports.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A room with these p99 of its positions.
    pub(in crate::compare) fn room_of(p99_ms: [f64; 3], commands: f64) -> Room {
        let round = |p99_ms: f64| Positions {
            p50_ms: p99_ms / 8.0,
            p99_ms,
            rate: 9_000.0,
            commands,
        };
        Room {
            people: 1_000_000,
            batch: 64,
            connections: 8,
            positions: 20_000,
            redis_bytes: 43_600_000,
            places_a_second: 26_000.0,
            rounds: p99_ms.map(round).to_vec(),
        }
    }

    #[test]
    fn what_the_program_says_is_read() {
        let said = r#"{ "batch": 64, "connections": 8, "people": 1000000, "places_a_second": 26000.5, "positions": 20000,
            "redis_bytes": 43600000, "rounds": [{ "commands": 0.001, "p50_ms": 0.4, "p99_ms": 3.0, "rate": 9000.0 }] }"#;
        let room: Room = serde_json::from_str(said).unwrap();
        assert_eq!(room.spread(|round| round.p99_ms).unwrap().median, 3.0);
    }
}
