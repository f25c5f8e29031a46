//! Edges in their platforms' runtimes: size and latency.

use super::measure::Effort;
use super::statistics::Spread;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;
use weir_stack::{build, command};

/// Requests per round.
pub(super) const REQUESTS: u32 = 1_000;

/// The first run compiles two runtimes.
const LIMIT: Duration = Duration::from_secs(1_800);

/// The runtime that the bars are about.
pub(super) const WORKERS: &str = "Cloudflare Workers";

/// The output of `weir-edge-times`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Edges {
    pub(super) edges: Vec<Edge>,
    /// Edges that were not measured, with reasons.
    pub(super) absent: Vec<(String, String)>,
}

/// One edge.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Edge {
    pub(super) name: String,
    /// The runtime, with its version.
    pub(super) runtime: String,
    /// The upload size, in bytes.
    pub(super) gzipped: u64,
    pub(super) answers: Vec<Answers>,
}

/// The measurements of one kind of answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Answers {
    pub(super) what: String,
    pub(super) rounds: Vec<Times>,
}

/// One round.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Edge {
    pub(super) fn gzipped_mib(&self) -> f64 {
        self.gzipped as f64 / 1_048_576.0
    }

    /// The p50 of the slowest kind of answer.
    pub(super) fn slowest_p50(&self) -> Option<Spread> {
        let all = self.answers.iter();
        all.filter_map(|answers| answers.spread(|times| times.p50_ms))
            .max_by(|a, b| a.median.total_cmp(&b.median))
    }
}

impl Answers {
    pub(super) fn spread(&self, of: impl Fn(&Times) -> f64) -> Option<Spread> {
        Spread::from_values(self.rounds.iter().map(of))
    }
}

impl Edges {
    pub(super) fn named(&self, name: &str) -> Option<&Edge> {
        self.edges.iter().find(|edge| edge.name == name)
    }

    /// The largest edge, in MiB.
    pub(super) fn largest_mib(&self) -> Option<f64> {
        let all = self.edges.iter().map(Edge::gzipped_mib);
        all.max_by(f64::total_cmp)
    }
}

/// Runs a separate program, which sends edges the same requests as their tests.
pub(super) fn measure(effort: &Effort) -> Result<Edges> {
    let mut program = Command::new(build::binary("weir-edge-times", &[], None)?);
    program.args([effort.rounds, REQUESTS].map(|count| count.to_string()));
    let output = command::succeed(&mut program, LIMIT)?;
    serde_json::from_str(&output).context("unexpected output of weir-edge-times")
}

/// Fixtures for tests of report output.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A Worker of this size with these p50 latencies for a link, and faster answers of other kinds.
    pub(in crate::compare) fn edges_of(p50_ms: [f64; 3], gzipped: u64) -> Edges {
        let answers = |subject: &str, faster: f64| Answers {
            what: subject.to_owned(),
            rounds: p50_ms
                .map(|p50_ms| Times {
                    p50_ms: p50_ms * faster,
                    p99_ms: 9.0,
                })
                .to_vec(),
        };
        let edge = |name: &str, gzipped| Edge {
            name: name.to_owned(),
            runtime: "workerd 1".to_owned(),
            gzipped,
            answers: vec![answers("sold out", 0.5), answers("a link", 1.0)],
        };
        Edges {
            edges: vec![edge("another", 1), edge(WORKERS, gzipped)],
            absent: vec![("Fastly Compute".to_owned(), "no viceroy".to_owned())],
        }
    }

    #[test]
    fn program_output_is_parsed() {
        let response = r#"{ "absent": [["wasi:http", "no compiler"]], "edges": [{
            "name": "Cloudflare Workers", "runtime": "workerd 1.0", "gzipped": 524288,
            "answers": [{ "what": "a link", "rounds": [{ "p50_ms": 0.5, "p99_ms": 2.0 }] }]
        }] }"#;
        let edges: Edges = serde_json::from_str(response).unwrap();
        let worker = edges.named(WORKERS).unwrap();
        assert_eq!(
            (worker.gzipped_mib(), edges.largest_mib()),
            (0.5, Some(0.5))
        );
        assert_eq!(worker.slowest_p50().unwrap().median, 0.5);
    }
}
