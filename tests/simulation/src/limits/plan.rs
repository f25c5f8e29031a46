//! A schedule of limits.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::fmt;
use std::ops::Range;

use weir_limit::Algorithm;

use super::{finish, world::World};
use crate::random::Rng;
use crate::schedule::{Schedule, Step};
use crate::stage::Crew;
use crate::stage::fault::{Fault, Hazards, LAST_CLIENT_AT_MS, TimedFault, random_faults};
use crate::{Options, Report};

/// A schedule: a rule, gateways, clients, and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) seed: u64,
    pub(super) crew: Crew,
    pub(super) rule: Rule,
    pub(super) second: Second,
    /// Whether rules are read from Redis.
    pub(super) reloads: bool,
    pub(super) clients: Vec<Client>,
    pub(super) faults: Vec<TimedFault>,
}

/// The tested rule, which counts in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) algorithm: Algorithm,
    pub(super) rate: u32,
    pub(super) per_ms: u64,
    pub(super) burst: u32,
    pub(super) cost_max: u32,
    pub(super) without: OutageMode,
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) max: u32,
    pub(super) lasts_ms: u64,
}

/// The mode without Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutageMode {
    Open,
    Closed,
    Local,
}

/// Another rule, shared by all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Second {
    None,
    Here,
    InRedis,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) at_ms: u64,
    pub(super) user: u32,
    pub(super) cost: u32,
    /// The duration behind the gateway if it passes, in milliseconds.
    pub(super) for_ms: u64,
    /// The time after which the client disconnects without an answer, in microseconds.
    pub(super) leaves_after_us: Option<u64>,
}

/// The number of documents with rules: each allows one more than the previous one.
pub(super) const DOCUMENTS: u32 = 3;

impl Rule {
    /// The rule in a document, by its number.
    pub(super) fn of(self, document: u32) -> Self {
        Self {
            rate: self.rate + document,
            burst: self.burst + document,
            ..self
        }
    }

    fn new(rng: &mut Rng) -> Self {
        let algorithm = rng.pick(&[
            Algorithm::Gcra,
            Algorithm::SlidingWindow,
            Algorithm::FixedWindow,
            Algorithm::Concurrency,
        ]);
        let rate = rng.between(2, 8) as u32;
        let is_gcra = algorithm == Algorithm::Gcra;
        let burst = if is_gcra {
            rng.between(2, 10) as u32
        } else {
            rate
        };
        let per_ms = match algorithm {
            Algorithm::Concurrency => rng.between(1_500, 3_000),
            _ => rng.pick(&[200, 500, 1_000, 2_500, 4_000]),
        };
        let may_lease = algorithm != Algorithm::Concurrency;
        let lease = (may_lease && rng.chance(50)).then(|| Lease {
            max: rng.between(2, burst.into()) as u32,
            lasts_ms: rng.pick(&[50, 100, 200]),
        });
        Self {
            algorithm,
            rate,
            per_ms,
            burst,
            cost_max: if rng.chance(25) { 2 } else { 1 },
            without: rng.pick(&[
                OutageMode::Closed,
                OutageMode::Closed,
                OutageMode::Local,
                OutageMode::Open,
            ]),
            lease,
        }
    }
}

fn client(rng: &mut Rng, cost_max: u32) -> Client {
    Client {
        at_ms: rng.below(LAST_CLIENT_AT_MS),
        user: rng.below(2) as u32,
        cost: rng.between(1, cost_max.into()) as u32,
        for_ms: rng.pick(&[5, 50, 300, 1_200, 5_000]),
        leaves_after_us: leaves(rng),
    }
}

/// Mostly within the duration of a Redis call.
fn leaves(rng: &mut Rng) -> Option<u64> {
    match rng.below(10) {
        0 => Some(rng.between(50, 400_000)),
        1 | 2 => Some(rng.between(50, 2_000)),
        _ => None,
    }
}

impl Plan {
    pub(super) fn loses_data(&self) -> bool {
        self.faults.iter().any(|timed| timed.fault.loses_data())
    }

    /// The end of the last fault.
    pub(super) fn faults_end_ms(&self) -> u64 {
        let ends = self.faults.iter();
        let ends = ends.map(|timed| timed.at_ms + timed.fault.length_ms());
        ends.max().unwrap_or(0)
    }
}

impl Schedule for Plan {
    const SUBJECT: &'static str = "limits";

    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 11);
        let crew = Crew {
            gateways: rng.between(1, 3) as u32,
            workers: rng.between(1, 2) as u32,
        };
        let rule = Rule::new(&mut rng);
        let second = rng.pick(&[Second::None, Second::None, Second::Here, Second::InRedis]);
        let reloads = rng.chance(40);
        let hazards = Hazards::new(&mut rng);
        let count = rng.between(10, 120);
        let mut clients: Vec<_> = (0..count)
            .map(|_| client(&mut rng, rule.cost_max))
            .collect();
        if rng.chance(30) {
            // Several clients at the same time.
            for client in &mut clients {
                client.at_ms = client.at_ms / 1_000 * 1_000 + client.at_ms % 20;
            }
        }
        clients.sort_by_key(|client| client.at_ms);
        let own = |rng: &mut Rng| match reloads {
            true => Fault::Rules {
                document: rng.below(DOCUMENTS.into()) as u32,
            },
            false => Fault::StallRedis {
                for_ms: rng.between(200, 400),
            },
        };
        let faults = random_faults(&mut rng, crew, hazards, own);
        Self {
            seed,
            crew,
            rule,
            second,
            reloads,
            clients,
            faults,
        }
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn run(&self, options: &Options) -> Report {
        let mut world = World::new(self, options);
        finish::run(&mut world);
        world.into_report()
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
            Box::new(|plan| plan.crew.gateways = 1),
            Box::new(|plan| plan.crew.workers = 1),
            Box::new(|plan| plan.second = Second::None),
            Box::new(|plan| plan.rule.lease = None),
            Box::new(|plan| {
                plan.rule.cost_max = 1;
                plan.clients.iter_mut().for_each(|client| client.cost = 1);
            }),
        ];
        for at in 0..self.clients.len() {
            steps.push(Box::new(move |plan| {
                plan.clients[at].leaves_after_us = None;
                plan.clients[at].for_ms = 5;
            }));
        }
        for at in 0..self.faults.len() {
            steps.push(Box::new(move |plan| plan.faults[at].fault.shorten()));
        }
        let in_bounds = |step: Step<Self>| -> Step<Self> {
            Box::new(move |plan| {
                step(plan);
                let crew = plan.crew;
                let faults = plan.faults.iter_mut();
                faults.for_each(|timed| timed.fault.keep_in_bounds(crew));
            })
        };
        steps.into_iter().map(in_bounds).collect()
    }

    fn size(&self) -> u64 {
        let lengths: u64 = self.faults.iter().map(|one| one.fault.length_ms()).sum();
        let parts = (self.faults.len() + self.clients.len()) as u64;
        let parties = u64::from(self.crew.gateways + self.crew.workers);
        parts * 10_000 + parties * 1_000 + lengths
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?} {:?} {:?}", self.crew, self.rule, self.second)?;
        for client in &self.clients {
            writeln!(f, "  {client:?}")?;
        }
        for timed in &self.faults {
            writeln!(f, "  at {} ms: {:?}", timed.at_ms, timed.fault)?;
        }
        Ok(())
    }
}
