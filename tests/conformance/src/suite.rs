//! Replays vectors on hosts, and reports the results.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::host::{Host, Replay};
use crate::vector::Vector;

/// A host's results.
#[derive(Debug)]
pub struct Report {
    /// The host's name.
    pub host: &'static str,
    /// The number of vectors with the expected result.
    pub passed: usize,
    /// The number of skipped vectors by reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Vectors with unexpected results.
    pub failures: Vec<Failure>,
    /// The duration.
    pub elapsed: Duration,
}

/// A vector with an unexpected result.
#[derive(Debug)]
pub struct Failure {
    /// The vector's name.
    pub vector: String,
    /// The difference between expected and actual result.
    pub problem: String,
}

/// Replays all vectors that `host` supports.
///
/// # Errors
/// The host fails.
pub fn run(host: &mut dyn Host, vectors: &[Vector]) -> Result<Report> {
    let started = Instant::now();
    let mut left_out = BTreeMap::new();
    let mut requests = Vec::new();
    for vector in vectors {
        match host.cannot(vector) {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            None => requests.push(vector.clone()),
        }
    }
    let replays = host.replay(&requests)?;
    let failures: Vec<Failure> = requests
        .iter()
        .zip(replays)
        .filter_map(|(vector, replay)| {
            let problem = match replay {
                Ok(replay) => problem(vector, &replay)?,
                Err(error) => format!("{error:#}"),
            };
            let vector = vector.name.clone();
            Some(Failure { vector, problem })
        })
        .collect();
    Ok(Report {
        host: host.name(),
        passed: requests.len() - failures.len(),
        left_out,
        failures,
        elapsed: started.elapsed(),
    })
}

/// The difference from the result that `vector` expects; `None` if there is none.
pub fn problem(vector: &Vector, replay: &Replay) -> Option<String> {
    let mut text = String::new();
    let expected = Replay::expected(vector);
    for (index, step) in vector.steps.iter().enumerate() {
        let received = replay.outcomes.get(index).cloned().unwrap_or_default();
        tell(&format!("step {index}"), &step.expect, &received, &mut text);
        tell(
            &format!("step {index}, in a word"),
            &step.says,
            &received.summary(),
            &mut text,
        );
    }
    let keys = expected.effect.keys().chain(replay.effect.keys());
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    for key in keys {
        let (requested, received) = (expected.effect.get(key), replay.effect.get(key));
        tell(&format!("Redis, {key}"), &requested, &received, &mut text);
    }
    (!text.is_empty()).then_some(text)
}

fn tell<T: PartialEq + fmt::Debug>(subject: &str, expected: &T, received: &T, text: &mut String) {
    if expected != received {
        // Writing to a String cannot fail.
        write!(
            text,
            "\n    {subject}\n      expected {expected:?}\n      came     {received:?}"
        )
        .ok();
    }
}

/// The table, followed by all failures.
pub fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<12} {:>8} {:>9} {:>7} {:>8}\n",
        "host", "passed", "left out", "failed", "seconds"
    );
    for report in reports {
        let left_out: usize = report.left_out.values().sum();
        writeln!(
            text,
            "{:<12} {:>8} {left_out:>9} {:>7} {:>8.1}",
            report.host,
            report.passed,
            report.failures.len(),
            report.elapsed.as_secs_f64()
        )
        .ok();
    }
    for report in reports {
        for (reason, count) in &report.left_out {
            writeln!(text, "\n{} leaves out {count}: {reason}", report.host).ok();
        }
        for failure in &report.failures {
            writeln!(
                text,
                "\n{}: {}{}",
                report.host, failure.vector, failure.problem
            )
            .ok();
        }
    }
    text
}
