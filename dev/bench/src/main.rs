//! `cargo xtask bench`: the comparison with peers, and separate measurements.

#![allow(clippy::indexing_slicing)]

mod compare;
mod events;
mod fitment;
mod gateway;
mod keyspace;
mod links;
mod reservations;
mod warm;

use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_stack::tools::Options;

/// Compare Weir with bare Envoy, Envoy's Lua, nginx with Lua, and Webdis, side by side
///
/// Starts each system with one worker on one core, and sends all of them the same requests in turns. Installs nginx and
/// Webdis with apt if allowed; the end lists what was not measured, and why. Writes bench/RESULTS.md, bench/results.json
/// and plots. A subcommand runs a separate measurement.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Envoy binary [default: WEIR_ENVOY, else envoy on PATH, else a pinned download]
    #[arg(long, global = true, value_name = "PATH")]
    envoy: Option<PathBuf>,

    #[command(subcommand)]
    scenario: Option<Scenario>,

    #[command(flatten)]
    compare: compare::Arguments,
}

#[derive(Debug, clap::Subcommand)]
enum Scenario {
    /// Many open sales, one of them with very many reservations
    ///
    /// Starts everything, opens the sales, writes the reservations into SQL and warms the large sale. Measures the time, the
    /// memory of Redis and of the gateway, and the largest value in Redis. Then some users buy. Exit code 0 only if every
    /// value in Redis is at most 1 MB, Redis has every user, and every buyer got the right answer.
    Warm(warm::Arguments),

    /// A million short links: the rate of batch creation, and the memory in Redis
    ///
    /// Builds a release of the origin, and runs it with Redis and SQLite. RUST_LOG also applies to the origin: by default it
    /// logs each request. The scenario `make-link` of the comparison measures the creation of single links.
    Links(links::Arguments),

    /// Events and browse history: acknowledged events, compared with nginx and Lua on Kafka; lists
    ///
    /// Builds a release of the origin. Compared systems take turns. Kafka needs Java and Maven; its peer needs nginx with Lua
    /// and a Kafka client. The end lists what was not measured, and why.
    Events(events::Arguments),

    /// Vehicle fitment: imports into SQL and Redis, memory, and Redis time for 1,000 pairs
    ///
    /// Builds a release of the origin, and runs it with Redis and SQLite. Runs the same query with the directory, with
    /// bitmaps alone, and with the script of the seed document.
    Fitment(fitment::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Not Debug: its backtrace would hide the instruction in the message.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let tools = Options {
        envoy: arguments.envoy,
    };
    match &arguments.scenario {
        Some(Scenario::Warm(arguments)) => warm::run(arguments, tools),
        Some(Scenario::Links(arguments)) => links::run(arguments),
        Some(Scenario::Events(arguments)) => events::run(arguments, &tools),
        Some(Scenario::Fitment(arguments)) => fitment::run(arguments),
        None => compare::run(&arguments.compare, tools),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// clap detects most definition errors only at run time.
    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
