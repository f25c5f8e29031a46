//! Faults in the simulations of limits, links and waiting rooms.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use super::requests::Requests;
use super::{Crew, Simulation};
use crate::host::{Worker, WorkerLife};
use crate::plan::{Caller, RedisFate};
use crate::random::Rng;

/// The time of the last client and the last fault's start, after the start of the virtual clock.
pub(crate) const LAST_CLIENT_AT_MS: u64 = 4_000;
const LAST_FAULT_AT_MS: u64 = 4_300;

/// A fault with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedFault {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A fault of the next call to Redis.
    Redis { fate: RedisFate },
    /// Redis stalls, and then processes the queued calls.
    StallRedis { for_ms: u64 },
    /// Redis restarts with its state of `back_ms` before; empty if `None`.
    RestartRedis { back_ms: Option<u64>, for_ms: u64 },
    /// All workers die with their streams; new ones start later.
    KillGateway { gateway: u32, for_ms: u64 },
    /// One worker dies with its streams, and a new one starts immediately.
    KillWorker { gateway: u32, worker: u32 },
    /// All workers pause without noticing.
    PauseGateway { gateway: u32, for_ms: u64 },
    /// A clock is changed.
    SetGatewayClock { gateway: u32, by_ms: i64 },
    /// The rules of limits change to this document.
    Rules { document: u32 },
    /// A fault of the next lookup at the origin.
    Fetch { fate: FetchFate },
    /// The origin stalls, and then processes the queued requests.
    StallOrigin { for_ms: u64 },
    /// The origin is down.
    KillOrigin { for_ms: u64 },
    /// SQL fails.
    SqlAway { for_ms: u64 },
}

/// The fault of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchFate {
    LoseRequest,
    LoseReply,
    Late { by_ms: u64 },
    Fail,
}

/// The faults that may occur in a schedule. Without losses of data and clock changes, stricter invariants hold.
#[derive(Clone, Copy)]
pub(crate) struct Hazards {
    losses: bool,
    clocks: bool,
}

impl Hazards {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            losses: rng.chance(40),
            clocks: rng.chance(30),
        }
    }
}

impl Fault {
    /// The kind of fault, for statistics.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Redis { fate } => match fate {
                RedisFate::LoseRequest | RedisFate::LoseReply => "lost",
                RedisFate::Double { .. } => "doubled",
                RedisFate::Late { .. } => "late",
                RedisFate::Cut { .. } => "cut",
                RedisFate::Refuse | RedisFate::Loading | RedisFate::Defer => "refused",
            },
            Self::StallRedis { .. } => "Redis stalled",
            Self::RestartRedis { .. } => "Redis restarted",
            Self::KillGateway { .. } => "dead gateway",
            Self::KillWorker { .. } => "dead worker",
            Self::PauseGateway { .. } => "paused gateway",
            Self::SetGatewayClock { .. } => "clock set",
            Self::Rules { .. } => "other rules",
            Self::Fetch { .. } => "look-up",
            Self::StallOrigin { .. } => "origin stalled",
            Self::KillOrigin { .. } => "dead origin",
            Self::SqlAway { .. } => "SQL away",
        }
    }

    fn length(&mut self) -> Option<&mut u64> {
        match self {
            Self::StallRedis { for_ms }
            | Self::RestartRedis { for_ms, .. }
            | Self::KillGateway { for_ms, .. }
            | Self::PauseGateway { for_ms, .. }
            | Self::StallOrigin { for_ms }
            | Self::KillOrigin { for_ms }
            | Self::SqlAway { for_ms } => Some(for_ms),
            _ => None,
        }
    }

    /// The duration of the fault.
    pub(crate) fn length_ms(mut self) -> u64 {
        self.length().map_or(0, |for_ms| *for_ms)
    }

    /// Halves the duration.
    pub(crate) fn shorten(&mut self) {
        if let Some(for_ms) = self.length().filter(|for_ms| **for_ms > 1) {
            *for_ms /= 2;
        }
    }

    /// Whether Redis loses acknowledged data.
    pub(crate) fn loses_data(self) -> bool {
        matches!(self, Self::RestartRedis { back_ms, .. } if back_ms != Some(0))
    }

    /// Replaces removed participants with the last one of their kind.
    pub(crate) fn keep_in_bounds(&mut self, crew: Crew) {
        match self {
            Self::KillGateway { gateway, .. }
            | Self::PauseGateway { gateway, .. }
            | Self::SetGatewayClock { gateway, .. } => *gateway = (*gateway).min(crew.gateways - 1),
            Self::KillWorker { gateway, worker } => {
                *gateway = (*gateway).min(crew.gateways - 1);
                *worker = (*worker).min(crew.workers - 1);
            }
            _ => {}
        }
    }
}

/// Up to `count` faults, common ones and those of `own`.
pub(crate) fn random_faults(
    rng: &mut Rng,
    crew: Crew,
    hazards: Hazards,
    own: impl Fn(&mut Rng) -> Fault,
) -> Vec<TimedFault> {
    let count = rng.between(0, 14);
    let mut faults: Vec<_> = (0..count)
        .flat_map(|_| timed(rng, crew, hazards, &own))
        .collect();
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

/// One fault; for calls, often several in a row.
fn timed(
    rng: &mut Rng,
    crew: Crew,
    hazards: Hazards,
    own: &impl Fn(&mut Rng) -> Fault,
) -> Vec<TimedFault> {
    let at_ms = rng.below(LAST_FAULT_AT_MS);
    let fault = match rng.below(12) {
        0..=4 => Fault::Redis { fate: fate(rng) },
        5 => other(rng, crew, hazards),
        6 => Fault::StallRedis {
            for_ms: rng.between(20, 1_200),
        },
        7 if hazards.losses => Fault::RestartRedis {
            back_ms: rng.pick(&[None, Some(30), Some(200), Some(900)]),
            for_ms: rng.below(600),
        },
        7 => Fault::RestartRedis {
            back_ms: Some(0),
            for_ms: rng.below(600),
        },
        8 => other(rng, crew, hazards),
        _ => own(rng),
    };
    let is_call = matches!(fault, Fault::Redis { .. } | Fault::Fetch { .. });
    let count = if is_call && rng.chance(30) {
        rng.between(2, 6)
    } else {
        1
    };
    vec![TimedFault { at_ms, fault }; count as usize]
}

fn other(rng: &mut Rng, crew: Crew, hazards: Hazards) -> Fault {
    let gateway = rng.below(crew.gateways.into()) as u32;
    match rng.below(4) {
        0 => Fault::KillGateway {
            gateway,
            for_ms: rng.between(1, 700),
        },
        1 => Fault::KillWorker {
            gateway,
            worker: rng.below(crew.workers.into()) as u32,
        },
        2 if hazards.clocks => Fault::SetGatewayClock {
            gateway,
            by_ms: rng.pick(&[-3_000, -700, -40, 40, 900, 5_000]),
        },
        _ => Fault::PauseGateway {
            gateway,
            for_ms: rng.between(1, 900),
        },
    }
}

fn fate(rng: &mut Rng) -> RedisFate {
    match rng.below(8) {
        0 => RedisFate::LoseRequest,
        1 | 2 => RedisFate::LoseReply,
        3 => RedisFate::Double {
            after_us: rng.between(100, 400_000),
        },
        4 => RedisFate::Late {
            by_ms: rng.between(100, 2_000),
        },
        5 => RedisFate::Cut {
            commands: rng.below(3),
        },
        6 => rng.pick(&[RedisFate::Refuse, RedisFate::Loading]),
        _ => RedisFate::Defer,
    }
}

/// Implemented for every simulation.
impl<P: Simulation> Faults for P {}

/// The effects of faults.
pub(crate) trait Faults: Simulation {
    fn begin_fault(&mut self, n: usize) {
        let stage = self.stage();
        let fault = stage.faults[n].fault;
        let now_us = stage.queue.now_us();
        stage.trace.line(now_us, || format!("{fault:?}"));
        *stage.stats.faults.entry(fault.kind()).or_default() += 1;
        match fault {
            Fault::Redis { fate } => {
                stage.network.borrow_mut().arm_redis(Caller::Gateway, fate);
            }
            Fault::StallRedis { for_ms } => stage.stall_redis(for_ms),
            Fault::RestartRedis { back_ms, for_ms } => {
                stage.stop_redis(for_ms);
                self.lose(back_ms.map(|ms| ms * 1_000));
            }
            Fault::KillGateway { gateway, for_ms } => self.kill_gateway(gateway as usize, for_ms),
            Fault::KillWorker { gateway, worker } => {
                self.kill_worker(gateway as usize, worker as usize);
            }
            Fault::PauseGateway { gateway, for_ms } => {
                let gateway = &mut stage.gateways[gateway as usize];
                gateway.paused_until_us = gateway.paused_until_us.max(now_us + for_ms * 1_000);
                gateway.pauses += 1;
            }
            Fault::SetGatewayClock { gateway, by_ms } => {
                let gateway = &mut stage.gateways[gateway as usize];
                gateway.clock_off_ms += by_ms;
                // Like a pause, it affects work that depends on the clock.
                gateway.pauses += 1;
            }
            own => self.fault_begins(own),
        }
    }

    fn kill_gateway(&mut self, gateway: usize, for_ms: u64) {
        let stage = self.stage();
        if !stage.gateways[gateway].is_alive {
            return;
        }
        stage.gateways[gateway].die();
        self.break_streams(gateway, None);
        let starts = super::ScheduledEvent::GatewayStarts { gateway };
        self.stage().queue.after(for_ms * 1_000, starts);
    }

    /// Kills one worker. The streams of the gateway's other workers continue. Messages for the dead one are dropped,
    /// because its successor continues the numbering.
    fn kill_worker(&mut self, gateway: usize, number: usize) {
        let stage = self.stage();
        if !stage.gateways[gateway].is_alive {
            return;
        }
        let (data, life) = (
            stage.gateways[gateway].data.clone(),
            stage.gateways[gateway].life,
        );
        self.break_streams(gateway, Some(number));
        let engine = self.engine(number as u32, &data);
        let stage = self.stage();
        let worker = &mut stage.gateways[gateway].workers[number];
        *worker = Worker::after(worker, engine);
        let place = WorkerLife {
            gateway,
            life,
            worker: number,
        };
        stage.mind_ticks(place);
    }
}
