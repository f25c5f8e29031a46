//! The invariants, and the observations that they need.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};

use weir_base::id::UserId;
use weir_sale::ledger::Audit;
use weir_sale::repair::{Terms, total_in_redis};

use crate::attempt::{Attempt, Attempts};
use crate::failover::Failover;
use crate::gateway::CLAIM_TTL_MS;
use crate::plan::Plan;
use crate::queue::START_MS;
use crate::redis::{RebuildStep, Redis};
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

impl Witness {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            sets_clocks: plan.sets_clocks(),
            violation: None,
            granted: BTreeMap::new(),
            attempts: Attempts::default(),
            has_lost: false,
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
    pub(crate) fn after_redis(&mut self, redis: &mut Redis, sql: &Sql, now_us: u64) {
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
        let audits = redis.audits();
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
        let total = total_of(&audits, sql);
        let drift = Terms::new(&audits, bought, total).map(|terms| terms.drift());
        if drift != Some(0) {
            self.violate(now_us, format!("Redis has made or lost units: {drift:?}"));
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
        let is_new = self
            .freed_at_us
            .is_some_and(|at_us| now_us < at_us + KNOWN_US);
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
        CLAIM_TTL_MS + 13_000
    }
}

/// The expected sum of units in Redis: the total, and a change of it as far as shards have applied it.
fn total_of(audits: &[Audit], sql: &Sql) -> u64 {
    let open = sql.open_change().map(|open| open.counted());
    total_in_redis(sql.total, open, audits)
}

/// Units that are neither sold nor anywhere in Redis.
fn missing_units(audits: &[Audit], sql: &Sql) -> i64 {
    let existing: Vec<Audit> = audits
        .iter()
        .map(|audit| Audit {
            stock: Some(audit.stock.unwrap_or(0)),
            ..audit.clone()
        })
        .collect();
    let total = total_of(&existing, sql);
    let terms = Terms::new(&existing, sql.units_deducted(), total);
    terms.map_or(0, |terms| -terms.drift())
}

/// The reason why Redis and SQL are not idle and consistent; `None` if they are.
pub(crate) fn unrest(redis: &Redis, sql: &Sql) -> Option<String> {
    let audits = redis.audits();
    if let Some(shard) = audits.iter().position(|audit| audit.stock.is_none()) {
        return Some(format!("shard {shard} is cold"));
    }
    let held: u64 = audits.iter().map(|audit| audit.held).sum();
    let moving: usize = audits.iter().map(|audit| audit.transfers.len()).sum();
    if held > 0 || moving > 0 {
        return Some(format!("{held} units are held, {moving} transfers open"));
    }
    if sql.has_unpaid_hold() || !sql.unfollowed().is_empty() {
        return Some("orders are to expire, or Redis has not followed them".into());
    }
    if let Some(open) = sql.open_change() {
        return Some(format!("a change of the stock is under way: {open:?}"));
    }
    if !redis.has_catalogue() {
        return Some("the catalogue names no sale".into());
    }
    let missing = missing_units(&audits, sql);
    (missing != 0).then(|| format!("{missing} units are missing in Redis"))
}
