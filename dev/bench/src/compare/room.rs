//! A million people in a waiting room's queue: Redis memory, and the latency of position queries.

use super::measure::Effort;
use super::statistics::Spread;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;
use weir_stack::{build, command};

const LIMIT: Duration = Duration::from_secs(1_800);

/// The output of `weir-room-times`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Room {
    pub(super) people: u64,
    /// New visitors per Redis call.
    pub(super) batch: u64,
    pub(super) connections: u64,
    /// Position queries per round.
    pub(super) positions: u64,
    /// The Redis memory of all positions, in bytes.
    pub(super) redis_bytes: u64,
    /// New positions per second over one connection.
    pub(super) places_a_second: f64,
    pub(super) rounds: Vec<Positions>,
}

/// One round of position queries.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Positions {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Answers per second.
    pub(super) rate: f64,
    /// Redis script calls per answer.
    pub(super) commands: f64,
}

impl Room {
    pub(super) fn spread(&self, of: impl Fn(&Positions) -> f64) -> Option<Spread> {
        Spread::from_values(self.rounds.iter().map(of))
    }
}

/// Runs a separate program, which fills the room as the tests of waiting rooms do.
pub(super) fn measure(effort: &Effort) -> Result<Room> {
    let mut program = Command::new(build::binary("weir-room-times", &[], None)?);
    program.arg(effort.rounds.to_string());
    let output = command::succeed(&mut program, LIMIT)?;
    serde_json::from_str(&output).context("unexpected output of weir-room-times")
}

/// Fixtures for tests of report output.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A room with these p99 latencies of position queries.
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
    fn program_output_is_parsed() {
        let response = r#"{ "batch": 64, "connections": 8, "people": 1000000, "places_a_second": 26000.5, "positions": 20000,
            "redis_bytes": 43600000, "rounds": [{ "commands": 0.001, "p50_ms": 0.4, "p99_ms": 3.0, "rate": 9000.0 }] }"#;
        let room: Room = serde_json::from_str(response).unwrap();
        assert_eq!(room.spread(|round| round.p99_ms).unwrap().median, 3.0);
    }
}
