//! `weir-simulation --schedules 100000 --seed 1`: runs schedules of each subject, and prints the first that fails, shrunk.

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Instant;

use clap::Parser;
use weir_simulation::{
    Limits, Links, Mutation, Options, Report, Rooms, Sales, Schedule, Sites, Stats, run_many,
    shrink,
};

/// Simulate flash sales, limits, links and waiting rooms under random faults
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of schedules per subject
    #[arg(long, default_value_t = 2_000)]
    schedules: u64,
    /// Seed of the first schedule; each further schedule adds one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this subject: sales, sites, limits, links or rooms
    #[arg(long)]
    only: Option<String>,
    /// Number of threads [default: the number of cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Inject this mistake
    #[arg(long)]
    mutation: Option<Mutation>,
    /// Print the events of a failing schedule, or of the only one
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let subjects = [
        run::<Sales>,
        run::<Sites>,
        run::<Limits>,
        run::<Links>,
        run::<Rooms>,
    ];
    // All subjects run, even after a failure.
    let failed = subjects.into_iter().filter(|run| !run(&arguments)).count();
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Whether all schedules passed.
fn run<S: Schedule>(arguments: &Arguments) -> bool {
    if arguments
        .only
        .as_ref()
        .is_some_and(|only| only != S::SUBJECT)
    {
        return true;
    }
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
                "{}: {done} of {} schedules, {seconds:.1} s",
                S::SUBJECT,
                arguments.schedules
            );
        }
    };
    let outcome = run_many::<S>(
        arguments.seed,
        arguments.schedules,
        threads,
        &options,
        progress,
    );
    print_stats::<S>(&outcome.stats, start.elapsed().as_secs_f64());
    if let Some(report) = outcome.failure {
        print_failure::<S>(&report, &options, arguments.trace);
        return false;
    }
    if arguments.trace && arguments.schedules == 1 {
        print_trace(&S::new(arguments.seed), &options);
    }
    true
}

fn print_stats<S: Schedule>(stats: &Stats, seconds: f64) {
    let per_second = stats.schedules as f64 / seconds;
    println!(
        "{}: {} schedules in {seconds:.1} s ({per_second:.0} a second), {} steps: {:?}",
        S::SUBJECT,
        stats.schedules,
        stats.steps,
        stats.done
    );
    println!("faults: {:?}", stats.faults);
    println!("feedback to engines: {:?}", stats.feedback);
    println!("answers: {:?}", stats.answers);
}

fn print_failure<S: Schedule>(report: &Report, options: &Options, is_traced: bool) {
    let seed = report.seed;
    println!(
        "\n{}: seed {seed} fails: {:?}",
        S::SUBJECT,
        report.violation
    );
    println!(
        "again: cargo run -p weir-simulation -- --only {} --seed {seed} --schedules 1",
        S::SUBJECT
    );
    let plan = S::new(seed);
    println!("shrinking …");
    let (small, report) = shrink(&plan, options);
    println!("shrunk, it fails so: {:?}\n{small}", report.violation);
    if is_traced {
        print_trace(&small, options);
    }
}

fn print_trace<S: Schedule>(plan: &S, options: &Options) {
    let options = Options {
        keeps_lines: true,
        ..options.clone()
    };
    for line in plan.run(&options).lines {
        println!("{line}");
    }
}
