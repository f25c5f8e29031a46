//! `cargo xtask bench`: the comparison with others, and single measurements beside it.

mod compare;
mod gateway;
mod keyspace;
mod links;
mod ratelimit;
mod redirect;
mod reservations;
mod turns;
mod warm;

use anyhow::Result;
use std::process::ExitCode;
use weir_stack::tools::Options;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
// The flattened ones have a group of the same name.
#[group(skip)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    scenario: Option<Scenario>,

    #[command(flatten)]
    compare: compare::Arguments,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Scenario {
    /// Many sales open at once, one of them with very many reserved users
    ///
    /// Starts everything, opens the sales, writes the reservations into SQL and warms the large
    /// sale. Measures how long that takes and how much memory Redis and the gateway need, and
    /// looks for the largest value in Redis. Then some users buy. Exit code 0 only if no value in
    /// Redis is over 1 MB, every user arrived there, and everybody who bought got the right answer.
    Warm(warm::Arguments),

    /// A limit per user in Envoy's memory, against the same Envoy without it
    ///
    /// Needs wrk and two cores: one for Envoy's worker, one for the load.
    Ratelimit(turns::Arguments),

    /// A short link from a gateway's memory, against a redirect by Envoy's own route
    ///
    /// Needs wrk and two cores: one for Envoy's worker, one for the load.
    Redirect(turns::Arguments),

    /// Making short links: how many a second through HTTP, how fast, and what they take in Redis
    ///
    /// Builds the origin as operators do, runs it with Redis and SQLite, and has wrk make links. Then fills
    /// Redis with a million of them, in batches. Needs wrk. RUST_LOG is the origin's, too: at its default it
    /// writes a line for each request.
    Links(links::Arguments),
}

pub(crate) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    match &arguments.scenario {
        Some(Scenario::Warm(arguments)) => warm::run(arguments, tools),
        Some(Scenario::Ratelimit(arguments)) => ratelimit::run(arguments, tools),
        Some(Scenario::Redirect(arguments)) => redirect::run(arguments, tools),
        Some(Scenario::Links(arguments)) => links::run(arguments),
        None => compare::run(&arguments.compare, tools),
    }
}
