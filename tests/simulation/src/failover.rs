//! Invariants for a failover of SQL that loses commits: see [`weir_sale::mark`].

use std::collections::{BTreeMap, BTreeSet};

use weir_sale::ledger::Audit;
use weir_sale::mark::changes_lost;

use crate::plan::{Caller, Fault, LAST_FAULT_AT_MS, PayMode, Plan, TimedFault};
use crate::random::Rng;
use crate::sql::{ClaimName, Order, Sql};

/// In some schedules, a failover after the sale is warm.
pub(crate) fn planned(rng: &mut Rng) -> Option<TimedFault> {
    let fault = Fault::FailOverSql {
        behind_ms: rng.between(1, 1_200),
        restores: rng.chance(50),
    };
    let at_ms = rng.between(1_800, LAST_FAULT_AT_MS);
    rng.chance(12).then_some(TimedFault { at_ms, fault })
}

impl Fault {
    /// Whether Redis still has everything that SQL acknowledged when SQL fails over, and operators change nothing that
    /// it loses.
    pub(crate) fn goes_with_a_failover(&self) -> bool {
        let is_redis = matches!(
            self,
            Self::RestartRedis { .. }
                | Self::Redis {
                    caller: Caller::Origin,
                    ..
                }
        );
        let is_operator = matches!(
            self,
            Self::ChangeStock { .. } | Self::MoveEnd { .. } | Self::Refund { .. }
        );
        !self.loses_data() && !is_redis && !is_operator
    }
}

/// Tracks the orders that SQL may lose.
#[derive(Debug)]
pub(crate) struct Failover {
    total: u64,
    /// Whether an order holds its units from the start, so that acknowledged orders never exceed the units.
    holds_units: bool,
    is_planned: bool,
    has_lost: bool,
    is_decided: bool,
    /// Every order that SQL ever had: its units, and whether it ever ended.
    orders: BTreeMap<ClaimName, (u32, bool)>,
    /// Orders reported to clients.
    acknowledged: BTreeSet<ClaimName>,
}

impl Failover {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            total: plan.setting.total,
            holds_units: plan.setting.payment != PayMode::AtPayment,
            is_planned: plan.restores_lost_orders().is_some(),
            has_lost: false,
            is_decided: false,
            orders: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
        }
    }

    /// SQL has failed over.
    pub(crate) fn note_loss(&mut self) {
        self.has_lost = true;
    }

    /// SQL has made or changed an order.
    pub(crate) fn note_order(&mut self, order: &Order) {
        let existing = self.orders.entry(order.name).or_default();
        *existing = (order.units, existing.1 || !order.is_active());
    }

    /// An order was reported to a client. Returns the violation, if any.
    pub(crate) fn note_answer(&mut self, order: ClaimName) -> Option<String> {
        self.acknowledged.insert(order);
        let units = self
            .open_orders()
            .map(|(_, units)| u64::from(units))
            .sum::<u64>();
        let counts = self.is_planned && self.holds_units && !self.is_decided;
        (counts && units > self.total).then(|| {
            format!(
                "{units} units are acknowledged, and there are {}",
                self.total
            )
        })
    }

    /// The acknowledged orders that never ended, each with its units.
    fn open_orders(&self) -> impl Iterator<Item = (ClaimName, u32)> {
        let orders = self.acknowledged.iter();
        orders.filter_map(|name| match self.orders.get(name) {
            Some((units, false)) => Some((*name, *units)),
            _ => None,
        })
    }

    /// The open orders that SQL lost.
    fn lost(&self, sql: &Sql) -> Vec<ClaimName> {
        let names = self.open_orders().map(|(name, _)| name);
        names
            .filter(|name| !sql.orders.contains_key(name))
            .collect()
    }

    /// No mark exceeds SQL's count unless SQL has lost commits.
    pub(crate) fn check_marks(&self, audits: &[Audit], sql: &Sql) -> Option<String> {
        let lost = changes_lost(audits, sql.order_changes());
        let is_right = !self.has_lost || self.is_decided;
        (is_right && lost > 0).then(|| format!("Redis counts {lost} changes more than SQL"))
    }

    /// The sale is paused for no other reason.
    pub(crate) fn check_pause(&self, sql: &Sql) -> Option<String> {
        (sql.is_paused && !self.has_lost).then(|| "paused, and SQL has lost nothing".into())
    }

    /// At rest, lost orders have been detected.
    pub(crate) fn check_noticed(&self, sql: &Sql) -> Option<String> {
        let lost = self.lost(sql);
        (!sql.is_paused && !lost.is_empty())
            .then(|| format!("nobody has noticed that {lost:?} are lost"))
    }

    /// An operator has decided.
    pub(crate) fn check_decided(&mut self, restores: bool, sql: &Sql) -> Option<String> {
        self.is_decided = true;
        // An ended order may be open again in the replica, and hold a unit.
        let has_ended = self.orders.values().any(|(_, ended)| *ended);
        let lost = self.lost(sql);
        (restores && !has_ended && !lost.is_empty())
            .then(|| format!("{lost:?} are not placed again"))
    }
}
