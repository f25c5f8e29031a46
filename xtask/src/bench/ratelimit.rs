//! `cargo xtask bench ratelimit`: what a local limit costs, against the same Envoy without it.
//!
//! Both Envoys have one worker on one core, the load generator has the other. They are measured in turns, so
//! that what else the machine does meets both; what counts is the median of the rounds' ratios.

use super::compare::USER_LIMIT;
use crate::up::Stop;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::report::Console;
use weir_stack::tools::{Options, Tools};
use weir_stack::wasm::{self, Messages};
use weir_stack::{command, ports};

const USERS: &str = include_str!("users.lua");

/// The bar of the issue that asked for the limiter.
const BAR: f64 = 0.75;

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

/// Requests a second of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    bare: f64,
    limited: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.limited / self.bare
    }
}

pub(super) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    for tool in ["wrk", "taskset"] {
        ensure!(
            command::on_path(tool).is_some(),
            "{tool} is not on PATH: apt-get install wrk util-linux"
        );
    }
    let tools = Tools::find_or_get(&tools, &mut Console)?;
    wasm::build_filters(&tools.wasm, Messages::Show)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let rounds = runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            rounds = measure(arguments, &tools) => rounds,
            () = stop.asked() => anyhow::bail!("stopped"),
        }
    })?;
    println!("{}", table(&rounds));
    if let Some(file) = &arguments.report {
        write_report(&rounds, file)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments, tools: &Tools) -> Result<Vec<Round>> {
    let dir = tempfile::tempdir().context("cannot make a folder")?;
    let script = dir.path().join("users.lua");
    std::fs::write(&script, USERS).context("cannot write wrk's script")?;
    let bare = EnvoyConfig::ratelimit(false)?.without_limiter()?;
    let limited = EnvoyConfig::ratelimit(false)?.limiter_config(USER_LIMIT)?;
    let bare = start(tools, bare, &dir.path().join("bare")).await?;
    let limited = start(tools, limited, &dir.path().join("limited")).await?;
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let round = Round {
            bare: load(arguments, &script, &bare.url())?,
            limited: load(arguments, &script, &limited.url())?,
        };
        println!(
            "{:>9.0} {:>9.0}   {:.3}",
            round.bare,
            round.limited,
            round.ratio()
        );
        rounds.push(round);
    }
    Ok(rounds)
}

async fn start(tools: &Tools, config: EnvoyConfig, dir: &Path) -> Result<Envoy> {
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
fn load(arguments: &Arguments, script: &Path, url: &str) -> Result<f64> {
    let mut wrk = Command::new("taskset");
    wrk.args(["--cpu-list", LOAD_CORE, "wrk", "--threads", "1"])
        .args(["--connections", &arguments.connections.to_string()])
        .args(["--duration", &format!("{}s", arguments.seconds)])
        .arg("--script")
        .args([script.as_os_str(), url.as_ref()]);
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

fn table(rounds: &[Round]) -> String {
    let [_, bare, _] = spread(rounds.iter().map(|round| round.bare).collect());
    let [_, limited, _] = spread(rounds.iter().map(|round| round.limited).collect());
    let [least, median, most] = spread(rounds.iter().map(Round::ratio).collect());
    let cost_us = 1e6 / limited - 1e6 / bare;
    let reached = if median >= BAR {
        "reached"
    } else {
        "not reached"
    };
    format!(
        "\nrequests a second, medians of {} rounds, one worker on one core\n\
         Envoy alone             {bare:>9.0}\n\
         with a limit per user   {limited:>9.0}   {cost_us:.1} µs more a request\n\
         ratio {median:.3} (from {least:.3} to {most:.3}); the bar of {BAR} is {reached}",
        rounds.len()
    )
}

fn write_report(rounds: &[Round], file: &Path) -> Result<()> {
    let [least, median, most] = spread(rounds.iter().map(Round::ratio).collect());
    let rounds: Vec<_> = rounds
        .iter()
        .map(|round| json!({ "bare": round.bare, "limited": round.limited }))
        .collect();
    let report =
        json!({ "ratio": { "min": least, "median": median, "max": most }, "rounds": rounds });
    std::fs::write(file, serde_json::to_string_pretty(&report)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_ratios_is_told_and_held_against_the_bar() {
        let round = |bare, limited| Round { bare, limited };
        let rounds = [round(100.0, 80.0), round(50.0, 30.0), round(200.0, 152.0)];
        let told = table(&rounds);
        assert!(told.contains("ratio 0.760 (from 0.600 to 0.800)"), "{told}");
        assert!(told.contains("is reached"), "{told}");
        assert!(table(&rounds[1..2]).contains("not reached"));
    }
}
