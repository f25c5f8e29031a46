//! `cargo xtask bench`: the comparison with others, and single measurements beside it.

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
/// Starts each system with one worker on one core and asks all of them the same, in turns. Gets nginx and Webdis from
/// apt where that may be done; what could not be measured is listed at the end, with the reason. Writes
/// bench/RESULTS.md, bench/results.json and plots. With a name: a measurement of its own.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// The Envoy binary to use [default: WEIR_ENVOY, else envoy on PATH, else a pinned
    /// download]
    #[arg(long, global = true, value_name = "PATH")]
    envoy: Option<PathBuf>,

    #[command(subcommand)]
    scenario: Option<Scenario>,

    #[command(flatten)]
    compare: compare::Arguments,
}

#[derive(Debug, clap::Subcommand)]
enum Scenario {
    /// Many sales open at once, one of them with very many reserved users
    ///
    /// Starts everything, opens the sales, writes the reservations into SQL and warms the large
    /// sale. Measures how long that takes and how much memory Redis and the gateway need, and
    /// looks for the largest value in Redis. Then some users buy. Exit code 0 only if no value in
    /// Redis is over 1 MB, every user arrived there, and everybody who bought got the right answer.
    Warm(warm::Arguments),

    /// A million short links: how fast they are made in batches, and what they take in Redis
    ///
    /// Builds the origin as operators do, and runs it with Redis and SQLite. RUST_LOG is the origin's, too: at its
    /// default it writes a line for each request. How many links a second are made one by one, and how fast, the
    /// comparison's scenario `make-link` measures.
    Links(links::Arguments),

    /// Behaviour events and browse history: acknowledged events, beside nginx with Lua on Kafka; lists
    ///
    /// Builds the origin as operators do. Two that are compared have turns. Kafka needs Java and Maven, its peer nginx with Lua
    /// and its client of Kafka: what could not be measured is told at the end, with the reason.
    Events(events::Arguments),

    /// Vehicle fitment: imports into SQL and Redis, memory, and Redis' time for 1,000 pairs
    ///
    /// Builds the origin as operators do, and runs it with Redis and SQLite. The question is asked by the directory, by
    /// bitmaps alone, and by the script of the seed document.
    Fitment(fitment::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Not Debug, whose backtrace would bury the sentence that says what to do.
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

    /// clap finds most mistakes in a definition only when it runs.
    #[test]
    fn the_command_line_is_well_defined() {
        Arguments::command().debug_assert();
    }
}
