//! `cargo xtask soak`.

use anyhow::Result;
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use weir_soak::{Settings, run};

/// Run the whole stack at half of its capacity, with one fault per minute
///
/// Checks each minute's sale when its last hold has ended: no unit oversold or lost. Samples memory, file descriptors,
/// Redis keys and logs, and plots them. Exit code 0 only if every sale balances and no sample grows.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Arguments {
    /// Duration, in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=10_080))]
    minutes: u32,

    /// Seed for the sequence of faults
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Requests per second of buyers, and as many of link visitors [default: half of the measured capacity]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,

    /// Output folder for the table and the plot [default: target/weir/soak]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match soak(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<ExitCode> {
    let settings = Settings {
        periods: arguments.minutes,
        period: Duration::from_secs(60),
        seed: arguments.seed,
        per_second: arguments.rate.map(f64::from),
    };
    let out = arguments.out.clone();
    let out = out.unwrap_or_else(|| weir_stack::workspace::out_dir().join("soak"));
    let report = run(&settings)?;
    report.write(&out)?;
    println!("\n{}", report.text());
    println!("table and plot: {}", out.display());
    Ok(match report.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
