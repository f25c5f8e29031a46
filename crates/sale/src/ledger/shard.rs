//! The model of one shard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::record::Record;
use super::{
    Audit, Checks, ClaimReply, ClaimTerms, Deduction, DepositReply, LendReply, OpenTransfer,
    OrderEntry, Overdue, ReleaseKind, ReleaseReply, SettleReply, ShardProbe, Transfer,
};
use crate::idempotency::AttemptTag;
use weir_base::id::UserId;

/// One shard's part of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLedger {
    stock: Option<i64>,
    epoch: i64,
    sequence: u64,
    users: BTreeMap<UserId, Record>,
    /// Which claim each attempt with a key was granted. (Redis forgets them after a day.)
    attempts: BTreeMap<(UserId, AttemptTag), u64>,
    reserved: BTreeSet<UserId>,
    blocked: BTreeSet<UserId>,
    /// By target. One at a time for each, so that the target need remember only the last id.
    transfers: BTreeMap<u32, (Transfer, u64)>,
    /// The last transfer that came, by lender.
    deposits: BTreeMap<u32, u64>,
}

/// Stock and what is added to it fit: a sale has at most a billion units.
fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl ShardLedger {
    /// Puts `units` on a cold shard and starts its epochs at `now_ms`, so that epochs do not
    /// repeat after a loss of data. Returns whether the shard was cold.
    pub fn warm(&mut self, units: u64, now_ms: u64) -> bool {
        if self.stock.is_some() {
            return false;
        }
        self.stock = Some(signed(units));
        self.epoch = signed(now_ms);
        true
    }

    /// The user has a reservation.
    pub fn reserve(&mut self, user: &UserId) {
        self.reserved.insert(user.clone());
    }

    /// The user is blocked, or no longer.
    pub fn block(&mut self, user: &UserId, is_blocked: bool) {
        match is_blocked {
            true => self.blocked.insert(user.clone()),
            false => self.blocked.remove(user),
        };
    }

    /// One user's claim, of an attempt without a key.
    pub fn claim(&mut self, user: &UserId, terms: ClaimTerms) -> ClaimReply {
        self.claim_for(user, None, terms)
    }

    /// One user's claim. An attempt that was granted a claim before gets that one or its order; see `claim.lua`.
    pub fn claim_for(
        &mut self,
        user: &UserId,
        attempt: Option<AttemptTag>,
        terms: ClaimTerms,
    ) -> ClaimReply {
        let Some(stock) = self.stock else {
            return ClaimReply::Cold;
        };
        let record = self.users.get(user).cloned().unwrap_or_default();
        let attempt = attempt.map(|tag| (user.clone(), tag));
        let granted = attempt.as_ref().and_then(|key| self.attempts.get(key));
        let order = granted.and_then(|&generation| record.order(generation));
        if let Some(order) = order {
            return ClaimReply::Ordered {
                generation: order.generation,
                // A claim's quantity, from a u32.
                quantity: order.units as u32,
            };
        }
        if let Some(refused) = self.refused(user, terms.checks) {
            return refused;
        }
        if record.held > 0 {
            let is_other = attempt.is_some() && granted != Some(&record.generation);
            return match is_other && terms.user_cap > terms.quantity {
                true => ClaimReply::InProgress,
                false => self.deliver_again(user, record),
            };
        }
        if terms.checks.drain {
            return ClaimReply::Draining;
        }
        let wanted = u64::from(terms.quantity);
        if record.ordered() + wanted > u64::from(terms.user_cap) {
            let generation = record.orders.last().map_or(0, |order| order.generation);
            return ClaimReply::CapReached { generation };
        }
        if stock < signed(wanted) {
            return ClaimReply::Empty {
                epoch: self.epoch,
                open_claims: self.open_claims(),
            };
        }
        self.stock = Some(stock - signed(wanted));
        let reply = self.grant(user, record, terms);
        if let Some(attempt) = attempt {
            self.attempts.insert(attempt, self.sequence);
        }
        reply
    }

    fn refused(&self, user: &UserId, checks: Checks) -> Option<ClaimReply> {
        if checks.blocked && self.blocked.contains(user) {
            return Some(ClaimReply::Blocked);
        }
        (checks.reserved && !self.reserved.contains(user)).then_some(ClaimReply::NotReserved)
    }

    fn open_claims(&self) -> u64 {
        self.users.values().filter(|record| record.held > 0).count() as u64
    }

    fn deliver_again(&mut self, user: &UserId, mut record: Record) -> ClaimReply {
        let held = record.deliver();
        self.users.insert(user.clone(), record);
        ClaimReply::GrantedAgain(held)
    }

    fn grant(&mut self, user: &UserId, record: Record, terms: ClaimTerms) -> ClaimReply {
        let mut granted = Record {
            generation: self.next_in_sequence(terms.now_ms),
            held: u64::from(terms.quantity),
            deadline_ms: terms.now_ms + terms.ttl_ms,
            orders: record.orders,
            ..Record::default()
        };
        let held = granted.deliver();
        self.users.insert(user.clone(), granted);
        ClaimReply::Granted(held)
    }

    /// The time as a floor keeps numbers from repeating after a loss of data.
    fn next_in_sequence(&mut self, now_ms: u64) -> u64 {
        self.sequence = (self.sequence + 1).max(now_ms);
        self.sequence
    }

    /// A claim became an order.
    pub fn settle(&mut self, user: &UserId, generation: u64, deduction: Deduction) -> SettleReply {
        let Some(record) = self.users.get_mut(user).filter(|r| r.is_open(generation)) else {
            return SettleReply::Nothing;
        };
        let units = record.close();
        record.orders.push(OrderEntry {
            generation,
            units,
            deduction,
        });
        if deduction == Deduction::AtPayment {
            self.give_back(units);
        }
        SettleReply::Settled
    }

    /// An order that was to be deducted at payment is paid. Its units leave the stock, be there any
    /// or not: SQL has decided that they are sold. If its claim is still open, its settlement was
    /// overtaken, and the units that it holds are the order's. Returns whether there was such an
    /// order or claim.
    pub fn charge(&mut self, user: &UserId, generation: u64) -> bool {
        if self.settle(user, generation, Deduction::AtOrder) == SettleReply::Settled {
            return true;
        }
        let unpaid = |order: &&mut OrderEntry| {
            order.generation == generation && order.deduction == Deduction::AtPayment
        };
        let orders = self.users.get_mut(user).map(|record| &mut record.orders);
        let Some(order) = orders.and_then(|orders| orders.iter_mut().find(unpaid)) else {
            return false;
        };
        order.deduction = Deduction::AtOrder;
        let units = signed(order.units);
        self.stock = self.stock.map(|stock| stock - units);
        true
    }

    /// An order, or the claim that SQL has made one of, is cancelled: what it took from the stock
    /// comes back. Returns whether there was such an order or claim.
    pub fn cancel(&mut self, user: &UserId, generation: u64) -> bool {
        let Some(record) = self.users.get_mut(user) else {
            return false;
        };
        let units = if record.is_open(generation) {
            record.close()
        } else {
            match record.take_order(generation) {
                Some(order) if order.deduction == Deduction::AtOrder => order.units,
                Some(_) => 0,
                None => return false,
            }
        };
        self.forget_if_blank(user);
        if units > 0 {
            self.give_back(units);
        }
        true
    }

    /// A claim, or one delivery of it, is given back.
    pub fn release(&mut self, user: &UserId, generation: u64, kind: ReleaseKind) -> ReleaseReply {
        let Some(record) = self.users.get_mut(user).filter(|r| r.is_open(generation)) else {
            return ReleaseReply::Nothing;
        };
        if let ReleaseKind::Delivery(delivery) = kind
            && record.take_back(delivery)
        {
            return ReleaseReply::StillOut;
        }
        let units = record.close();
        self.forget_if_blank(user);
        if kind != ReleaseKind::Void {
            self.give_back(units);
        }
        ReleaseReply::Ended
    }

    fn forget_if_blank(&mut self, user: &UserId) {
        if self.users.get(user).is_some_and(Record::is_blank) {
            self.users.remove(user);
        }
    }

    fn give_back(&mut self, units: u64) {
        if let Some(stock) = &mut self.stock {
            *stock += signed(units);
            self.epoch += 1;
        }
    }

    /// Units leave for another shard: the transfer that is open to it already, or at least `wanted`
    /// and at least half of what is there, but no more than all.
    pub fn lend(&mut self, to_shard: u32, wanted: u64, now_ms: u64) -> LendReply {
        let Some(stock) = self.stock else {
            return LendReply::Cold;
        };
        if let Some(&(open, _)) = self.transfers.get(&to_shard) {
            return LendReply::Lent(open);
        }
        let Some(there) = u64::try_from(stock).ok().filter(|&there| there > 0) else {
            return LendReply::Nothing;
        };
        let units = there.div_ceil(2).max(wanted).min(there);
        let id = self.next_in_sequence(now_ms);
        let transfer = Transfer { id, units };
        self.stock = Some(stock - signed(units));
        self.transfers.insert(to_shard, (transfer, now_ms));
        LendReply::Lent(transfer)
    }

    /// Units come from another shard.
    pub fn deposit(&mut self, from_shard: u32, transfer: Transfer) -> DepositReply {
        if self.stock.is_none() {
            return DepositReply::Cold;
        }
        let last = self.deposits.entry(from_shard).or_default();
        if transfer.id <= *last {
            return DepositReply::Already;
        }
        *last = transfer.id;
        self.give_back(transfer.units);
        DepositReply::Deposited
    }

    /// A transfer has arrived: it need not be remembered. Returns whether it was.
    pub fn settle_transfer(&mut self, to_shard: u32, id: u64) -> bool {
        let is_it = self
            .transfers
            .get(&to_shard)
            .is_some_and(|(t, _)| t.id == id);
        is_it && self.transfers.remove(&to_shard).is_some()
    }

    /// The shard at a glance.
    pub fn probe(&self) -> ShardProbe {
        ShardProbe {
            stock: self.stock,
            epoch: self.epoch,
            open_claims: self.open_claims(),
            moving: self.transfers.len() as u64,
        }
    }

    /// At most `limit` claims whose deadline is `now_ms` or earlier, the earliest first.
    pub fn overdue(&self, now_ms: u64, limit: usize) -> Vec<Overdue> {
        let mut due: Vec<Overdue> = self
            .users
            .iter()
            .filter(|(_, record)| record.held > 0 && record.deadline_ms <= now_ms)
            .map(|(user, record)| Overdue {
                user: user.clone(),
                held: record.as_open_claim(),
            })
            .collect();
        // Users are in order already, and the sort is stable.
        due.sort_by_key(|claim| claim.held.deadline_ms);
        due.truncate(limit);
        due
    }

    /// Adds `units` to the stock, or takes them, if the shard is as an audit has seen it. Puts right
    /// what a loss of data has made wrong. Returns whether it did.
    pub fn restock(&mut self, units: i64, epoch: i64, sequence: u64) -> bool {
        let is_unchanged = self.epoch == epoch && self.sequence == sequence;
        match self.stock {
            Some(stock) if is_unchanged && (units > 0 || stock + units >= 0) => {
                self.stock = Some(stock + units);
                self.epoch += 1;
                true
            }
            _ => false,
        }
    }

    /// Forgets all claims and transfers of a cold shard, before it is rebuilt. Returns whether the
    /// shard is cold.
    pub fn wipe(&mut self) -> bool {
        if self.stock.is_some() {
            return false;
        }
        self.users.clear();
        self.transfers.clear();
        self.deposits.clear();
        true
    }

    /// Writes the orders of a user on a cold shard, as SQL knows them, oldest first. Returns whether
    /// the shard is cold.
    pub fn restore(&mut self, user: &UserId, orders: &[OrderEntry]) -> bool {
        if self.stock.is_some() {
            return false;
        }
        let generation = orders.last().map_or(0, |order| order.generation);
        self.sequence = self.sequence.max(generation);
        let record = Record {
            generation,
            orders: orders.to_vec(),
            ..Record::default()
        };
        self.users.insert(user.clone(), record);
        true
    }

    /// The terms of the invariant.
    pub fn audit(&self) -> Audit {
        let sum = |of: fn(&Record) -> u64| self.users.values().map(of).sum();
        let transfers = self.transfers.iter();
        Audit {
            stock: self.stock,
            held: sum(|record| record.held),
            bought: sum(|record| record.ordered_so(Deduction::AtOrder)),
            deferred: sum(|record| record.ordered_so(Deduction::AtPayment)),
            epoch: self.epoch,
            sequence: self.sequence,
            transfers: transfers
                .map(|(&to_shard, &(transfer, at_ms))| OpenTransfer {
                    to_shard,
                    transfer,
                    at_ms,
                })
                .collect(),
            deposits: self
                .deposits
                .iter()
                .map(|(&from, &id)| (from, id))
                .collect(),
        }
    }
}
