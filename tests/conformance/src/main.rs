//! `cargo xtask conformance`: replays the same requests on every host.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tokio::runtime::Runtime;
use weir_conformance::suite::Report;
use weir_conformance::{hosts, make, suite, tokens, vector};
use weir_stack::tools::Options;

/// Printed with every table.
const NOT_COMPARED: &str = "Not compared: the names of clicks, which each gateway makes up, and when it says that one led nowhere; and what HTTP or the host's own server adds \
    (date, server, content-length, x-forwarded-proto and their like).";

/// Replay the conformance vectors on every host, and compare byte for byte
#[derive(Debug, Parser)]
struct Arguments {
    /// Envoy binary [default: envoy on PATH, else a pinned download]
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Only these hosts
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Rewrite the vectors from what the engines do now; review the difference
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all results are as expected.
fn run(arguments: &Arguments) -> Result<bool> {
    let runtime = Runtime::new()?;
    if arguments.write {
        let written = make::write(&runtime)?;
        println!("{written} vectors in {}", vector::folder().display());
        return Ok(true);
    }
    let vectors = vector::read_all()?;
    let names: Vec<&str> = match arguments.hosts.is_empty() {
        true => hosts::NAMES.into(),
        false => arguments.hosts.iter().map(String::as_str).collect(),
    };
    let options = Options {
        envoy: arguments.envoy.clone(),
    };
    let (mut reports, mut running) = (Vec::new(), Vec::new());
    for name in names {
        let mut host = match hosts::start(name, &runtime, &options) {
            // Hosts that this machine cannot run are reported, but do not fail the run.
            Err(error) if arguments.hosts.is_empty() && hosts::MAY_BE_ABSENT.contains(&name) => {
                println!(
                    "{name} was not run, none of {} vectors: {error:#}\n",
                    vectors.len()
                );
                continue;
            }
            host => host?,
        };
        reports.push(suite::run(host.as_mut(), &vectors)?);
        running.push(host);
    }
    print!("{}", suite::table(&reports));
    println!("\n{NOT_COMPARED}\n");
    let matrix = tokens::matrix(&mut running, &vectors)?;
    println!("{}", matrix.table());
    let is_right = |report: &Report| report.failures.is_empty();
    Ok(reports.iter().all(is_right) && matrix.is_right())
}
