//! The invariants of limits, and the bounds that follow from the documentation.
//!
//! **Every passed unit was charged** ([ADR 14](../../../../docs/adr/0014-charge-limit-leases-before-spending-them.md)).
//! At each moment, the passed units are at most the units that Redis has charged, plus the requests decided without
//! Redis. With `on_store_error: closed` there are none of the latter.
//!
//! **In each window** of a client, at most the units pass that Redis charges in it, plus slices and replies that were
//! in flight when it began ([`Witness::bound`]):
//! - Redis charges the algorithm's limit (`docs/ratelimit.md`), and once more for each loss of data.
//! - A worker spends units charged before the window: at most a slice, and once more the units that another rule
//!   returned while the next slice was in flight. A slice is at most `max` plus a rest below the cost of one request.
//! - A reply is in flight for at most two deadlines, plus the pauses of the gateway.
//! - With `on_store_error: local` each gateway lets its own quota pass, and once more for each of its lives and each
//!   change of its clock.
//!
//! **In flight** are at most `rate` requests younger than `per`; older ones may no longer count. The limit applies once
//! more for each loss of data. It also increases by the number of request ends that a duplicated call reported twice,
//! because Redis does not distinguish charges.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::BTreeMap;

use weir_limit::Algorithm;

use super::plan::{DOCUMENTS, OutageMode, Plan, Rule};
use super::redis::Redis;
use crate::host::RequestId;
use crate::stage::DEADLINE_MS;
use crate::stage::fault::Fault;

/// Checks a schedule.
#[derive(Debug)]
pub(super) struct Witness {
    /// The highest limit of any document.
    rule: Rule,
    /// The most units in slices.
    slices: u64,
    /// The maximum time of a reply or a slice in flight.
    under_way_ms: u64,
    /// The maximum number of complete losses of data.
    losses: u64,
    local_lives: u64,
    /// Passed units by user: time and number.
    passed: BTreeMap<u32, Vec<(u64, u64)>>,
    passed_in_all: u64,
    /// Requests decided without Redis.
    pub(super) fallbacks: u64,
    in_flight: BTreeMap<RequestId, InFlight>,
}

#[derive(Debug)]
struct InFlight {
    user: u32,
    since_us: u64,
    units: u64,
}

impl Witness {
    pub(super) fn new(plan: &Plan) -> Self {
        let documents = if plan.reloads { DOCUMENTS } else { 1 };
        // The last document applies at the end.
        let rule = plan.rule.of(documents);
        let workers = u64::from(plan.crew.gateways * plan.crew.workers);
        let slice = rule
            .lease
            .map_or(0, |lease| 2 * u64::from(lease.max + rule.cost_max));
        let count = |is_one: fn(&Fault) -> bool| {
            let faults = plan.faults.iter();
            faults.filter(|timed| is_one(&timed.fault)).count() as u64
        };
        let pauses_ms = plan.faults.iter().map(|timed| match timed.fault {
            Fault::PauseGateway { for_ms, .. } => for_ms,
            _ => 0,
        });
        let lives = count(|fault| matches!(fault, Fault::KillGateway { .. }));
        let clocks = count(|fault| matches!(fault, Fault::SetGatewayClock { .. }));
        Self {
            rule,
            slices: workers * slice,
            under_way_ms: 2 * DEADLINE_MS + pauses_ms.sum::<u64>(),
            losses: count(|fault| fault.loses_data()),
            // All clocks are corrected at the end.
            local_lives: u64::from(plan.crew.gateways) * 2 + lives + 2 * clocks,
            passed: BTreeMap::new(),
            passed_in_all: 0,
            fallbacks: 0,
            in_flight: BTreeMap::new(),
        }
    }

    /// A request of a user has passed. Returns the violation, if any.
    pub(super) fn pass(
        &mut self,
        id: RequestId,
        user: u32,
        cost: u32,
        now_us: u64,
        redis: &Redis,
    ) -> Option<String> {
        let units = u64::from(cost.min(self.rule.burst));
        self.passed_in_all += units;
        let since_us = now_us;
        self.in_flight.insert(
            id,
            InFlight {
                user,
                since_us,
                units,
            },
        );
        let passed = self.passed.entry(user).or_default();
        passed.push((now_us, units));
        self.uncharged(redis).or_else(|| match self.rule.algorithm {
            Algorithm::Concurrency => self.crowded(user, now_us, redis),
            _ => self.crowded_window(user, now_us),
        })
    }

    pub(super) fn end(&mut self, id: RequestId) {
        self.in_flight.remove(&id);
    }

    fn uncharged(&self, redis: &Redis) -> Option<String> {
        let without = match self.rule.without {
            OutageMode::Closed => 0,
            OutageMode::Open | OutageMode::Local => self.fallbacks * u64::from(self.rule.cost_max),
        };
        let (passed, charged) = (self.passed_in_all, redis.charged);
        (passed > charged + without).then(|| {
            format!("{passed} units have passed, {charged} were charged, {without} were free")
        })
    }

    /// Checks all windows that end now.
    fn crowded_window(&self, user: u32, now_us: u64) -> Option<String> {
        let mut units = 0;
        for &(from_us, of_one) in self.passed[&user].iter().rev() {
            units += of_one;
            let ms = (now_us - from_us).div_ceil(1_000);
            let most = self.bound(ms)?;
            if units > most {
                let message =
                    format!("user {user} had {units} units in {ms} ms, {most} are allowed");
                return Some(message);
            }
        }
        None
    }

    /// The maximum number of units that may pass in `ms`; `None` without a bound.
    fn bound(&self, ms: u64) -> Option<u64> {
        let redis = self.allowed(ms + self.under_way_ms) * (1 + self.losses);
        let here = match self.rule.without {
            OutageMode::Open => return None,
            OutageMode::Closed => 0,
            OutageMode::Local => self.allowed(ms) * self.local_lives,
        };
        Some(redis + self.slices + here)
    }

    /// The algorithm's limit for any period of `ms`.
    fn allowed(&self, ms: u64) -> u64 {
        let (rate, burst, per_ms) = (
            u64::from(self.rule.rate),
            u64::from(self.rule.burst),
            self.rule.per_ms,
        );
        match self.rule.algorithm {
            Algorithm::Gcra => burst + (rate * ms).div_ceil(per_ms),
            Algorithm::SlidingWindow => rate * (ms / per_ms + 1),
            Algorithm::FixedWindow => rate * (ms / per_ms + 2),
            Algorithm::Concurrency => rate,
        }
    }

    fn crowded(&self, user: u32, now_us: u64, redis: &Redis) -> Option<String> {
        let rate = u64::from(self.rule.rate);
        let here = match self.rule.without {
            OutageMode::Open => return None,
            OutageMode::Closed => 0,
            OutageMode::Local => rate * self.local_lives,
        };
        let counts_us = self.rule.per_ms.saturating_sub(self.under_way_ms) * 1_000;
        let young = self.in_flight.values();
        let young = young.filter(|one| one.user == user && one.since_us + counts_us > now_us);
        let units: u64 = young.map(|one| one.units).sum();
        let most = rate * (1 + self.losses) + here + redis.returned_by_repeats;
        (units > most)
            .then(|| format!("{units} units of user {user} are in flight, {most} are allowed"))
    }
}
