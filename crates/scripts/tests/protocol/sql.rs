//! SQL for the protocol: every method is one transaction.

use std::collections::BTreeMap;

use weir_base::id::UserId;
use weir_sale::ledger::{Deduction, ReleaseKind};

use super::world::Setting;

/// A claim's ID within its sale: shard and generation.
pub type ClaimName = (u32, u64);

#[derive(Clone, Debug)]
pub struct Order {
    pub user: UserId,
    pub units: u64,
    /// Whether its units have left the stock.
    pub is_deducted: bool,
    pub state: OrderState,
    /// Whether the last change must still be applied to Redis.
    pub is_unfollowed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderState {
    Unpaid,
    Paid,
    Cancelled,
}

#[derive(Clone, Debug)]
enum Outcome {
    Ordered,
    Released { user: UserId, is_void: bool },
}

/// SQL's decision about a claim, which Redis must apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Settle(Deduction),
    Cancel,
    Release(ReleaseKind),
}

pub struct Sql {
    setting: Setting,
    pub remaining: u64,
    outcomes: BTreeMap<ClaimName, Outcome>,
    pub orders: BTreeMap<ClaimName, Order>,
}

impl Sql {
    pub fn new(setting: Setting) -> Self {
        Self {
            setting,
            remaining: setting.total,
            outcomes: BTreeMap::new(),
            orders: BTreeMap::new(),
        }
    }

    /// Units that have left the stock.
    pub fn sold(&self) -> u64 {
        let deducted = self.orders.values().filter(|order| order.is_deducted);
        deducted.map(|order| order.units).sum()
    }

    fn of_user(&self, user: &UserId) -> u64 {
        let current = |order: &&Order| order.user == *user && order.state != OrderState::Cancelled;
        self.orders
            .values()
            .filter(current)
            .map(|order| order.units)
            .sum()
    }

    /// Turns a claim into an order.
    pub fn place(&mut self, name: ClaimName, user: &UserId, units: u64) -> Decision {
        if let Some(decision) = self.decision(name, user) {
            return decision;
        }
        if self.of_user(user) + units > u64::from(self.setting.user_cap) {
            return self.release(name, user, false);
        }
        let is_deducted = self.setting.deduction == Deduction::AtOrder;
        if is_deducted {
            if self.remaining < units {
                return self.release(name, user, true);
            }
            self.remaining -= units;
        }
        self.outcomes.insert(name, Outcome::Ordered);
        let order = Order {
            user: user.clone(),
            units,
            is_deducted,
            state: OrderState::Unpaid,
            is_unfollowed: false,
        };
        self.orders.insert(name, order);
        Decision::Settle(self.setting.deduction)
    }

    /// Decides about a claim whose deadline has passed.
    pub fn decide_overdue(&mut self, name: ClaimName, user: &UserId) -> Decision {
        match self.decision(name, user) {
            Some(decision) => decision,
            None => self.release(name, user, false),
        }
    }

    fn release(&mut self, name: ClaimName, user: &UserId, is_void: bool) -> Decision {
        let user = user.clone();
        self.outcomes
            .insert(name, Outcome::Released { user, is_void });
        Decision::Release(release_kind(is_void))
    }

    fn decision(&self, name: ClaimName, user: &UserId) -> Option<Decision> {
        match self.outcomes.get(&name)? {
            Outcome::Released { user: of, is_void } => {
                Some(Decision::Release(release_kind(*is_void && of == user)))
            }
            Outcome::Ordered => {
                let order = &self.orders[&name];
                if order.user != *user {
                    return Some(Decision::Release(ReleaseKind::Decided));
                }
                Some(match order.state {
                    OrderState::Cancelled => Decision::Cancel,
                    _ if order.is_deducted => Decision::Settle(Deduction::AtOrder),
                    _ => Decision::Settle(Deduction::AtPayment),
                })
            }
        }
    }

    /// Pays the order. Returns whether it is paid now or was before.
    pub fn pay(&mut self, name: ClaimName) -> bool {
        let Some(order) = self.orders.get_mut(&name) else {
            return false;
        };
        if order.state != OrderState::Unpaid {
            return order.state == OrderState::Paid;
        }
        if !order.is_deducted {
            if self.remaining < order.units {
                return false;
            }
            self.remaining -= order.units;
            order.is_deducted = true;
            order.is_unfollowed = true;
        }
        order.state = OrderState::Paid;
        true
    }

    /// Cancels the order. Returns whether it is cancelled now or was before.
    pub fn cancel(&mut self, name: ClaimName) -> bool {
        let Some(order) = self.orders.get_mut(&name) else {
            return false;
        };
        if order.state == OrderState::Unpaid {
            if order.is_deducted {
                self.remaining += order.units;
            }
            order.is_deducted = false;
            order.state = OrderState::Cancelled;
            order.is_unfollowed = true;
        }
        order.state == OrderState::Cancelled
    }
}

fn release_kind(is_void: bool) -> ReleaseKind {
    match is_void {
        true => ReleaseKind::Void,
        false => ReleaseKind::Decided,
    }
}
