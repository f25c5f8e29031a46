//! A sale's schedule as a [`Schedule`] to run and shrink.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::fmt;
use std::ops::Range;

use crate::plan::{Fault, FollowUp, Plan};
use crate::schedule::{Schedule, Step};
use crate::world::World;
use crate::{Options, Report, finish};

impl Schedule for Plan {
    const SUBJECT: &'static str = "sales";

    fn new(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn run(&self, options: &Options) -> Report {
        let mut world = World::new(self, options);
        finish::run(&mut world);
        let World {
            witness,
            trace,
            stats,
            ..
        } = world;
        Report {
            seed: self.seed,
            violation: witness.violation,
            trace_hash: trace.hash(),
            lines: trace.into_lines(),
            stats,
        }
    }

    fn lists(&self) -> Vec<usize> {
        vec![self.faults.len(), self.clients.len()]
    }

    fn drop_entries(&mut self, list: usize, entries: Range<usize>) {
        match list {
            0 => drop(self.faults.drain(entries)),
            _ => drop(self.clients.drain(entries)),
        }
    }

    fn steps(&self) -> Vec<Step<Self>> {
        let mut steps: Vec<Step<Self>> = vec![
            setting(|plan| plan.setting.gateways = 1),
            setting(|plan| plan.setting.workers = 1),
            setting(|plan| plan.setting.origins = 1),
            setting(|plan| plan.setting.shards = 1),
            setting(|plan| plan.setting.total /= 2),
            setting(|plan| plan.setting.user_cap = 1),
            setting(|plan| {
                plan.setting.is_first_user_blocked = false;
                plan.setting.is_reserved = false;
            }),
            setting(|plan| plan.setting.is_other_sale_stuck = false),
        ];
        for at in 0..self.clients.len() {
            steps.push(Box::new(move |plan| plan.clients[at].attempt = None));
            steps.push(Box::new(move |plan| plan.clients[at].quantity = 1));
            steps.push(Box::new(move |plan| {
                let client = &mut plan.clients[at];
                client.then = FollowUp::Nothing;
                client.retries = 0;
                client.leaves_after_us = None;
            }));
        }
        for at in 0..self.faults.len() {
            steps.push(Box::new(move |plan| plan.faults[at].fault.shorten()));
        }
        steps
    }

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
}

fn setting(step: fn(&mut Plan)) -> Step<Plan> {
    Box::new(move |plan| {
        step(plan);
        plan.keep_faults_in_bounds();
    })
}

impl Fault {
    /// Halves the durations.
    fn shorten(&mut self) {
        if let Self::KillGateway { for_ms, .. }
        | Self::PauseGateway { for_ms, .. }
        | Self::KillOrigin { for_ms, .. }
        | Self::RestartRedis { for_ms, .. } = self
            && *for_ms > 1
        {
            *for_ms /= 2;
        }
    }
}

impl Plan {
    /// Assigns faults of removed participants to the last one of their kind.
    pub(crate) fn keep_faults_in_bounds(&mut self) {
        let setting = self.setting;
        for timed in &mut self.faults {
            match &mut timed.fault {
                Fault::KillGateway { gateway, .. }
                | Fault::PauseGateway { gateway, .. }
                | Fault::SetGatewayClock { gateway, .. } => {
                    *gateway = (*gateway).min(setting.gateways - 1);
                }
                Fault::KillOrigin { origin, .. }
                | Fault::SetOriginClock { origin, .. }
                | Fault::ChangeStock { origin, .. }
                | Fault::Refund { origin, .. }
                | Fault::MoveEnd { origin, .. } => {
                    *origin = (*origin).min(setting.origins - 1);
                }
                Fault::LoseShard { shard, .. } | Fault::Evict { shard, .. } => {
                    *shard = (*shard).min(setting.shards - 1)
                }
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
