//! A schedule of links.

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
use crate::stage::fault::{
    Fault, FetchFate, Hazards, LAST_CLIENT_AT_MS, TimedFault, random_faults,
};
use crate::{Options, Report};

/// A schedule: links, gateways, clients, edits, and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) seed: u64,
    pub(super) crew: Crew,
    /// The click limit of limited links.
    pub(super) clicks_max: u64,
    pub(super) clients: Vec<Client>,
    pub(super) edits: Vec<Edit>,
    pub(super) faults: Vec<TimedFault>,
}

/// The requested codes, grouped by the history of their links.
pub(super) const PLAIN: [u32; 2] = [0, 1];
pub(super) const EDITED: [u32; 2] = [2, 3];
pub(super) const LIMITED: [u32; 2] = [4, 5];
/// Created while clients request it.
pub(super) const MADE: u32 = 6;
pub(super) const UNKNOWN: u32 = 7;
pub(super) const CODES: u32 = 8;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) at_ms: u64,
    pub(super) code: u32,
    pub(super) kind: Kind,
    /// The time after which the client disconnects without an answer, in microseconds.
    pub(super) leaves_after_us: Option<u64>,
}

/// The kind of request for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Click,
    Head,
    /// A preview.
    Bot,
}

/// An action of a link's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) at_ms: u64,
    pub(super) code: u32,
    pub(super) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Make,
    Retarget,
    Disable,
    Enable,
    Delete,
}

fn client(rng: &mut Rng) -> Client {
    let leaves = match rng.below(10) {
        0 => Some(rng.between(50, 400_000)),
        1 => Some(rng.between(50, 2_000)),
        _ => None,
    };
    Client {
        at_ms: rng.below(LAST_CLIENT_AT_MS),
        code: rng.pick(&[0, 0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 7]),
        kind: match rng.below(10) {
            0 => Kind::Head,
            1 => Kind::Bot,
            _ => Kind::Click,
        },
        leaves_after_us: leaves,
    }
}

fn edits(rng: &mut Rng) -> Vec<Edit> {
    let mut edits = vec![];
    for code in EDITED {
        for _ in 0..rng.below(4) {
            edits.push(Edit {
                at_ms: rng.below(LAST_CLIENT_AT_MS),
                code,
                action: rng.pick(&[
                    Action::Retarget,
                    Action::Retarget,
                    Action::Disable,
                    Action::Enable,
                ]),
            });
        }
    }
    if rng.chance(30) {
        edits.push(Edit {
            at_ms: rng.between(1_000, LAST_CLIENT_AT_MS),
            code: EDITED[1],
            action: Action::Delete,
        });
    }
    edits.push(Edit {
        at_ms: rng.between(300, 3_500),
        code: MADE,
        action: Action::Make,
    });
    edits.sort_by_key(|edit| edit.at_ms);
    edits
}

fn own_fault(rng: &mut Rng) -> Fault {
    match rng.below(6) {
        0 | 1 => Fault::Fetch {
            fate: match rng.below(4) {
                0 => FetchFate::LoseRequest,
                1 => FetchFate::LoseReply,
                2 => FetchFate::Late {
                    by_ms: rng.between(100, 1_500),
                },
                _ => FetchFate::Fail,
            },
        },
        2 => Fault::StallOrigin {
            for_ms: rng.between(50, 1_500),
        },
        3 => Fault::KillOrigin {
            for_ms: rng.between(1, 1_200),
        },
        4 => Fault::SqlAway {
            for_ms: rng.between(50, 1_500),
        },
        _ => Fault::StallRedis {
            for_ms: rng.between(200, 500),
        },
    }
}

impl Plan {
    pub(super) fn loses_data(&self) -> bool {
        self.faults.iter().any(|timed| timed.fault.loses_data())
    }

    /// Whether a worker dies with unreported data.
    pub(super) fn kills_workers(&self) -> bool {
        let kills = |timed: &TimedFault| {
            matches!(
                timed.fault,
                Fault::KillGateway { .. } | Fault::KillWorker { .. }
            )
        };
        self.faults.iter().any(kills)
    }

    pub(super) fn doubles_calls(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|timed| timed.fault.kind() == "doubled")
    }

    /// The end of the last fault.
    pub(super) fn faults_end_ms(&self) -> u64 {
        let ends = self.faults.iter();
        let ends = ends.map(|timed| timed.at_ms + timed.fault.length_ms());
        ends.max().unwrap_or(0)
    }
}

impl Schedule for Plan {
    const SUBJECT: &'static str = "links";

    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 21);
        let crew = Crew {
            gateways: rng.between(1, 3) as u32,
            workers: rng.between(1, 2) as u32,
        };
        let hazards = Hazards::new(&mut rng);
        let count = rng.between(10, 100);
        let mut clients: Vec<_> = (0..count).map(|_| client(&mut rng)).collect();
        if rng.chance(30) {
            // Several clients at the same time.
            for client in &mut clients {
                client.at_ms = client.at_ms / 1_000 * 1_000 + client.at_ms % 20;
            }
        }
        clients.sort_by_key(|client| client.at_ms);
        Self {
            seed,
            crew,
            clicks_max: rng.between(1, 6),
            clients,
            edits: edits(&mut rng),
            faults: random_faults(&mut rng, crew, hazards, own_fault),
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
        vec![self.faults.len(), self.clients.len(), self.edits.len()]
    }

    fn drop_entries(&mut self, list: usize, entries: Range<usize>) {
        match list {
            0 => drop(self.faults.drain(entries)),
            1 => drop(self.clients.drain(entries)),
            _ => drop(self.edits.drain(entries)),
        }
    }

    fn steps(&self) -> Vec<Step<Self>> {
        let mut steps: Vec<Step<Self>> = vec![
            Box::new(|plan| plan.crew.gateways = 1),
            Box::new(|plan| plan.crew.workers = 1),
            Box::new(|plan| plan.clicks_max = 1),
        ];
        for at in 0..self.clients.len() {
            steps.push(Box::new(move |plan| {
                plan.clients[at].leaves_after_us = None
            }));
            steps.push(Box::new(move |plan| plan.clients[at].kind = Kind::Click));
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
        let parts = (self.faults.len() + self.clients.len() + self.edits.len()) as u64;
        let parties = u64::from(self.crew.gateways + self.crew.workers);
        parts * 10_000 + parties * 1_000 + lengths
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:?}, {} clicks", self.crew, self.clicks_max)?;
        for client in &self.clients {
            writeln!(f, "  {client:?}")?;
        }
        for edit in &self.edits {
            writeln!(f, "  {edit:?}")?;
        }
        for timed in &self.faults {
            writeln!(f, "  at {} ms: {:?}", timed.at_ms, timed.fault)?;
        }
        Ok(())
    }
}
