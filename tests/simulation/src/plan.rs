//! A schedule, determined only by its seed.

use weir_sale::ledger::EvictedKey;
use weir_sale::shard::bucket;

use crate::attempt::Attempt;
use crate::failover;
use crate::operators;
use crate::random::Rng;

/// The start of sales after the start of the virtual clock.
pub(crate) const SALE_STARTS_AT_MS: u64 = 400;

/// The end of sales after the start of the virtual clock, unless an operator moves it: after everything else.
pub(crate) const SALE_LASTS_MS: u64 = 1_000_000_000;

/// The time of the last client and the last fault's start, after the start of the virtual clock.
pub(crate) const LAST_CLIENT_AT_MS: u64 = 4_000;
pub(crate) const LAST_FAULT_AT_MS: u64 = 4_500;

/// A schedule: participants, buyers, and faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of the schedule.
    pub seed: u64,
    pub(crate) setting: Setting,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Vec<TimedFault>,
}

/// The participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The number of sites, each with its own Redis. Gateways and origins take turns.
    pub(crate) sites: u32,
    /// How far the clock of the last site's Redis is ahead.
    pub(crate) redis_ahead_ms: i64,
    pub(crate) shards: u32,
    pub(crate) total: u64,
    pub(crate) user_cap: u32,
    pub(crate) payment: PayMode,
    pub(crate) gateways: u32,
    /// Workers per gateway.
    pub(crate) workers: u32,
    pub(crate) origins: u32,
    pub(crate) users: u32,
    /// Whether user 0 is blocked.
    pub(crate) is_first_user_blocked: bool,
    /// Whether only users with even numbers have reservations, and only they may buy.
    pub(crate) is_reserved: bool,
    /// Whether another sale has an order that Redis cannot follow.
    pub(crate) is_other_sale_stuck: bool,
}

/// When units leave the stock, and whether an order waits for its payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayMode {
    AtOrder,
    AtPayment,
    Hold { pay_within_ms: u64 },
}

/// One person, who comes once and may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) at_ms: u64,
    pub(crate) user: u32,
    /// The time after which the client disconnects without an answer and does not return, in microseconds.
    pub(crate) leaves_after_us: Option<u64>,
    pub(crate) retries: u32,
    /// The attempt key and body of all tries.
    pub(crate) attempt: Option<Attempt>,
    /// The requested units, stated if more than one.
    pub(crate) quantity: u32,
    pub(crate) then: FollowUp,
}

/// The client's action on an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    Nothing,
    Pay {
        after_ms: u64,
    },
    Cancel {
        after_ms: u64,
    },
    /// Sends the origin an unsigned claim instead of buying.
    Forge,
}

/// A fault with its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedFault {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A fault of the next call to Redis.
    Redis {
        caller: Caller,
        fate: RedisFate,
    },
    /// A fault of the next SQL transaction.
    Sql {
        fate: SqlFate,
    },
    /// A fault of the next request from a gateway to an origin.
    Origin {
        fate: OriginFate,
    },
    /// All workers die with their streams; new ones start later.
    KillGateway {
        gateway: u32,
        for_ms: u64,
    },
    /// All workers pause without noticing.
    PauseGateway {
        gateway: u32,
        for_ms: u64,
    },
    /// The origin dies during its current work.
    KillOrigin {
        origin: u32,
        for_ms: u64,
    },
    /// Redis restarts with its state of `back_ms` before; empty if `None`.
    RestartRedis {
        back_ms: Option<u64>,
        for_ms: u64,
    },
    /// One shard fails over to its state of `back_ms` before; empty if `None`.
    LoseShard {
        shard: u32,
        back_ms: Option<u64>,
    },
    /// SQL fails over to a replica that lags by `behind_ms`. At rest, an operator restores its lost orders or gives
    /// them up.
    FailOverSql {
        behind_ms: u64,
        restores: bool,
    },
    /// Redis evicts a key of a shard.
    Evict {
        shard: u32,
        key: EvictedKey,
    },
    /// A clock is changed.
    SetGatewayClock {
        gateway: u32,
        by_ms: i64,
    },
    SetOriginClock {
        origin: u32,
        by_ms: i64,
    },
    /// Not a fault: an operator adds units, or withdraws some if negative. Repeated with the same key, it is the same
    /// change.
    ChangeStock {
        origin: u32,
        key: u32,
        units: i64,
    },
    /// An operator moves the end of the sale relative to now.
    MoveEnd {
        origin: u32,
        after_ms: u64,
    },
    /// Two parties do not reach each other, or only the replies are lost.
    CutOff {
        between: Cut,
        is_one_way: bool,
        for_ms: u64,
    },
    /// A site is down. Its Redis may lose its data.
    LoseSite {
        site: u32,
        keeps_data: bool,
        for_ms: u64,
    },
    /// An operator fails, drains or joins a site, at an origin of another site.
    ChangeSite {
        site: u32,
        step: SiteChange,
    },
    /// An operator refunds a user's first paid order.
    Refund {
        origin: u32,
        user: u32,
    },
}

/// Two parties of one site, or an origin and SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    GatewayAndRedis(u32),
    GatewayAndOrigins(u32),
    OriginAndRedis(u32),
    OriginAndSql(u32),
}

/// An operator's command about a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteChange {
    Fail,
    Drain,
    Join,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Gateway,
    Origin,
}

/// The fault of a call to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisFate {
    /// The request is lost.
    LoseRequest,
    /// The call runs, but its reply is lost.
    LoseReply,
    /// The call runs twice, the second time after this delay.
    Double { after_us: u64 },
    /// The call arrives after its timeout.
    Late { by_ms: u64 },
    /// The connection breaks after this number of commands.
    Cut { commands: u64 },
    /// The call is refused without running.
    Refuse,
    /// Redis replies that it is loading.
    Loading,
    /// The call cannot be sent immediately, or not at all.
    Defer,
}

/// The fault of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlFate {
    /// The transaction does not run.
    Fail,
    /// The transaction runs, but its reply is lost.
    LoseReply,
    /// The transaction is slow.
    Slow { by_ms: u64 },
}

/// The fault of a request to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginFate {
    LoseRequest,
    LoseReply,
    /// The origin's server refuses it before a handler reads it.
    RefuseUnread,
    /// The request arrives twice.
    Double {
        after_us: u64,
    },
    Late {
        by_ms: u64,
    },
}

impl Fault {
    /// The kind of fault, for statistics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Redis { fate, .. } => match fate {
                RedisFate::LoseRequest | RedisFate::LoseReply => "lost",
                RedisFate::Double { .. } => "doubled",
                RedisFate::Late { .. } => "late",
                RedisFate::Cut { .. } => "cut",
                RedisFate::Refuse | RedisFate::Loading | RedisFate::Defer => "refused",
            },
            Self::Sql { .. } => "sql",
            Self::Origin { .. } => "origin request",
            Self::KillGateway { .. } => "dead gateway",
            Self::PauseGateway { .. } => "paused gateway",
            Self::KillOrigin { .. } => "dead origin",
            Self::RestartRedis { .. } => "Redis restarted",
            Self::LoseShard { .. } => "shard failed over",
            Self::Evict { .. } => "key evicted",
            Self::FailOverSql { .. } => "SQL failed over",
            Self::SetGatewayClock { .. } | Self::SetOriginClock { .. } => "clock set",
            Self::ChangeStock { units, .. } if *units > 0 => "top-up",
            Self::ChangeStock { .. } => "withdrawal",
            Self::MoveEnd { .. } => "end moved",
            Self::Refund { .. } => "refund",
            Self::CutOff { .. } => "cut off",
            Self::LoseSite { .. } => "site lost",
            Self::ChangeSite { step, .. } => match step {
                SiteChange::Fail => "site failed",
                SiteChange::Drain => "site drained",
                SiteChange::Join => "site joined",
            },
        }
    }

    /// The duration of the fault.
    pub(crate) fn length_ms(&self) -> u64 {
        match *self {
            Self::KillGateway { for_ms, .. }
            | Self::PauseGateway { for_ms, .. }
            | Self::KillOrigin { for_ms, .. }
            | Self::RestartRedis { for_ms, .. }
            | Self::CutOff { for_ms, .. }
            | Self::LoseSite { for_ms, .. } => for_ms,
            _ => 0,
        }
    }

    /// Whether Redis loses acknowledged data.
    pub(crate) fn loses_data(&self) -> bool {
        match self {
            Self::RestartRedis { back_ms, .. } => *back_ms != Some(0),
            Self::LoseSite { keeps_data, .. } => !keeps_data,
            Self::LoseShard { .. } | Self::Evict { .. } => true,
            _ => false,
        }
    }
}

/// The faults that may occur in a schedule. Without losses of data and clock changes, stricter invariants hold.
#[derive(Clone, Copy)]
struct Hazards {
    losses: bool,
    clocks: bool,
}

impl Plan {
    /// The schedule of a seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1);
        let mut setting = setting(&mut rng);
        let hazards = Hazards {
            losses: rng.chance(40),
            clocks: rng.chance(30),
        };
        let clients_max = if rng.chance(20) { 60 } else { 25 };
        let clients = rng.between(4, clients_max);
        let mut clients: Vec<_> = (0..clients).map(|_| client(&mut rng, setting)).collect();
        if rng.chance(30) {
            // All clients come within a few milliseconds.
            for client in &mut clients {
                client.at_ms = SALE_STARTS_AT_MS + client.at_ms % 8;
            }
        }
        clients.sort_by_key(|client| client.at_ms);
        // A separate random stream: without keys, the rest of the schedule is unchanged.
        let mut keys = Rng::new(seed, 2);
        for client in &mut clients {
            client.attempt = attempt(&mut keys);
        }
        let mut quantities = Rng::new(seed, 9);
        for client in &mut clients {
            client.quantity = quantities.pick(&[1, 1, 1, 2, 3]);
        }
        let mut others = Rng::new(seed, 3);
        setting.is_other_sale_stuck = others.chance(15);
        let faults = rng.between(0, 14);
        let mut faults: Vec<_> = (0..faults)
            .flat_map(|_| timed_faults(&mut rng, setting, hazards))
            .collect();
        if hazards.losses && others.chance(50) {
            faults.push(eviction(&mut others, setting));
        }
        faults.extend(operators::faults(&mut Rng::new(seed, 4), setting));
        faults.extend(operators::refunds(
            &mut Rng::new(seed, 5),
            &clients,
            setting,
        ));
        if let Some(fault) = failover::planned(&mut Rng::new(seed, 10)) {
            faults.retain(|existing| existing.fault.goes_with_a_failover());
            faults.push(fault);
            // A client that loses an order may buy again with the same key.
            clients.iter_mut().for_each(|client| client.attempt = None);
        }
        faults.sort_by_key(|fault| fault.at_ms);
        Self {
            seed,
            setting,
            clients,
            faults,
        }
    }

    /// Whether lost orders are restored; `None` if SQL loses none.
    pub(crate) fn restores_lost_orders(&self) -> Option<bool> {
        self.faults.iter().find_map(|timed| match timed.fault {
            Fault::FailOverSql { restores, .. } => Some(restores),
            _ => None,
        })
    }

    pub(crate) fn loses_data(&self) -> bool {
        self.faults.iter().any(|timed| timed.fault.loses_data())
    }

    /// The sum of all clock changes.
    pub(crate) fn clock_steps_ms(&self) -> u64 {
        let step = |timed: &TimedFault| match timed.fault {
            Fault::SetGatewayClock { by_ms, .. } | Fault::SetOriginClock { by_ms, .. } => {
                by_ms.unsigned_abs()
            }
            _ => 0,
        };
        self.faults.iter().map(step).sum()
    }

    pub(crate) fn sets_clocks(&self) -> bool {
        let sets = |timed: &TimedFault| timed.fault.kind() == "clock set";
        self.setting.redis_ahead_ms != 0 || self.faults.iter().any(sets)
    }

    /// The end of the last fault.
    pub(crate) fn faults_end_ms(&self) -> u64 {
        let ends = self.faults.iter();
        let ends = ends.map(|timed| timed.at_ms + timed.fault.length_ms());
        ends.max().unwrap_or(0)
    }
}

fn setting(rng: &mut Rng) -> Setting {
    Setting {
        sites: 1,
        redis_ahead_ms: 0,
        shards: rng.pick(&[1, 1, 2, 2, 3, 4]),
        total: rng.between(0, 10),
        user_cap: rng.pick(&[1, 1, 1, 2, 3]),
        payment: rng.pick(&[
            PayMode::AtOrder,
            PayMode::AtOrder,
            PayMode::AtPayment,
            PayMode::Hold {
                pay_within_ms: 2_500,
            },
        ]),
        gateways: rng.pick(&[1, 2, 2, 3]),
        workers: rng.pick(&[1, 1, 2]),
        origins: rng.pick(&[1, 2]),
        users: rng.pick(&[4, 8, 16]),
        is_first_user_blocked: rng.chance(20),
        is_reserved: rng.chance(15),
        is_other_sale_stuck: false,
    }
}

fn client(rng: &mut Rng, setting: Setting) -> Client {
    Client {
        at_ms: rng.between(SALE_STARTS_AT_MS - 50, LAST_CLIENT_AT_MS),
        user: rng.below(setting.users.into()) as u32,
        leaves_after_us: rng.chance(15).then(|| {
            let longest_us = rng.pick(&[1_500, 1_500, 20_000, 400_000]);
            rng.between(1, longest_us)
        }),
        retries: rng.below(5) as u32,
        attempt: None,
        quantity: 1,
        then: match rng.below(20) {
            0 => FollowUp::Forge,
            1..=6 => FollowUp::Pay {
                after_ms: rng.between(20, 1_500),
            },
            7..=11 => FollowUp::Cancel {
                after_ms: rng.between(20, 1_500),
            },
            _ => FollowUp::Nothing,
        },
    }
}

/// Few keys, so that clients of one user often share one, sometimes with another body.
fn attempt(rng: &mut Rng) -> Option<Attempt> {
    rng.chance(40).then(|| Attempt {
        key: rng.below(3) as u32,
        body: u32::from(rng.chance(15)),
    })
}

/// A fault, and sometimes another one during it, because simultaneous faults are the hardest to survive.
fn timed_faults(rng: &mut Rng, setting: Setting, hazards: Hazards) -> Vec<TimedFault> {
    let first = timed_fault(rng, setting, hazards);
    let mut faults = vec![first];
    if !rng.chance(25) {
        return faults;
    }
    let with = |at_ms: u64, fault| TimedFault { at_ms, fault };
    match first.fault {
        fault if fault.loses_data() => {
            // Paused gateways do not observe returned units.
            let at_ms = first.at_ms.saturating_sub(rng.between(0, 20));
            let for_ms = rng.between(50, 1_500);
            let paused = |gateway| with(at_ms, Fault::PauseGateway { gateway, for_ms });
            faults.extend((0..setting.gateways).map(paused));
        }
        Fault::KillOrigin { for_ms, .. } if hazards.clocks => {
            let by_ms = -(rng.between(500, 3_000) as i64);
            let at_ms = first.at_ms + rng.between(0, for_ms);
            let set = |gateway| with(at_ms, Fault::SetGatewayClock { gateway, by_ms });
            faults.extend((0..setting.gateways).map(set));
        }
        _ => {}
    }
    faults
}

fn timed_fault(rng: &mut Rng, setting: Setting, hazards: Hazards) -> TimedFault {
    let at_ms = rng.between(0, LAST_FAULT_AT_MS);
    let fault = match rng.below(20) {
        0 if hazards.losses => loss(rng, setting),
        1 | 2 if hazards.losses => loss(rng, setting),
        3 | 4 if hazards.clocks => clock(rng, setting),
        5 => gateway_fault(rng, setting),
        6 => Fault::KillOrigin {
            origin: rng.below(setting.origins.into()) as u32,
            for_ms: rng.between(1, 1_500),
        },
        7 => Fault::RestartRedis {
            back_ms: Some(0),
            for_ms: rng.between(1, 800),
        },
        8 | 9 => Fault::Sql {
            fate: sql_fate(rng),
        },
        10 | 11 => Fault::Origin {
            fate: origin_fate(rng),
        },
        _ => Fault::Redis {
            caller: rng.pick(&[Caller::Gateway, Caller::Gateway, Caller::Origin]),
            fate: redis_fate(rng),
        },
    };
    TimedFault { at_ms, fault }
}

fn loss(rng: &mut Rng, setting: Setting) -> Fault {
    let back_ms = (!rng.chance(30)).then(|| {
        let most_ms = rng.pick(&[20, 300, 1_500]);
        rng.between(1, most_ms)
    });
    match rng.chance(30) {
        true => Fault::LoseShard {
            shard: rng.below(setting.shards.into()) as u32,
            back_ms,
        },
        false => Fault::RestartRedis {
            back_ms,
            for_ms: rng.between(1, 800),
        },
    }
}

fn eviction(rng: &mut Rng, setting: Setting) -> TimedFault {
    let user = crate::client::user(rng.below(setting.users.into()) as u32);
    let fault = Fault::Evict {
        shard: rng.below(setting.shards.into()) as u32,
        key: rng.pick(&[
            EvictedKey::Claims,
            EvictedKey::Pending,
            EvictedKey::Bought(bucket(&user)),
        ]),
    };
    let at_ms = rng.between(SALE_STARTS_AT_MS, LAST_FAULT_AT_MS);
    TimedFault { at_ms, fault }
}

fn clock(rng: &mut Rng, setting: Setting) -> Fault {
    let by_ms = rng.between(1, 3_000) as i64 * rng.pick(&[-1, 1]);
    match rng.chance(60) {
        true => Fault::SetGatewayClock {
            gateway: rng.below(setting.gateways.into()) as u32,
            by_ms,
        },
        false => Fault::SetOriginClock {
            origin: rng.below(setting.origins.into()) as u32,
            by_ms,
        },
    }
}

fn gateway_fault(rng: &mut Rng, setting: Setting) -> Fault {
    let gateway = rng.below(setting.gateways.into()) as u32;
    let for_ms = rng.between(1, 1_500);
    match rng.chance(50) {
        true => Fault::KillGateway { gateway, for_ms },
        false => Fault::PauseGateway { gateway, for_ms },
    }
}

fn redis_fate(rng: &mut Rng) -> RedisFate {
    match rng.below(12) {
        0 | 1 => RedisFate::LoseRequest,
        2..=4 => RedisFate::LoseReply,
        5 | 6 => RedisFate::Double {
            after_us: rng.between(1, 20_000),
        },
        7 | 8 => RedisFate::Late {
            by_ms: rng.between(260, 4_000),
        },
        9 => RedisFate::Cut {
            commands: rng.below(3),
        },
        10 => rng.pick(&[RedisFate::Refuse, RedisFate::Loading]),
        _ => RedisFate::Defer,
    }
}

fn sql_fate(rng: &mut Rng) -> SqlFate {
    match rng.below(3) {
        0 => SqlFate::Fail,
        1 => SqlFate::LoseReply,
        _ => SqlFate::Slow {
            by_ms: rng.between(10, 3_500),
        },
    }
}

fn origin_fate(rng: &mut Rng) -> OriginFate {
    match rng.below(5) {
        0 => OriginFate::LoseRequest,
        1 => OriginFate::LoseReply,
        2 => OriginFate::RefuseUnread,
        3 => OriginFate::Double {
            after_us: rng.between(1, 200_000),
        },
        _ => OriginFate::Late {
            by_ms: rng.between(200, 4_500),
        },
    }
}
