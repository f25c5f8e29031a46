//! Replays vectors on hosts, and tells what came of it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::host::{Host, Replay};
use crate::vector::Vector;

/// What a host did with the vectors.
#[derive(Debug)]
pub struct Report {
    /// Its name.
    pub host: &'static str,
    /// How many came out as expected.
    pub passed: usize,
    /// How many it cannot do, by the reason.
    pub left_out: BTreeMap<&'static str, usize>,
    /// What did not come out as expected.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub took: Duration,
}

/// A vector that did not come out as expected.
#[derive(Debug)]
pub struct Failure {
    /// Its name.
    pub vector: String,
    /// What was expected, and what came.
    pub problem: String,
}

/// Replays all vectors that `host` can do.
///
/// # Errors
/// When the host does not run.
pub fn run(host: &mut dyn Host, vectors: &[Vector]) -> Result<Report> {
    let started = Instant::now();
    let mut left_out = BTreeMap::new();
    let mut asked = Vec::new();
    for vector in vectors {
        match host.cannot(vector) {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            None => asked.push(vector.clone()),
        }
    }
    let replays = host.replay(&asked)?;
    let failures: Vec<Failure> = asked
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
        passed: asked.len() - failures.len(),
        left_out,
        failures,
        took: started.elapsed(),
    })
}

/// What differs from what `vector` expects; `None` if nothing does.
pub fn problem(vector: &Vector, replay: &Replay) -> Option<String> {
    let mut text = String::new();
    let expected = Replay::expected(vector);
    for (index, step) in vector.steps.iter().enumerate() {
        let came = replay.outcomes.get(index).cloned().unwrap_or_default();
        tell(&format!("step {index}"), &step.expect, &came, &mut text);
        tell(
            &format!("step {index}, in a word"),
            &step.says,
            &came.summary(),
            &mut text,
        );
    }
    let keys = expected.effect.keys().chain(replay.effect.keys());
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    for key in keys {
        let (wanted, came) = (expected.effect.get(key), replay.effect.get(key));
        tell(&format!("Redis, {key}"), &wanted, &came, &mut text);
    }
    (!text.is_empty()).then_some(text)
}

fn tell<T: PartialEq + fmt::Debug>(what: &str, expected: &T, came: &T, text: &mut String) {
    if expected != came {
        // Writing to a String cannot fail.
        write!(
            text,
            "\n    {what}\n      expected {expected:?}\n      came     {came:?}"
        )
        .ok();
    }
}

/// The table, with every failure behind it.
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
            report.took.as_secs_f64()
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
