//! Many schedules on several threads, each determined only by its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::schedule::Schedule;
use crate::stats::Stats;
use crate::{Options, Report};

/// The result of many schedules.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Statistics of all schedules.
    pub stats: Stats,
    /// The failure with the lowest seed.
    pub failure: Option<Report>,
}

/// Runs the schedules of `schedules` seeds from `seed` on. After a failure no new schedule starts. If several fail,
/// reports the lowest seed, so that the result is deterministic.
pub fn run_many<S: Schedule>(
    seed: u64,
    schedules: u64,
    threads: usize,
    options: &Options,
    progress: impl Fn(u64) + Sync,
) -> Outcome {
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        let mut stats = Stats::default();
        while !stop.load(Ordering::Relaxed) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= schedules {
                break;
            }
            let report = run_caught(&S::new(seed + n), options);
            stats.add(&report.stats);
            if report.violation.is_some() {
                stop.store(true, Ordering::Relaxed);
                keep_first(&outcome, report);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        let mut outcome = outcome.lock().expect("no thread panics with it");
        outcome.stats.add(&stats);
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    outcome.into_inner().expect("no thread has panicked")
}

fn keep_first(outcome: &Mutex<Outcome>, report: Report) {
    let mut outcome = outcome.lock().expect("no thread panics with it");
    let existing = outcome.failure.as_ref();
    if existing.is_none_or(|existing| report.seed < existing.seed) {
        outcome.failure = Some(report);
    }
}

/// A panic is a failure like any other.
pub(crate) fn run_caught<S: Schedule>(plan: &S, options: &Options) -> Report {
    catch_unwind(AssertUnwindSafe(|| plan.run(options))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Report::panicked(plan.seed(), text.unwrap_or("without a word"))
    })
}
