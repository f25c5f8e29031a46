//! Two Envoys in turns: what Weir costs, against the same Envoy without it.
//!
//! Both have one worker on one core, the load generator has the other. They are measured in turns, so that what
//! else the machine does meets both; what counts is the median of the rounds' ratios.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::tools::Tools;
use weir_stack::{command, ports};

const ENVOY_CORE: &str = "0";
const LOAD_CORE: &str = "1";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// How often each is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// For how many seconds each time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,

    /// HTTP connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    connections: u32,

    /// Write what was measured to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What is compared, and how it is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) bare: &'static str,
    pub(super) ours: &'static str,
    /// The least ratio that the issue asked for.
    pub(super) bar: f64,
}

/// Requests a second of one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    bare: f64,
    ours: f64,
}

/// How both are asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    /// The path.
    pub(super) path: &'a str,
    /// Further arguments of wrk's.
    pub(super) wrk: &'a [&'a str],
}

impl Round {
    fn ratio(&self) -> f64 {
        self.ours / self.bare
    }
}

/// Fails if what this needs is not there.
pub(super) fn check_tools() -> Result<()> {
    for tool in ["wrk", "taskset"] {
        ensure!(
            command::on_path(tool).is_some(),
            "{tool} is not on PATH: apt-get install wrk util-linux"
        );
    }
    Ok(())
}

/// Measures both in turns, says each round, and then all of them.
pub(super) fn measure(
    arguments: &Arguments,
    names: Names,
    [bare, ours]: [&Envoy; 2],
    asked: Load<'_>,
) -> Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let round = Round {
            bare: load(arguments, asked, &bare.url())?,
            ours: load(arguments, asked, &ours.url())?,
        };
        let ratio = round.ratio();
        println!("{:>9.0} {:>9.0}   {ratio:.3}", round.bare, round.ours);
        rounds.push(round);
    }
    println!("{}", table(&rounds, names));
    if let Some(file) = &arguments.report {
        write_report(&rounds, file)?;
    }
    Ok(rounds)
}

/// An Envoy with one worker, on its core.
pub(super) async fn start(tools: &Tools, config: EnvoyConfig, dir: &Path) -> Result<Envoy> {
    let options = EnvoyOptions {
        config: config
            .gateway_port(ports::free()?)
            .admin_port(ports::free()?),
        workers: 1,
        log_level: "error".to_owned(),
        variables: Vec::new(),
        dir: dir.to_path_buf(),
    };
    let mut envoy = Envoy::start(&tools.envoy, &options).await?;
    let pid = envoy
        .process()
        .pid()
        .context("Envoy has ended")?
        .to_string();
    let mut pin = Command::new("taskset");
    command::succeed(
        pin.args(["--all-tasks", "--cpu-list", "--pid", ENVOY_CORE, &pid]),
        Duration::from_secs(10),
    )?;
    Ok(envoy)
}

/// Requests a second.
fn load(arguments: &Arguments, asked: Load<'_>, url: &str) -> Result<f64> {
    let mut wrk = Command::new("taskset");
    wrk.args(["--cpu-list", LOAD_CORE, "wrk", "--threads", "1"])
        .args(["--connections", &arguments.connections.to_string()])
        .args(["--duration", &format!("{}s", arguments.seconds)])
        .args(asked.wrk)
        .arg(format!("{url}{}", asked.path));
    let limit = Duration::from_secs(u64::from(arguments.seconds) + 30);
    let output = command::succeed(&mut wrk, limit)?;
    ensure!(
        !output.contains("Non-2xx"),
        "requests were refused: {output}"
    );
    let rate = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let rate = rate.with_context(|| format!("wrk says otherwise than expected: {output}"))?;
    rate.trim().parse().context("wrk's rate is no number")
}

/// The least, the median and the greatest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    [0, last / 2, last].map(|index| values.get(index).copied().unwrap_or(f64::NAN))
}

fn table(rounds: &[Round], names: Names) -> String {
    let [_, bare, _] = spread(rounds.iter().map(|round| round.bare).collect());
    let [_, ours, _] = spread(rounds.iter().map(|round| round.ours).collect());
    let [least, median, most] = spread(rounds.iter().map(Round::ratio).collect());
    let cost_us = 1e6 / ours - 1e6 / bare;
    let reached = if median >= names.bar {
        "reached"
    } else {
        "not reached"
    };
    format!(
        "\nrequests a second, medians of {} rounds, one worker on one core\n\
         {:<24}{bare:>9.0}\n\
         {:<24}{ours:>9.0}   {cost_us:.1} µs more a request\n\
         ratio {median:.3} (from {least:.3} to {most:.3}); the bar of {} is {reached}",
        rounds.len(),
        names.bare,
        names.ours,
        names.bar,
    )
}

fn write_report(rounds: &[Round], file: &Path) -> Result<()> {
    let [least, median, most] = spread(rounds.iter().map(Round::ratio).collect());
    let rounds: Vec<_> = rounds
        .iter()
        .map(|round| json!({ "bare": round.bare, "ours": round.ours }))
        .collect();
    let report =
        json!({ "ratio": { "min": least, "median": median, "max": most }, "rounds": rounds });
    std::fs::write(file, serde_json::to_string_pretty(&report)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names {
        bare: "bare",
        ours: "ours",
        bar: 0.75,
    };

    #[test]
    fn the_median_of_the_ratios_is_told_and_held_against_the_bar() {
        let round = |bare, ours| Round { bare, ours };
        let rounds = [round(100.0, 80.0), round(50.0, 30.0), round(200.0, 152.0)];
        let told = table(&rounds, NAMES);
        assert!(told.contains("ratio 0.760 (from 0.600 to 0.800)"), "{told}");
        assert!(told.contains("is reached"), "{told}");
        assert!(table(&rounds[1..2], NAMES).contains("not reached"));
    }
}
