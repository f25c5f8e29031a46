//! Goodput at twice the capacity.

use super::measure::{Effort, Run, start_all};
use super::report::Round;
use super::scenario::{self, Scenario};
use super::server::BenchEnv;
use super::statistics::Spread;
use super::system::System;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weir_load::Pace;

/// Scenarios in which each request queries Redis.
pub(super) const SCENARIOS: [&str; 4] = ["redis", "redirect-redis", "fitment-check", "room-join"];

/// The open loop's rate, as a multiple of the capacity measured in the closed loop.
const LOAD: f64 = 2.0;

/// The connections of both loops, so that only the load differs. More than the limit of requests that wait for Redis.
const CONNECTIONS: usize = 1_024;

/// One scenario, on Weir in WebAssembly.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Overload {
    pub(super) scenario: String,
    pub(super) rounds: Vec<OverloadFigures>,
}

/// A closed loop and the open loop after it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct OverloadFigures {
    /// Correct answers per second in the closed loop.
    pub(super) capacity: f64,
    /// Correct answers per second in the open loop.
    pub(super) goodput: f64,
    /// All answers per second in the open loop, including refusals.
    pub(super) answers: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Overload {
    /// Correct answers at twice the load, relative to the capacity.
    pub(super) fn share(&self) -> Option<Spread> {
        let shares = self.rounds.iter();
        let shares = shares.filter(|round| round.capacity > 0.0);
        Spread::from_values(shares.map(|round| round.goodput / round.capacity))
    }
}

/// Correct answers per second.
fn goodput(round: &Round) -> f64 {
    let all: u64 = round.statuses.values().sum();
    let right = all.saturating_sub(round.wrong);
    round.rate * right as f64 / all.max(1) as f64
}

pub(super) async fn measure(effort: &Effort, bench_env: &BenchEnv<'_>) -> Result<Vec<Overload>> {
    let mut measured = Vec::new();
    for name in SCENARIOS {
        let scenario = scenario::ALL.iter().find(|scenario| scenario.name == name);
        let scenario = Scenario {
            systems: &[System::Weir],
            ..*scenario.context(name)?
        };
        let rounds = of_one(&scenario, effort, bench_env).await;
        measured.push(Overload {
            scenario: name.to_owned(),
            rounds: rounds.context(name)?,
        });
    }
    Ok(measured)
}

async fn of_one(
    scenario: &Scenario,
    effort: &Effort,
    bench_env: &BenchEnv<'_>,
) -> Result<Vec<OverloadFigures>> {
    let (mut servers, _) = start_all(scenario, effort, bench_env).await?;
    let server = servers.first_mut().context("Weir did not start")?;
    server.ready(scenario)?;
    let run = Run::new(scenario, effort, bench_env.cores);
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds {
        let closed = run.one(server, CONNECTIONS, Pace::Closed).await?;
        let capacity = goodput(&closed);
        let pace = Pace::Open {
            per_second: capacity * LOAD,
        };
        let open = run.one(server, CONNECTIONS, pace).await?;
        let loaded = OverloadFigures {
            capacity,
            goodput: goodput(&open),
            answers: open.rate,
            p50_ms: open.p50_ms,
            p99_ms: open.p99_ms,
        };
        println!(
            "{:<15} {:>7.0}/s at most; at twice that {:>7.0}/s right of {:>7.0}/s answers, p50 {:.1}, p99 {:.1} ms",
            scenario.name,
            loaded.capacity,
            loaded.goodput,
            loaded.answers,
            loaded.p50_ms,
            loaded.p99_ms
        );
        rounds.push(loaded);
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_correct_answers_count_as_goodput() {
        let round = Round {
            rate: 1_000.0,
            wrong: 400,
            statuses: [(200, 600), (503, 400)].into(),
            ..Round::default()
        };
        assert!((goodput(&round) - 600.0).abs() < 1e-9);
        let loaded = OverloadFigures {
            capacity: 800.0,
            goodput: goodput(&round),
            answers: 1_000.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
        };
        let overload = Overload {
            scenario: "redis".to_owned(),
            rounds: vec![loaded; 3],
        };
        assert!((overload.share().unwrap().median - 0.75).abs() < 1e-9);
    }
}
