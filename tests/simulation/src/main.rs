//! `weir-simulation --schedules 100000 --seed 1`: runs schedules, and prints the first that fails, shrunk.

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use clap::Parser;
use weir_simulation::{Mutation, Options, Plan, Report, Stats, run_many, run_plan, shrink};

/// Simulates flash sales under random faults.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many schedules.
    #[arg(long, default_value_t = 2_000)]
    schedules: u64,
    /// The first schedule's seed; each other has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many at once: as many as there are cores, unless set.
    #[arg(long)]
    threads: Option<usize>,
    /// A mistake that a party makes.
    #[arg(long)]
    mutation: Option<Mutation>,
    /// Prints what happens in a schedule that fails, or in the only one.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        mutation: arguments.mutation,
        keeps_lines: false,
    };
    let threads = arguments.threads;
    let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    let start = Instant::now();
    let every = (arguments.schedules / 20).max(1);
    let progress = |done: u64| {
        if done.is_multiple_of(every) {
            let seconds = start.elapsed().as_secs_f64();
            eprintln!(
                "{done} of {} schedules, {seconds:.1} s",
                arguments.schedules
            );
        }
    };
    let outcome = run_many(
        arguments.seed,
        arguments.schedules,
        threads,
        &options,
        progress,
    );
    print_stats(&outcome.stats, start.elapsed().as_secs_f64());
    match outcome.failure {
        Some(report) => {
            print_failure(&report, &options, arguments.trace);
            ExitCode::FAILURE
        }
        None => {
            if arguments.trace && arguments.schedules == 1 {
                print_trace(&Plan::new(arguments.seed), &options);
            }
            ExitCode::SUCCESS
        }
    }
}

fn print_stats(stats: &Stats, seconds: f64) {
    let per_second = stats.schedules as f64 / seconds;
    println!(
        "{} schedules in {seconds:.1} s ({per_second:.0} a second): {} steps, {} orders, {} units repaired",
        stats.schedules, stats.steps, stats.orders, stats.units_repaired
    );
    println!("faults: {:?}", stats.faults);
    println!("feedback to gates: {:?}", stats.feedback);
    println!("answers: {:?}", stats.answers);
}

fn print_failure(report: &Report, options: &Options, is_traced: bool) {
    let seed = report.seed;
    println!("\nseed {seed} fails: {:?}", report.violation);
    println!("again: cargo run -p weir-simulation -- --seed {seed} --schedules 1");
    let plan = Plan::new(seed);
    println!("shrinking …");
    let (small, report) = shrink(&plan, options);
    println!("shrunk, it fails so: {:?}\n{small}", report.violation);
    if is_traced {
        print_trace(&small, options);
    }
}

fn print_trace(plan: &Plan, options: &Options) {
    let options = Options {
        keeps_lines: true,
        ..options.clone()
    };
    for line in run_plan(plan, &options).lines {
        println!("{line}");
    }
}
