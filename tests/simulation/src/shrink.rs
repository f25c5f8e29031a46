//! Shrinks a failing schedule.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use crate::runner::run_caught;
use crate::schedule::Schedule;
use crate::{Options, Report};

/// The maximum number of runs for shrinking.
const RUNS_MAX: u32 = 600;

/// Shrinks to fewer faults, fewer clients, a smaller setting and shorter faults. The result still fails.
pub fn shrink<S: Schedule>(plan: &S, options: &Options) -> (S, Report) {
    let mut shrinker = Shrinker {
        best: plan.clone(),
        report: run_caught(plan, options),
        options: options.clone(),
        runs: 0,
    };
    loop {
        let before = shrinker.best.size();
        for list in 0..shrinker.best.lists().len() {
            shrinker.drop_entries(list);
        }
        for step in shrinker.best.steps() {
            let mut plan = shrinker.best.clone();
            step(&mut plan);
            if plan != shrinker.best {
                shrinker.offer(plan);
            }
        }
        if shrinker.best.size() >= before || shrinker.runs >= RUNS_MAX {
            return (shrinker.best, shrinker.report);
        }
    }
}

struct Shrinker<S> {
    best: S,
    report: Report,
    options: Options,
    runs: u32,
}

impl<S: Schedule> Shrinker<S> {
    /// Keeps `plan` if it fails. Returns whether it does.
    fn offer(&mut self, plan: S) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let report = run_caught(&plan, &self.options);
        let fails = report.violation.is_some();
        if fails {
            self.best = plan;
            self.report = report;
        }
        fails
    }

    /// Removes halves, quarters, and so on, and finally single entries of a list.
    fn drop_entries(&mut self, list: usize) {
        let mut size = self.best.lists()[list];
        while size > 0 {
            let mut at = 0;
            while at < self.best.lists()[list] {
                let mut plan = self.best.clone();
                let end = (at + size).min(plan.lists()[list]);
                plan.drop_entries(list, at..end);
                if !self.offer(plan) {
                    at += size;
                }
            }
            size /= 2;
        }
    }
}
