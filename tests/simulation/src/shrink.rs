//! A schedule that fails, made as small as it still fails.

use std::fmt;

use crate::plan::{Fault, Plan, Then};
use crate::runner::run_caught;
use crate::{Options, Report};

/// The most runs that shrinking may take.
const RUNS_MAX: u32 = 600;

/// Shrinks: fewer faults, fewer clients, a smaller setting, shorter faults. What it gives fails, too.
pub fn shrink(plan: &Plan, options: &Options) -> (Plan, Report) {
    let mut shrinker = Shrinker {
        best: plan.clone(),
        report: run_caught(plan, options),
        options: options.clone(),
        runs: 0,
    };
    loop {
        let before = shrinker.best.size();
        shrinker.drop_parts(|plan| &mut plan.faults);
        shrinker.drop_parts(|plan| &mut plan.clients);
        shrinker.simplify_setting();
        shrinker.simplify_clients();
        shrinker.shorten_faults();
        if shrinker.best.size() >= before || shrinker.runs >= RUNS_MAX {
            return (shrinker.best, shrinker.report);
        }
    }
}

struct Shrinker {
    best: Plan,
    report: Report,
    options: Options,
    runs: u32,
}

impl Shrinker {
    /// Takes `plan` if it fails. Whether it does.
    fn offer(&mut self, plan: Plan) -> bool {
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

    /// Drops halves, quarters, … and at last single ones of a list.
    fn drop_parts<T>(&mut self, list: impl Fn(&mut Plan) -> &mut Vec<T>) {
        let mut size = list(&mut self.best).len();
        while size > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() {
                let mut plan = self.best.clone();
                let entries = list(&mut plan);
                let end = (at + size).min(entries.len());
                drop(entries.drain(at..end));
                if !self.offer(plan) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn simplify_setting(&mut self) {
        let steps: [fn(&mut Plan); 7] = [
            |plan| plan.setting.gateways = 1,
            |plan| plan.setting.workers = 1,
            |plan| plan.setting.origins = 1,
            |plan| plan.setting.shards = 1,
            |plan| plan.setting.total /= 2,
            |plan| plan.setting.user_cap = 1,
            |plan| {
                plan.setting.is_first_user_blocked = false;
                plan.setting.is_reserved = false;
            },
        ];
        for step in steps {
            let mut plan = self.best.clone();
            step(&mut plan);
            plan.keep_faults_in_bounds();
            self.offer(plan);
        }
    }

    fn simplify_clients(&mut self) {
        for at in 0..self.best.clients.len() {
            if self.best.clients[at].attempt.is_some() {
                let mut plan = self.best.clone();
                plan.clients[at].attempt = None;
                self.offer(plan);
            }
            let mut plan = self.best.clone();
            let client = &mut plan.clients[at];
            let is_simple = client.then == Then::Nothing
                && client.retries == 0
                && client.leaves_after_us.is_none();
            if !is_simple {
                client.then = Then::Nothing;
                client.retries = 0;
                client.leaves_after_us = None;
                self.offer(plan);
            }
        }
    }

    fn shorten_faults(&mut self) {
        for at in 0..self.best.faults.len() {
            let mut plan = self.best.clone();
            if let Fault::KillGateway { for_ms, .. }
            | Fault::PauseGateway { for_ms, .. }
            | Fault::KillOrigin { for_ms, .. }
            | Fault::RestartRedis { for_ms, .. } = &mut plan.faults[at].fault
                && *for_ms > 1
            {
                *for_ms /= 2;
                self.offer(plan);
            }
        }
    }
}

impl Plan {
    fn size(&self) -> u64 {
        let setting = &self.setting;
        let parts = self.faults.len() + self.clients.len();
        let lengths: u64 = self
            .faults
            .iter()
            .map(|timed| timed.fault.length_ms())
            .sum();
        let parties = setting.gateways + setting.workers + setting.origins + setting.shards;
        parts as u64 * 10_000 + u64::from(parties) * 1_000 + setting.total * 100 + lengths
    }

    /// Faults of parties that are no longer there befall the last of their kind.
    fn keep_faults_in_bounds(&mut self) {
        let setting = self.setting;
        for timed in &mut self.faults {
            match &mut timed.fault {
                Fault::KillGateway { gateway, .. }
                | Fault::PauseGateway { gateway, .. }
                | Fault::SetGatewayClock { gateway, .. } => {
                    *gateway = (*gateway).min(setting.gateways - 1);
                }
                Fault::KillOrigin { origin, .. } | Fault::SetOriginClock { origin, .. } => {
                    *origin = (*origin).min(setting.origins - 1);
                }
                Fault::LoseShard { shard, .. } => *shard = (*shard).min(setting.shards - 1),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}", self.setting)?;
        for client in &self.clients {
            writeln!(f, "  {client:?}")?;
        }
        for timed in &self.faults {
            writeln!(f, "  at {} ms: {:?}", timed.at_ms, timed.fault)?;
        }
        Ok(())
    }
}
