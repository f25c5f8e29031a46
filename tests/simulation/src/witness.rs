//! The invariants, and the observations that they need.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};

use weir_base::id::UserId;
use weir_sale::ledger::Audit;
use weir_sale::repair::{Terms, total_in_redis};
use weir_sale::site::{FenceState, FenceStock, fence_of};

use crate::attempt::{Attempt, Attempts};
use crate::failover::Failover;
use crate::gateway::CLAIM_TTL_MS;
use crate::plan::{PayMode, Plan};
use crate::queue::START_MS;
use crate::redis::{RebuildStep, Redis};
use crate::sql::sites::SiteStep;
use crate::sql::{ClaimName, Order, Sql};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The time, in microseconds of the virtual clock.
    pub at_us: u64,
    /// The description.
    pub what: String,
}

/// Checks a schedule.
#[derive(Debug)]
pub(crate) struct Witness {
    sets_clocks: bool,
    pub(crate) violation: Option<Violation>,
    /// Every granted claim with its user.
    granted: BTreeMap<ClaimName, UserId>,
    pub(crate) attempts: Attempts,
    pub(crate) has_lost: bool,
    /// Fences that operators have closed.
    failed: BTreeSet<u32>,
    /// Claims that have become orders.
    ordered: BTreeSet<ClaimName>,
    has_sites: bool,
    /// Whether an order takes its units from the stock of its own site.
    holds_units: bool,
    pub(crate) failover: Failover,
    /// The open orders when a shard was wiped.
    wiped: BTreeMap<u32, Vec<Order>>,
    /// Epochs of shards without units.
    empty_epochs: BTreeSet<(u32, i64)>,
    /// SQL's last number of remaining units, and the time at which units returned after zero.
    remaining: i64,
    freed_at_us: Option<u64>,
}

/// The time after units return to SQL until all gateways must have learned it, despite faults: origins restart and
/// write the catalogue.
const KNOWN_US: u64 = 6_000_000;

/// As `KNOWN_US`, with origins that are cut off meanwhile.
const KNOWN_AT_SITES_US: u64 = 12_000_000;

impl Witness {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            sets_clocks: plan.sets_clocks(),
            violation: None,
            granted: BTreeMap::new(),
            attempts: Attempts::default(),
            has_lost: false,
            failed: BTreeSet::new(),
            ordered: BTreeSet::new(),
            has_sites: plan.setting.sites > 1,
            holds_units: plan.setting.payment != PayMode::AtPayment,
            failover: Failover::new(plan),
            wiped: BTreeMap::new(),
            empty_epochs: BTreeSet::new(),
            // Before the first transaction: not zero.
            remaining: i64::MAX,
            freed_at_us: None,
        }
    }

    pub(crate) fn violate(&mut self, at_us: u64, violation: impl Into<String>) {
        let violation = violation.into();
        self.violation.get_or_insert(Violation {
            at_us,
            what: violation,
        });
    }

    // --- after each step

    /// Redis has run commands.
    pub(crate) fn after_redis(&mut self, redis: &mut Redis, site: usize, sql: &Sql, now_us: u64) {
        for claim in std::mem::take(&mut redis.granted) {
            let name = (claim.shard, claim.generation);
            if self.granted.insert(name, claim.user).is_some() {
                self.violate(now_us, format!("generation {name:?} was granted twice"));
            }
        }
        for step in std::mem::take(&mut redis.rebuilds) {
            self.note_rebuild(step, redis, sql, now_us);
        }
        for (shard, (epoch, stock)) in (0..).zip(redis.epochs()) {
            self.note_epoch(shard, epoch, stock, now_us);
        }
        if !sql.is_open_at(site) {
            return;
        }
        let fence = sql.fence_at(site).fence;
        let audits = redis.audits_at(fence);
        if let Some(subject) = self.failover.check_marks(&audits, sql) {
            self.violate(now_us, subject);
        }
        if self.has_lost || sql.has_kept_units {
            return;
        }
        if audits.iter().any(|audit| audit.stock.is_none()) {
            return;
        }
        let bought = audits.iter().map(|audit| audit.bought).sum();
        let total = total_of(&audits, fence, sql);
        let drift = Terms::new(&audits, bought, total).map(|terms| terms.drift());
        if drift != Some(0) {
            let message = format!("Redis has made or lost units at fence {fence}: {drift:?}");
            self.violate(now_us, message);
        }
    }

    /// A rebuilt shard must have the orders that were open when it was wiped and are still open.
    fn note_rebuild(&mut self, step: RebuildStep, redis: &Redis, sql: &Sql, now_us: u64) {
        match step {
            RebuildStep::Wiped(shard) => {
                self.wiped.insert(shard, sql.standing_orders(shard));
            }
            RebuildStep::Ended(shard) => {
                let orders = self.wiped.remove(&shard).unwrap_or_default();
                let current = |order: &&Order| sql.standing_orders(shard).contains(order);
                let mut orders = orders.iter().filter(current);
                if let Some(lost) = orders.find(|order| !redis.has_order(order)) {
                    let message = format!("shard {shard} is rebuilt without order {:?}", lost.name);
                    self.violate(now_us, message);
                }
            }
        }
    }

    /// A gateway's observation of a shard must hold while the epoch is the same.
    fn note_epoch(&mut self, shard: u32, epoch: i64, stock: i64, now_us: u64) {
        if stock <= 0 {
            self.empty_epochs.insert((shard, epoch));
        } else if self.empty_epochs.contains(&(shard, epoch)) {
            let message = format!("shard {shard} has units at an epoch at which it had none");
            self.violate(now_us, message);
        }
    }

    /// SQL has committed a transaction.
    pub(crate) fn after_sql(&mut self, sql: &mut Sql, now_us: u64) {
        self.check_stock(sql, now_us);
        self.check_sites(sql, now_us);
        if self.remaining == 0 && sql.remaining > 0 {
            self.freed_at_us = Some(now_us);
        }
        self.remaining = sql.remaining;
        if let Some(subject) = self.failover.check_pause(sql) {
            self.violate(now_us, subject);
        }
        for order in std::mem::take(&mut sql.changed) {
            self.failover.note_order(&order);
            self.check_order(&order, sql, now_us);
        }
        for (attempt, order) in std::mem::take(&mut sql.attempted) {
            let user = &sql.orders[&order].user;
            if let Some(subject) = self.attempts.note_made(user, attempt, order) {
                self.violate(now_us, subject);
            }
        }
        let now_ms = START_MS + now_us / 1_000;
        for ticket in std::mem::take(&mut sql.ended) {
            if !self.sets_clocks && ticket.deadline_ms > now_ms {
                let subject = format!("{} was ended before its deadline", ticket.claim_id());
                self.violate(now_us, subject);
            }
        }
    }

    /// An order was reported to a client.
    pub(crate) fn after_order(&mut self, order: ClaimName, now_us: u64) {
        if let Some(subject) = self.failover.note_answer(order) {
            self.violate(now_us, subject);
        }
    }

    /// A client was told that its attempt is an order.
    pub(crate) fn after_answer(
        &mut self,
        user: &UserId,
        attempt: Attempt,
        order: ClaimName,
        now_us: u64,
    ) {
        if let Some(subject) = self.attempts.note_told(user, attempt, order) {
            self.violate(now_us, subject);
        }
    }

    fn check_stock(&mut self, sql: &Sql, now_us: u64) {
        let sold = i64::try_from(sql.units_deducted()).unwrap_or(i64::MAX);
        let total = i64::try_from(sql.total).unwrap_or(i64::MAX);
        if sql.remaining < 0 || sql.remaining + sold != total {
            let message = format!("{sold} of {total} units sold, {} left", sql.remaining);
            self.violate(now_us, message);
        }
    }

    /// No order comes of a claim of a fence that has failed before, and no drain refuses the holder of a claim.
    fn check_sites(&mut self, sql: &mut Sql, now_us: u64) {
        for order in &sql.changed {
            let fence = fence_of(order.name.0);
            if self.ordered.insert(order.name) && self.failed.contains(&fence) {
                let message = format!("order {:?} comes of a failed fence", order.name);
                self.violate(now_us, message);
            }
        }
        for step in std::mem::take(&mut sql.site_steps) {
            if let SiteStep::Failed(fence) = step {
                self.failed.insert(fence);
            }
        }
        for name in std::mem::take(&mut sql.fenced) {
            if !self.failed.contains(&fence_of(name.0)) && !self.has_lost {
                self.violate(now_us, format!("a drain has refused the claim {name:?}"));
            }
        }
        let is_strict = self.holds_units && !self.has_lost && !sql.has_kept_units;
        let owes = |fence: &&FenceStock| fence.state == FenceState::Closed && fence.unsold() < 0;
        if let Some(debtor) = sql.stocks().iter().find(owes).filter(|_| is_strict) {
            self.violate(now_us, format!("units were moved twice: {debtor:?}"));
        }
        if let Some(allotted) = sql.units_allotted()
            && allotted != sql.total as i64
        {
            let message = format!("sites share {allotted} units of {}", sql.total);
            self.violate(now_us, message);
        }
    }

    fn check_order(&mut self, order: &Order, sql: &Sql, now_us: u64) {
        let name = order.name;
        let granted = self.granted.get(&name);
        let is_granted = granted == Some(&order.user);
        if !is_granted || !sql.is_at_home(order) {
            self.violate(
                now_us,
                format!("order {name:?} came of no claim of its user"),
            );
        }
        if !sql.is_ordered(name) {
            self.violate(now_us, format!("order {name:?} has no outcome"));
        }
        let has = sql.standing_units_of(&order.user);
        if has > sql.sale.user_cap || has != sql.units_of(&order.user) {
            self.violate(now_us, format!("{} has {has} units", order.user));
        }
        if sql.is_barred(&order.user) {
            self.violate(now_us, format!("{} may not buy, and has", order.user));
        }
    }

    // --- losses

    /// SQL has failed over: from here on, Redis may have more data.
    pub(crate) fn after_failover(&mut self) {
        self.has_lost = true;
        self.failover.note_loss();
    }

    /// Redis is about to lose data, or has just begun to.
    pub(crate) fn before_loss(&mut self) {
        self.has_lost = true;
    }

    /// A shard is about to lose a key. During a rebuild, that may be an already written one: it is restored later, as
    /// after any eviction.
    pub(crate) fn before_eviction(&mut self, shard: u32) {
        self.before_loss();
        self.wiped.remove(&shard);
    }

    /// A gateway has answered `sold_out` finally. Units that returned to SQL just now may not be known everywhere;
    /// units that it has had longer must be.
    pub(crate) fn on_sold_out(&mut self, sql: &Sql, now_us: u64) {
        let remaining = sql.remaining;
        let known_us = match self.has_sites {
            true => KNOWN_AT_SITES_US,
            false => KNOWN_US,
        };
        let is_new = self
            .freed_at_us
            .is_some_and(|at_us| now_us < at_us + known_us);
        if remaining > 0 && !is_new {
            self.violate(now_us, format!("sold_out, and SQL has {remaining} units"));
        }
        if sql.has_unpaid_hold() && !is_new {
            self.violate(now_us, "sold_out, and a hold is not paid");
        }
    }

    /// A user was told that there is no reservation.
    pub(crate) fn on_not_reserved(&mut self, user: &UserId, sql: &Sql, now_us: u64) {
        if sql.reserved.contains(user) {
            self.violate(
                now_us,
                format!("{user} has reserved, and heard not_reserved"),
            );
        }
    }

    /// A gateway forwards a user's claim.
    pub(crate) fn on_claim(&mut self, user: &UserId, sql: &Sql, now_us: u64) {
        if sql.is_barred(user) {
            self.violate(now_us, format!("{user} may not buy, and holds a unit"));
        }
    }

    /// The time after the faults until all work must have finished, in milliseconds.
    pub(crate) fn settle_ms(&self) -> u64 {
        let sites_ms = if self.has_sites { 20_000 } else { 0 };
        CLAIM_TTL_MS + 13_000 + sites_ms
    }
}

/// The expected sum of units in Redis: the total, and a change of it as far as shards have applied it.
fn total_of(audits: &[Audit], fence: u32, sql: &Sql) -> u64 {
    let open = sql.open_change_at(fence).map(|open| open.counted());
    total_in_redis(sql.allotment_begun(fence), open, audits)
}

/// Units that are neither sold nor anywhere in Redis.
fn missing_units(audits: &[Audit], fence: u32, sql: &Sql) -> i64 {
    let existing: Vec<Audit> = audits
        .iter()
        .map(|audit| Audit {
            stock: Some(audit.stock.unwrap_or(0)),
            ..audit.clone()
        })
        .collect();
    let total = total_of(&existing, fence, sql);
    let ordered = u64::try_from(sql.ordered_at(fence)).unwrap_or(0);
    let terms = Terms::new(&existing, ordered, total);
    terms.map_or(0, |terms| -terms.drift())
}

/// The reason why the Redis of all sites and SQL are not idle and consistent; `None` if they are.
pub(crate) fn unrest(redis: &[Redis], sql: &Sql) -> Option<String> {
    let mut sites = redis.iter().enumerate();
    sites
        .find_map(|(site, redis)| unrest_at(site, redis, sql))
        .or_else(|| unrest_between_sites(sql))
}

fn unrest_between_sites(sql: &Sql) -> Option<String> {
    let fences = sql.stocks();
    let is_left = |fence: &&FenceStock| fence.state == FenceState::Closed && fence.unsold() != 0;
    if let Some(left) = fences.iter().find(is_left) {
        return Some(format!("units are left at a closed fence: {left:?}"));
    }
    let mut drains = fences.iter();
    let drains = drains.find(|fence| fence.state == FenceState::Draining);
    drains.map(|fence| format!("a drain has not ended: {fence:?}"))
}

fn unrest_at(site: usize, redis: &Redis, sql: &Sql) -> Option<String> {
    if !sql.is_open_at(site) {
        return None;
    }
    let fence = sql.fence_at(site).fence;
    let audits = redis.audits_at(fence);
    if let Some(shard) = audits.iter().position(|audit| audit.stock.is_none()) {
        return Some(format!("shard {shard} of site {site} is cold"));
    }
    let held: u64 = audits.iter().map(|audit| audit.held).sum();
    let moving: usize = audits.iter().map(|audit| audit.transfers.len()).sum();
    if held > 0 || moving > 0 {
        return Some(format!("{held} units are held, {moving} transfers open"));
    }
    if sql.has_unpaid_hold() || !sql.unfollowed().is_empty() {
        return Some("orders are to expire, or Redis has not followed them".into());
    }
    if let Some(open) = sql.open_change_at(fence) {
        return Some(format!("a change of the stock is under way: {open:?}"));
    }
    if !redis.has_catalogue() {
        return Some("the catalogue names no sale".into());
    }
    let missing = missing_units(&audits, fence, sql);
    (missing != 0).then(|| format!("{missing} units are missing in Redis"))
}
