//! The results, as stored in `bench/results.json`.

use super::cores::Cores;
use super::edges::Edges;
use super::memory::Memories;
use super::overload::Overload;
use super::room::Room;
use super::statistics::Spread;
use super::system::System;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The latest results of all scenarios.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) scenarios: BTreeMap<String, ScenarioFigures>,
    pub(super) memory: Option<(Run, Memories)>,
    /// Edges in their runtimes, measured by `weir-edge-times`.
    #[serde(default)]
    pub(super) edges: Option<(Run, Edges)>,
    /// A million people in a queue, measured by `weir-room-times`.
    #[serde(default)]
    pub(super) room: Option<(Run, Room)>,
    /// Results at twice the capacity.
    #[serde(default)]
    pub(super) overload: Option<(Run, Vec<Overload>)>,
    /// Machine-independent costs, measured by `weir-costs`.
    pub(super) costs: Vec<Cost>,
}

/// The time, place and method of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    /// Year, month and day, UTC.
    pub(super) date: String,
    /// The output of `git describe`.
    pub(super) commit: String,
    pub(super) machine: String,
    pub(super) cores: Cores,
    /// The versions of all programs.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) is_quick: bool,
    pub(super) rounds: u32,
    pub(super) window_s: f64,
    /// The one-minute load average at the start, caused by other processes.
    pub(super) load_average: f64,
}

/// One scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ScenarioFigures {
    pub(super) run: Run,
    pub(super) points: Vec<Point>,
    /// Systems that could not run.
    pub(super) absent: Vec<SkippedSystem>,
}

/// A system that could not run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SkippedSystem {
    pub(super) system: System,
    pub(super) reason: String,
}

/// One system at one connection count and one pace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) system: System,
    pub(super) connections: usize,
    /// Requests due per second in an open loop; `None` in a closed one.
    pub(super) offered: Option<f64>,
    pub(super) rounds: Vec<Round>,
}

/// One round.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Round {
    /// Answers per second.
    pub(super) rate: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    /// CPU time per request, in microseconds: server with sidecars, and Redis.
    pub(super) server_us: f64,
    pub(super) redis_us: f64,
    /// Redis script calls per request.
    pub(super) script_calls: f64,
    /// The busy share of server and generator within the window, 0 to 1.
    pub(super) server_busy: f64,
    pub(super) load_busy: f64,
    pub(super) unanswered: u64,
    /// Answers with an unexpected status.
    pub(super) wrong: u64,
    pub(super) statuses: BTreeMap<u16, u64>,
}

/// The cost of one request in the filters' VMs, counted by the test host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) scenario: String,
    pub(super) fuel: f64,
    pub(super) host_calls: f64,
    pub(super) bytes_copied: f64,
    pub(super) redis_commands: f64,
}

/// A measurement with a larger share of wrong answers is invalid.
const WRONG_MAX: f64 = 0.001;

impl Point {
    /// One value per round, in order.
    pub(super) fn each(&self, of: impl Fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    pub(super) fn spread(&self, of: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::from_values(self.each(of))
    }

    /// Whether the system did the requested work.
    pub(super) fn is_right(&self) -> bool {
        let wrong: u64 = self.rounds.iter().map(|round| round.wrong).sum();
        let all: u64 = self
            .rounds
            .iter()
            .flat_map(|round| round.statuses.values())
            .sum();
        all > 0 && wrong as f64 <= all as f64 * WRONG_MAX
    }
}

impl ScenarioFigures {
    /// A system's closed loop at this connection count.
    pub(super) fn closed(&self, system: System, connections: usize) -> Option<&Point> {
        self.points.iter().find(|point| {
            point.system == system && point.connections == connections && point.offered.is_none()
        })
    }

    /// A system's open loop at the rate derived from the closed loop, which is measured before the fixed rates.
    pub(super) fn open(&self, system: System, connections: usize) -> Option<&Point> {
        self.points.iter().find(|point| {
            point.system == system && point.connections == connections && point.offered.is_some()
        })
    }

    /// The open loop at this rate.
    pub(super) fn open_at(
        &self,
        system: System,
        connections: usize,
        per_second: f64,
    ) -> Option<&Point> {
        self.points.iter().find(|point| {
            let is_rate = |offered: f64| (offered - per_second).abs() < 1.0;
            point.system == system
                && point.connections == connections
                && point.offered.is_some_and(is_rate)
        })
    }

    /// The ratio of two points for each round; empty if either point is invalid.
    pub(super) fn ratio(
        of: Option<&Point>,
        to: Option<&Point>,
        number: impl Fn(&Round) -> f64 + Copy,
    ) -> Option<Spread> {
        let (of, to) = (of?, to?);
        if !of.is_right() || !to.is_right() {
            return None;
        }
        Spread::of_ratios(&of.each(number), &to.each(number))
    }

    /// The connection counts, ascending.
    pub(super) fn connections(&self) -> Vec<usize> {
        let all = self.points.iter().map(|point| point.connections);
        let all: std::collections::BTreeSet<usize> = all.collect();
        all.into_iter().collect()
    }
}

impl Report {
    /// Reads the report; an empty one if the file does not exist.
    pub(super) fn read(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} has a different version; remove it", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Fixtures for tests of report output.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::compare) fn run() -> Run {
        Run {
            date: "2026-11-21".to_owned(),
            commit: "abc1234".to_owned(),
            machine: "2 cores".to_owned(),
            cores: Cores {
                server: 0,
                load: 1,
                redis: 1,
            },
            versions: BTreeMap::from([("Envoy".to_owned(), "1.40.0".to_owned())]),
            is_quick: true,
            rounds: 2,
            window_s: 0.5,
            load_average: 0.5,
        }
    }

    pub(in crate::compare) fn point(
        system: System,
        connections: usize,
        offered: Option<f64>,
        rates: &[f64],
    ) -> Point {
        let round = |rate: &f64| Round {
            rate: *rate,
            p50_ms: 1.0,
            p99_ms: 1e5 / rate,
            p999_ms: 2e5 / rate,
            server_us: 1e6 / rate,
            redis_us: 1.0,
            script_calls: 0.04,
            statuses: BTreeMap::from([(201, 1_000)]),
            ..Round::default()
        };
        Point {
            system,
            connections,
            offered,
            rounds: rates.iter().map(round).collect(),
        }
    }

    pub(in crate::compare) fn measured(points: Vec<Point>) -> ScenarioFigures {
        ScenarioFigures {
            run: run(),
            points,
            absent: Vec::new(),
        }
    }

    #[test]
    fn point_with_wrong_answers_has_no_ratio() {
        let mut weir = point(System::Weir, 128, None, &[75.0, 50.0]);
        let nginx = point(System::NginxLua, 128, None, &[100.0, 100.0]);
        let ratio =
            |weir: &Point| ScenarioFigures::ratio(Some(weir), Some(&nginx), |round| round.rate);
        assert_eq!(ratio(&weir).unwrap().median, 0.625);
        weir.rounds[0].wrong = 3;
        assert_eq!(ratio(&weir), None);
    }

    #[test]
    fn open_loop_at_the_rate_of_the_system_itself_counts() {
        let offered = [None, Some(9_000.0), Some(2_000.0), Some(12_000.0)];
        let points = offered.map(|rate| point(System::Weir, 128, rate, &[13_000.0]));
        let measured = measured(points.into());
        let of = |point: Option<&Point>| point.unwrap().offered;
        assert_eq!(of(measured.open(System::Weir, 128)), Some(9_000.0));
        assert_eq!(of(measured.closed(System::Weir, 128)), None);
        assert!(measured.open(System::Weir, 8).is_none());
    }

    #[test]
    fn report_reads_back_as_written() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("results.json");
        assert!(Report::read(&file).unwrap().scenarios.is_empty());
        let points = vec![point(System::EnvoyDirect, 8, None, &[1.0])];
        let mut report = Report::default();
        report
            .scenarios
            .insert("redis".to_owned(), measured(points));
        report.write(&file).unwrap();
        let read = Report::read(&file).unwrap();
        assert_eq!(
            read.scenarios["redis"].points[0].system,
            System::EnvoyDirect
        );
    }
}
