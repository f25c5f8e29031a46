//! SQL as the origin uses it: every method is one transaction. See
//! `origin/sales/src/store/{claims,desk,orders,payments,sales}.rs`.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::{BTreeMap, BTreeSet};

use weir_base::id::UserId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Deduction, OrderEntry, checksum_of};
use weir_sale::mark::changes;
use weir_sale::sale::{Band, Sale};
use weir_sale::shard::home_shard;
use weir_sale::site::{fence_of, index_of};

use crate::attempt::Attempt;
use crate::mutation::Mutation;
use crate::plan::PayMode;

pub(crate) mod changes;
pub(crate) mod sites;

/// A claim's ID within its sale: shard and generation. An order has the ID of its claim.
pub(crate) type ClaimName = (u32, u64);

/// An order in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) name: ClaimName,
    pub(crate) user: UserId,
    pub(crate) units: u32,
    pub(crate) status: Status,
    /// Whether its units have left the stock.
    pub(crate) is_deducted: bool,
    pub(crate) pay_by_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Unpaid,
    Paid,
    Cancelled,
    Expired,
}

impl Order {
    /// Whether it holds its units, now or later.
    pub(crate) fn is_active(&self) -> bool {
        self.status.is_active()
    }
}

impl Status {
    fn is_active(self) -> bool {
        matches!(self, Self::Unpaid | Self::Paid)
    }
}

/// The final decision about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    user: UserId,
    kind: OutcomeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutcomeKind {
    Ordered,
    Released,
    Void,
}

/// The result of placing an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceOutcome {
    New(Order),
    Again(Order),
    Released { is_void: bool },
    NameTaken,
    Short(Shortage),
    Elsewhere(Order),
    KeyReused { is_spare: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    SoldOut,
    UserCap,
    Barred,
}

/// The result of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PayOutcome {
    Done(Order),
    Refused,
}

/// The database.
#[derive(Clone, Debug)]
pub(crate) struct Sql {
    pub(crate) sale: Sale,
    payment: PayMode,
    pub(crate) total: u64,
    /// Negative only with a mutation.
    pub(crate) remaining: i64,
    outcomes: BTreeMap<ClaimName, Outcome>,
    pub(crate) orders: BTreeMap<ClaimName, Order>,
    /// Units of each user.
    buyers: BTreeMap<UserId, u32>,
    /// The order of each attempt with a key, and its body.
    keys: BTreeMap<(UserId, u32), (ClaimName, u32)>,
    unfollowed: BTreeSet<ClaimName>,
    /// Orders that operators have refunded.
    pub(crate) refunded: BTreeSet<ClaimName>,
    /// Whether another sale has an order that Redis cannot follow.
    pub(crate) is_other_sale_stuck: bool,
    catalogue_version: u64,
    /// Increases with each change of an order, and with each finished change of the stock.
    pub(crate) version: u64,
    pub(crate) warmed_at_ms: Option<u64>,
    /// Orders are lost, and an operator must decide.
    pub(crate) is_paused: bool,
    /// The number of pauses.
    pub(crate) pauses: u64,
    pub(crate) blocked: BTreeSet<UserId>,
    pub(crate) reserved: BTreeSet<UserId>,
    mutation: Option<Mutation>,
    /// Claims released as overdue since the last check.
    pub(crate) ended: Vec<Ticket>,
    /// Changes of the stock, oldest first.
    changes: Vec<changes::Change>,
    /// All fences, oldest first.
    fences: Vec<sites::Fence>,
    /// The fence that fills its shards with all units of the sale.
    filler: Option<u32>,
    /// Operators' steps since the last check.
    pub(crate) site_steps: Vec<sites::SiteStep>,
    /// Claims that a closed fence has refused since the last check.
    pub(crate) fenced: Vec<ClaimName>,
    pub(crate) units_inherited: u64,
    pub(crate) units_transferred: u64,
    /// Whether a withdrawal counted fewer units than Redis had taken, because some were sold: Redis gets these back.
    pub(crate) has_kept_units: bool,
    /// Orders created or changed since the last check.
    pub(crate) changed: Vec<Order>,
    /// Orders created for attempts since the last check.
    pub(crate) attempted: Vec<(Attempt, ClaimName)>,
}

/// The totals of a sale at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    pub(crate) remaining: u64,
    pub(crate) has_outcomes: bool,
    pub(crate) warmed_at_ms: Option<u64>,
}

impl Sql {
    pub(crate) fn new(
        sale: Sale,
        total: u64,
        payment: PayMode,
        sites: u32,
        mutation: Option<Mutation>,
    ) -> Self {
        Self {
            sale,
            payment,
            total,
            remaining: i64::try_from(total).unwrap_or(i64::MAX),
            outcomes: BTreeMap::new(),
            orders: BTreeMap::new(),
            buyers: BTreeMap::new(),
            keys: BTreeMap::new(),
            unfollowed: BTreeSet::new(),
            refunded: BTreeSet::new(),
            is_other_sale_stuck: false,
            catalogue_version: 0,
            version: 0,
            warmed_at_ms: None,
            is_paused: false,
            pauses: 0,
            blocked: BTreeSet::new(),
            reserved: BTreeSet::new(),
            mutation,
            ended: Vec::new(),
            changes: Vec::new(),
            fences: Self::first_fences(sites),
            filler: None,
            site_steps: Vec::new(),
            fenced: Vec::new(),
            units_inherited: 0,
            units_transferred: 0,
            has_kept_units: false,
            changed: Vec::new(),
            attempted: Vec::new(),
        }
    }

    /// The remaining level, as in the catalogue.
    pub(crate) fn band(&self) -> Band {
        let remaining = u64::try_from(self.remaining).unwrap_or(0);
        match Band::from_remaining(remaining, self.total) {
            Band::None if self.has_unpaid_hold() => Band::Reserved,
            band => band,
        }
    }

    // --- claims

    /// Turns a claim into an order, and binds its attempt, if it has a key.
    pub(crate) fn place(
        &mut self,
        ticket: &Ticket,
        attempt: Option<Attempt>,
        now_ms: u64,
    ) -> PlaceOutcome {
        if let Some(bound) = attempt.and_then(|attempt| self.bound(ticket, attempt)) {
            return bound;
        }
        let placed = self.place_claim(ticket, now_ms);
        if let Some(attempt) = attempt {
            self.bind(attempt, &placed);
        }
        placed
    }

    /// The outcome of an attempt that was bound before, unless to this claim.
    fn bound(&self, ticket: &Ticket, attempt: Attempt) -> Option<PlaceOutcome> {
        if self.mutation == Some(Mutation::KeyNotBound) {
            return None;
        }
        let (order, body) = self.keys.get(&(ticket.user.clone(), attempt.key))?;
        let is_spare = *order != (ticket.shard, ticket.generation);
        if *body != attempt.body && self.mutation != Some(Mutation::BodyNotCompared) {
            return Some(PlaceOutcome::KeyReused { is_spare });
        }
        is_spare.then(|| PlaceOutcome::Elsewhere(self.orders[order].clone()))
    }

    fn bind(&mut self, attempt: Attempt, placed: &PlaceOutcome) {
        let order = match placed {
            PlaceOutcome::New(order) => {
                self.attempted.push((attempt, order.name));
                order
            }
            PlaceOutcome::Again(order) if self.mutation != Some(Mutation::KeyNotBoundAgain) => {
                order
            }
            _ => return,
        };
        let key = (order.user.clone(), attempt.key);
        self.keys.entry(key).or_insert((order.name, attempt.body));
    }

    fn place_claim(&mut self, ticket: &Ticket, now_ms: u64) -> PlaceOutcome {
        if let Some(placed_outcome) = self.placed_outcome(ticket) {
            let is_released = matches!(placed_outcome, PlaceOutcome::Released { .. });
            let ignores = self.mutation == Some(Mutation::OrderWithoutOutcome) && is_released;
            if !ignores {
                return placed_outcome;
            }
        }
        if self.is_closed(ticket.shard) && self.mutation != Some(Mutation::FenceNotChecked) {
            self.fenced.push((ticket.shard, ticket.generation));
            return PlaceOutcome::Released { is_void: true };
        }
        if self.is_barred(&ticket.user) {
            return PlaceOutcome::Short(Shortage::Barred);
        }
        let has = self.units_of(&ticket.user);
        let checks_cap = self.mutation != Some(Mutation::CapNotChecked);
        if checks_cap && has + ticket.quantity > self.sale.user_cap {
            return PlaceOutcome::Short(Shortage::UserCap);
        }
        let order = self.new_order(ticket, now_ms);
        if order.is_deducted && !self.take_stock(order.units) {
            return PlaceOutcome::Short(Shortage::SoldOut);
        }
        self.decide(ticket, OutcomeKind::Ordered);
        *self.buyers.entry(ticket.user.clone()).or_default() += order.units;
        self.keep(&order);
        PlaceOutcome::New(order)
    }

    /// Whether a user may not buy.
    pub(crate) fn is_barred(&self, user: &UserId) -> bool {
        self.blocked.contains(user) || self.sale.reservation && !self.reserved.contains(user)
    }

    fn new_order(&self, ticket: &Ticket, now_ms: u64) -> Order {
        let pay_by_ms = match self.payment {
            PayMode::Hold { pay_within_ms } => Some(now_ms + pay_within_ms),
            PayMode::AtOrder | PayMode::AtPayment => None,
        };
        Order {
            name: (ticket.shard, ticket.generation),
            user: ticket.user.clone(),
            units: ticket.quantity,
            status: Status::Unpaid,
            is_deducted: self.payment != PayMode::AtPayment,
            pay_by_ms,
        }
    }

    /// Releases a claim permanently, without a unit to return. `false` if it was already decided.
    pub(crate) fn void(&mut self, ticket: &Ticket) -> bool {
        let is_open = self.placed_outcome(ticket).is_none();
        if is_open {
            self.decide(ticket, OutcomeKind::Void);
        }
        is_open
    }

    /// Releases a claim permanently. If it was already decided, returns the outcome.
    pub(crate) fn release(&mut self, ticket: &Ticket) -> Option<PlaceOutcome> {
        let placed_outcome = self.placed_outcome(ticket);
        if placed_outcome.is_none() {
            self.decide(ticket, OutcomeKind::Released);
        }
        placed_outcome
    }

    fn decide(&mut self, ticket: &Ticket, kind: OutcomeKind) {
        let user = ticket.user.clone();
        let name = (ticket.shard, ticket.generation);
        self.outcomes.insert(name, Outcome { user, kind });
    }

    fn placed_outcome(&self, ticket: &Ticket) -> Option<PlaceOutcome> {
        let name = (ticket.shard, ticket.generation);
        let outcome = self.outcomes.get(&name)?;
        if outcome.user != ticket.user {
            return Some(PlaceOutcome::NameTaken);
        }
        Some(match outcome.kind {
            OutcomeKind::Ordered => PlaceOutcome::Again(self.orders[&name].clone()),
            OutcomeKind::Released => PlaceOutcome::Released { is_void: false },
            OutcomeKind::Void => PlaceOutcome::Released { is_void: true },
        })
    }

    /// Whether the claim is an order.
    pub(crate) fn is_ordered(&self, name: ClaimName) -> bool {
        let outcome = self.outcomes.get(&name);
        outcome.is_some_and(|outcome| outcome.kind == OutcomeKind::Ordered)
    }

    // --- orders

    pub(crate) fn pay(&mut self, name: ClaimName, user: &UserId, now_ms: u64) -> PayOutcome {
        let order = self.orders.get(&name).filter(|order| order.user == *user);
        let Some(order) = order.cloned() else {
            return PayOutcome::Refused;
        };
        let is_in_time = order.pay_by_ms.is_none_or(|by_ms| by_ms > now_ms);
        match order.status {
            Status::Paid => return PayOutcome::Done(order),
            Status::Unpaid if is_in_time => {}
            _ => return PayOutcome::Refused,
        }
        if !order.is_deducted {
            if !self.take_stock(order.units) {
                return PayOutcome::Refused;
            }
            if !self.is_closed(name.0) {
                self.unfollowed.insert(name);
            }
        }
        let paid = Order {
            status: Status::Paid,
            is_deducted: true,
            pay_by_ms: None,
            ..order
        };
        self.keep(&paid);
        PayOutcome::Done(paid)
    }

    /// The order, if it is cancelled now or was cancelled or expired before.
    pub(crate) fn cancel(&mut self, name: ClaimName, user: &UserId) -> Option<Order> {
        let order = self.orders.get(&name).filter(|order| order.user == *user)?;
        match order.status {
            Status::Unpaid => Some(self.end(name, Status::Cancelled)),
            Status::Paid => None,
            Status::Cancelled | Status::Expired => {
                let order = order.clone();
                if self.mutation == Some(Mutation::CancelledTwice) && order.is_deducted {
                    self.remaining += i64::from(order.units);
                }
                Some(order)
            }
        }
    }

    /// Refunds the user's first paid order; none while Redis has not followed its payment.
    pub(crate) fn refund_one_of(&mut self, user: &UserId) -> Option<Order> {
        if self.mutation == Some(Mutation::RefundedAgain) {
            let refunded = self.refunded.iter().map(|name| &self.orders[name]);
            let units = refunded.filter(|order| order.user == *user);
            self.remaining += units.map(|order| i64::from(order.units)).sum::<i64>();
        }
        let is_due = |order: &&Order| order.user == *user && order.status == Status::Paid;
        let name = self.orders.values().find(is_due)?.name;
        if self.unfollowed.contains(&name) {
            return None;
        }
        self.refunded.insert(name);
        let order = self.end(name, Status::Cancelled);
        if self.mutation == Some(Mutation::RefundNotFollowed) {
            self.unfollowed.remove(&name);
            return None;
        }
        Some(order)
    }

    /// Expires unpaid orders.
    pub(crate) fn expire(&mut self, now_ms: u64) -> Vec<Order> {
        let is_overdue = |order: &&Order| {
            order.status == Status::Unpaid && order.pay_by_ms.is_some_and(|by_ms| by_ms <= now_ms)
        };
        let overdue = self.orders.values().filter(is_overdue);
        let overdue: Vec<ClaimName> = overdue.map(|order| order.name).collect();
        let end = |name| self.end(name, Status::Expired);
        overdue.into_iter().map(end).collect()
    }

    fn end(&mut self, name: ClaimName, status: Status) -> Order {
        let order = Order {
            status,
            pay_by_ms: None,
            ..self.orders[&name].clone()
        };
        self.keep(&order);
        if order.is_deducted {
            self.remaining += i64::from(order.units);
        }
        *self.buyers.entry(order.user.clone()).or_default() -= order.units;
        if self.mutation != Some(Mutation::EndNotNoted) && !self.is_closed(name.0) {
            self.unfollowed.insert(name);
        }
        order
    }

    fn keep(&mut self, order: &Order) {
        self.version += 1;
        self.orders.insert(order.name, order.clone());
        self.changed.push(order.clone());
    }

    fn take_stock(&mut self, units: u32) -> bool {
        let is_there = self.remaining >= i64::from(units);
        if !is_there && self.mutation != Some(Mutation::StockNotChecked) {
            return false;
        }
        self.remaining -= i64::from(units);
        true
    }

    /// The orders on shards of a site that Redis may not have followed.
    pub(crate) fn unfollowed_at(&self, site: usize) -> Vec<Order> {
        let fence = self.fence_at(site).fence;
        let orders = self.unfollowed.iter();
        let orders = orders.filter(|name| fence_of(name.0) == fence);
        orders.map(|name| self.orders[name].clone()).collect()
    }

    /// All orders that Redis may not have followed.
    pub(crate) fn unfollowed(&self) -> Vec<Order> {
        let orders = self.unfollowed.iter();
        orders.map(|name| self.orders[name].clone()).collect()
    }

    /// The order of another sale that Redis may not have followed.
    pub(crate) fn unfollowed_elsewhere(&self) -> Option<Order> {
        self.is_other_sale_stuck.then(|| Order {
            name: (0, 1),
            user: crate::client::user(0),
            units: 1,
            status: Status::Cancelled,
            is_deducted: true,
            pay_by_ms: None,
        })
    }

    /// Redis has followed the order to this status.
    pub(crate) fn mark_followed(&mut self, name: ClaimName, status: Status) {
        if self
            .orders
            .get(&name)
            .is_some_and(|order| order.status == status)
        {
            self.unfollowed.remove(&name);
        }
    }

    // --- the sale

    /// A version later than all previous ones.
    pub(crate) fn next_catalogue_version(&mut self, now_ms: u64) -> u64 {
        self.catalogue_version = (self.catalogue_version + 1).max(now_ms);
        self.catalogue_version
    }

    /// The units of these open claims that neither an order nor a void claim has taken from the stock.
    pub(crate) fn held_units(&self, open: &[Ticket]) -> u64 {
        let is_held = |ticket: &&Ticket| match self.placed_outcome(ticket) {
            Some(PlaceOutcome::Again(order)) => !(order.is_deducted && order.status.is_active()),
            Some(PlaceOutcome::Released { is_void }) => !is_void,
            _ => true,
        };
        let held = open.iter().filter(is_held);
        held.map(|ticket| u64::from(ticket.quantity)).sum()
    }

    /// Units in open orders of a shard that have left the stock, those that have not, and their checksum.
    pub(crate) fn sums_of(&self, shard: u32) -> (u64, u64, u64) {
        let (mut deducted, mut deferred, mut checksum) = (0, 0, 0);
        let orders = self.orders.range((shard, 0)..=(shard, u64::MAX));
        for (_, order) in orders.filter(|(_, order)| order.status.is_active()) {
            let units = u64::from(order.units);
            match order.is_deducted {
                true => deducted += units,
                false => deferred += units,
            }
            checksum = checksum_of(checksum, order.name.1, true);
        }
        (deducted, deferred, checksum)
    }

    /// The number of changes of all orders: see [`weir_sale::mark`].
    pub(crate) fn order_changes(&self) -> u64 {
        let ended = self
            .orders
            .values()
            .filter(|order| !order.is_active())
            .count() as u64;
        changes(self.orders.len() as u64 - ended, ended)
    }

    /// The number of changes of a shard's orders.
    pub(crate) fn order_changes_of(&self, shard: u32) -> u64 {
        let orders = || self.orders.range((shard, 0)..=(shard, u64::MAX));
        let ended = orders().filter(|(_, order)| !order.is_active()).count() as u64;
        changes(orders().count() as u64 - ended, ended)
    }

    /// Pauses the sale, unless the number of its pauses exceeds `observed`.
    pub(crate) fn pause(&mut self, observed: u64) {
        if !self.is_paused && self.pauses == observed {
            self.is_paused = true;
            self.pauses += 1;
        }
    }

    /// Ends the pause with this number.
    pub(crate) fn resume(&mut self, observed: u64) {
        self.is_paused &= self.pauses != observed;
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            remaining: u64::try_from(self.remaining).unwrap_or(0),
            has_outcomes: !self.outcomes.is_empty(),
            warmed_at_ms: self.warmed_at_ms,
        }
    }

    /// Units in open orders that have left the stock.
    pub(crate) fn units_deducted(&self) -> u64 {
        let deducted = self.orders.values();
        let deducted = deducted.filter(|order| order.status.is_active() && order.is_deducted);
        deducted.map(|order| u64::from(order.units)).sum()
    }

    pub(crate) fn units_of(&self, user: &UserId) -> u32 {
        self.buyers.get(user).copied().unwrap_or(0)
    }

    /// Units in the open orders of `user`, recounted.
    pub(crate) fn standing_units_of(&self, user: &UserId) -> u32 {
        let orders = self.orders.values();
        let orders = orders.filter(|order| order.user == *user && order.status.is_active());
        orders.map(|order| order.units).sum()
    }

    /// The open orders of a shard.
    pub(crate) fn standing_orders(&self, shard: u32) -> Vec<Order> {
        let orders = self.orders.range((shard, 0)..=(shard, u64::MAX));
        let orders = orders.map(|(_, order)| order);
        orders
            .filter(|order| order.status.is_active())
            .cloned()
            .collect()
    }

    /// The keys of attempts whose orders are open on a shard, each with its user and its order's generation.
    pub(crate) fn attempts_of(&self, shard: u32) -> Vec<(UserId, u32, u64)> {
        let is_active = |name: &ClaimName| name.0 == shard && self.orders[name].status.is_active();
        let keys = self.keys.iter();
        let keys = keys.filter(|(_, (name, _))| is_active(name));
        keys.map(|((user, key), (name, _))| (user.clone(), *key, name.1))
            .collect()
    }

    /// The open orders of users whose home is `shard`, oldest first.
    pub(crate) fn orders_of(&self, shard: u32) -> BTreeMap<UserId, Vec<OrderEntry>> {
        let mut users = BTreeMap::<_, Vec<OrderEntry>>::new();
        let orders = self.orders.range((shard, 0)..=(shard, u64::MAX));
        for (_, order) in orders.filter(|(_, order)| order.status.is_active()) {
            users
                .entry(order.user.clone())
                .or_default()
                .push(OrderEntry {
                    generation: order.name.1,
                    units: order.units.into(),
                    deduction: match order.is_deducted {
                        true => Deduction::AtOrder,
                        false => Deduction::AtPayment,
                    },
                });
        }
        users
    }

    /// Whether an order waits for a payment with a deadline.
    pub(crate) fn has_unpaid_hold(&self) -> bool {
        self.orders.values().any(|order| order.pay_by_ms.is_some())
    }

    /// Whether the order's claim was on its user's home shard.
    pub(crate) fn is_at_home(&self, order: &Order) -> bool {
        home_shard(&order.user, self.sale.shards) == index_of(order.name.0)
    }
}
