//! A schedule of a waiting room.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::fmt;
use std::ops::Range;

use super::{finish, world::World};
use crate::random::Rng;
use crate::schedule::{Schedule, Step};
use crate::stage::Crew;
use crate::stage::fault::{Fault, Hazards, LAST_CLIENT_AT_MS, TimedFault, random_faults};
use crate::{Options, Report};

/// A schedule: a room, gateways, visitors, and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) seed: u64,
    pub(super) crew: Crew,
    pub(super) room: Room,
    pub(super) visitors: Vec<Visitor>,
    pub(super) faults: Vec<TimedFault>,
}

/// The limits of the room; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) per_minute: u64,
    pub(super) active_max: u64,
}

/// One visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    pub(super) at_ms: u64,
    /// The polling interval, in milliseconds.
    pub(super) asks_after_ms: u64,
    /// The number of requests after which the visitor gives up.
    pub(super) gives_up_after: Option<u32>,
    /// The time after which the visitor disconnects in each of the first requests, in microseconds.
    pub(super) leaves_after_us: Option<u64>,
}

/// Mostly within the duration of a Redis call.
fn leaves(rng: &mut Rng) -> Option<u64> {
    match rng.below(10) {
        0 => Some(rng.between(50, 300_000)),
        1..=4 => Some(rng.between(50, 2_000)),
        _ => None,
    }
}

fn visitor(rng: &mut Rng) -> Visitor {
    Visitor {
        at_ms: rng.below(LAST_CLIENT_AT_MS),
        asks_after_ms: rng.between(100, 900),
        gives_up_after: rng.chance(15).then(|| rng.between(1, 4) as u32),
        leaves_after_us: leaves(rng),
    }
}

impl Plan {
    pub(super) fn loses_data(&self) -> bool {
        self.faults.iter().any(|timed| timed.fault.loses_data())
    }

    /// Whether an issued position may be lost everywhere.
    pub(super) fn forgets(&self) -> bool {
        let is = |of: fn(&Fault) -> bool| self.faults.iter().any(|timed| of(&timed.fault));
        let dies =
            |fault: &Fault| matches!(fault, Fault::KillGateway { .. } | Fault::KillWorker { .. });
        let lost_the_last = |fault: &Fault| {
            matches!(
                fault,
                Fault::RestartRedis {
                    back_ms: Some(1..),
                    ..
                }
            )
        };
        is(lost_the_last) || (self.loses_data() && is(dies))
    }

    /// The end of the last fault.
    pub(super) fn faults_end_ms(&self) -> u64 {
        let ends = self.faults.iter();
        let ends = ends.map(|timed| timed.at_ms + timed.fault.length_ms());
        ends.max().unwrap_or(0)
    }
}

impl Schedule for Plan {
    const SUBJECT: &'static str = "rooms";

    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 13);
        let crew = Crew {
            gateways: rng.between(1, 3) as u32,
            workers: rng.between(1, 2) as u32,
        };
        let room = Room {
            per_minute: rng.pick(&[0, 0, 60, 240, 1_200]),
            active_max: rng.pick(&[0, 2, 5, 12]),
        };
        let hazards = Hazards::new(&mut rng);
        let count = rng.between(3, 30);
        let mut visitors: Vec<_> = (0..count).map(|_| visitor(&mut rng)).collect();
        visitors.sort_by_key(|visitor| visitor.at_ms);
        // The operator's settings: paused, open, or capacity for one.
        let own = |rng: &mut Rng| Fault::Rules {
            document: rng.below(3) as u32,
        };
        let faults = random_faults(&mut rng, crew, hazards, own);
        Self {
            seed,
            crew,
            room,
            visitors,
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
        vec![self.faults.len(), self.visitors.len()]
    }

    fn drop_entries(&mut self, list: usize, entries: Range<usize>) {
        match list {
            0 => drop(self.faults.drain(entries)),
            _ => drop(self.visitors.drain(entries)),
        }
    }

    fn steps(&self) -> Vec<Step<Self>> {
        let mut steps: Vec<Step<Self>> = vec![
            Box::new(|plan| plan.crew.gateways = 1),
            Box::new(|plan| plan.crew.workers = 1),
            Box::new(|plan| plan.room.per_minute = 0),
            Box::new(|plan| plan.room.active_max = 0),
        ];
        for at in 0..self.visitors.len() {
            steps.push(Box::new(move |plan| {
                let visitor = &mut plan.visitors[at];
                (visitor.leaves_after_us, visitor.gives_up_after) = (None, None);
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
        let unlike = |visitor: &&Visitor| {
            visitor.gives_up_after.is_some() || visitor.leaves_after_us.is_some()
        };
        let unlike = self.visitors.iter().filter(unlike).count() as u64;
        let parts = (self.faults.len() + self.visitors.len()) as u64;
        let limits = u64::from(self.room.per_minute > 0) + u64::from(self.room.active_max > 0);
        let parties = u64::from(self.crew.gateways + self.crew.workers) + limits;
        parts * 10_000 + parties * 1_000 + unlike * 100 + lengths
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?} {:?}", self.crew, self.room)?;
        for visitor in &self.visitors {
            writeln!(f, "  {visitor:?}")?;
        }
        for timed in &self.faults {
            writeln!(f, "  at {} ms: {:?}", timed.at_ms, timed.fault)?;
        }
        Ok(())
    }
}
