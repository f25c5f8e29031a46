//! What must hold: the invariants, and what was seen that they need.

use std::collections::{BTreeMap, BTreeSet};

use weir_base::id::UserId;
use weir_sale::ledger::Audit;
use weir_sale::repair::Terms;

use crate::defect::Defect;
use crate::gateway::CLAIM_TTL_MS;
use crate::plan::Plan;
use crate::queue::START_MS;
use crate::redis::Redis;
use crate::sql::{ClaimName, Order, Sql};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, in microseconds of the virtual clock.
    pub at_us: u64,
    /// What.
    pub what: String,
}

/// Watches a schedule.
#[derive(Debug)]
pub(crate) struct Witness {
    excused: BTreeSet<Defect>,
    loses_data: bool,
    loses_part: bool,
    sets_clocks: bool,
    pub(crate) violation: Option<Violation>,
    /// How often a known defect has shown itself.
    pub(crate) defects: BTreeMap<Defect, u64>,
    /// Every claim that Redis has granted, and its user: more than one only by [`Defect::S1`].
    granted: BTreeMap<ClaimName, BTreeSet<UserId>>,
    pub(crate) has_lost: bool,
    /// Users whose claims or orders Redis may have forgotten, or remembers although they ended: see [`Defect::C6`].
    forgotten: BTreeSet<UserId>,
}

impl Witness {
    pub(crate) fn new(plan: &Plan, excused: &[Defect]) -> Self {
        Self {
            excused: excused.iter().copied().collect(),
            loses_data: plan.loses_data(),
            loses_part: plan.loses_part(),
            sets_clocks: plan.sets_clocks(),
            violation: None,
            defects: BTreeMap::new(),
            granted: BTreeMap::new(),
            has_lost: false,
            forgotten: BTreeSet::new(),
        }
    }

    pub(crate) fn violate(&mut self, at_us: u64, what: impl Into<String>) {
        let what = what.into();
        self.violation.get_or_insert(Violation { at_us, what });
    }

    /// A known defect has shown itself: as bad as any other, unless it is excused. Whether it is.
    pub(crate) fn show(&mut self, defect: Defect, at_us: u64, what: impl Into<String>) -> bool {
        if self.excused.contains(&defect) {
            *self.defects.entry(defect).or_default() += 1;
            return true;
        }
        self.violate(at_us, format!("{defect}: {}", what.into()));
        false
    }

    pub(crate) fn excuses(&self, defect: Defect) -> bool {
        self.excused.contains(&defect)
    }

    // --- after each step

    /// Redis has run commands.
    pub(crate) fn after_redis(&mut self, redis: &mut Redis, sql: &Sql, now_us: u64) {
        for claim in std::mem::take(&mut redis.granted) {
            let name = (claim.shard, claim.generation);
            let users = self.granted.entry(name).or_default();
            let is_repeated = !users.is_empty();
            users.insert(claim.user);
            if is_repeated {
                self.generation_repeated(name, now_us);
            }
        }
        if self.has_lost {
            return;
        }
        let audits = redis.audits();
        if audits.iter().any(|audit| audit.stock.is_none()) {
            return;
        }
        let bought = audits.iter().map(|audit| audit.bought).sum();
        let drift = Terms::new(&audits, bought, sql.total).map(|terms| terms.drift());
        if drift != Some(0) {
            self.violate(now_us, format!("Redis has made or lost units: {drift:?}"));
        }
    }

    fn generation_repeated(&mut self, name: ClaimName, now_us: u64) {
        let what = format!("generation {name:?} was granted twice");
        // The time is its floor; above it, it may have run ahead, and been lost.
        let is_floored = name.1 >= START_MS;
        match is_floored && self.loses_data {
            true => drop(self.show(Defect::S1, now_us, what)),
            false => self.violate(now_us, what),
        }
    }

    /// SQL has committed a transaction.
    pub(crate) fn after_sql(&mut self, redis: &Redis, sql: &mut Sql, now_us: u64) {
        self.check_stock(sql, now_us);
        for order in std::mem::take(&mut sql.changed) {
            self.check_order(&order, redis, sql, now_us);
        }
        let now_ms = START_MS + now_us / 1_000;
        for ticket in std::mem::take(&mut sql.ended) {
            if !self.sets_clocks && ticket.deadline_ms > now_ms {
                let what = format!("{} was ended before its deadline", ticket.claim_id());
                self.violate(now_us, what);
            }
        }
    }

    fn check_stock(&mut self, sql: &Sql, now_us: u64) {
        let sold = i64::try_from(sql.units_deducted()).unwrap_or(i64::MAX);
        let total = i64::try_from(sql.total).unwrap_or(i64::MAX);
        if sql.remaining < 0 || sql.remaining + sold != total {
            let what = format!("{sold} of {total} units sold, {} left", sql.remaining);
            self.violate(now_us, what);
        }
    }

    fn check_order(&mut self, order: &Order, redis: &Redis, sql: &Sql, now_us: u64) {
        let name = order.name;
        let granted = self.granted.get(&name);
        let is_granted = granted.is_some_and(|users| users.contains(&order.user));
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
        let is_barred = sql.blocked.contains(&order.user)
            || sql.sale.reservation && !sql.reserved.contains(&order.user);
        if is_barred {
            let what = format!("{} may not buy, and has", order.user);
            match self.lists_may_be_forgotten() {
                true => drop(self.show(Defect::C6, now_us, what)),
                false => self.violate(now_us, what),
            }
        }
        if redis.is_cold(name.0) {
            self.forgotten.insert(order.user.clone());
        }
    }

    // --- losses

    /// Redis is about to lose data, or has just begun to.
    pub(crate) fn before_loss(&mut self, redis: &Redis) {
        self.has_lost = true;
        self.forgotten.extend(redis.claimants());
    }

    /// Whether Redis may have forgotten who has reserved and who is blocked.
    pub(crate) fn lists_may_be_forgotten(&self) -> bool {
        self.has_lost && self.loses_part
    }

    /// Whether Redis may know otherwise than SQL what this user has.
    pub(crate) fn may_be_forgotten(&self, user: &UserId) -> bool {
        self.has_lost && (self.loses_part || self.forgotten.contains(user))
    }

    /// A gateway has said `sold_out`.
    pub(crate) fn on_sold_out(&mut self, redis: &Redis, sql: &Sql, now_us: u64) {
        // An order that ended, and that Redis has not followed yet, is no loss.
        if !self.has_lost || self.violation.is_some() || !sql.unfollowed().is_empty() {
            return;
        }
        let missing = missing_units(&redis.audits(), sql);
        if missing > 0 {
            let what = format!("sold_out, and {missing} units that nobody has are not in Redis");
            self.show(Defect::C4, now_us, what);
        }
    }

    /// How long after the faults everything must have come to rest, in milliseconds.
    pub(crate) fn settle_ms(&self) -> u64 {
        CLAIM_TTL_MS + 13_000
    }
}

/// Units that are neither sold nor anywhere in Redis.
fn missing_units(audits: &[Audit], sql: &Sql) -> i64 {
    let known: Vec<Audit> = audits
        .iter()
        .map(|audit| Audit {
            stock: Some(audit.stock.unwrap_or(0)),
            ..audit.clone()
        })
        .collect();
    let terms = Terms::new(&known, sql.units_deducted(), sql.total);
    terms.map_or(0, |terms| -terms.drift())
}

/// What keeps Redis and SQL from being at rest and of one mind; `None` if nothing does.
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
    if !redis.has_catalogue() {
        return Some("the catalogue names no sale".into());
    }
    let missing = missing_units(&audits, sql);
    (missing != 0).then(|| format!("{missing} units are missing in Redis"))
}
