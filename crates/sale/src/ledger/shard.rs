//! The model of one shard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::record::Record;
use super::{
    Audit, Checks, ClaimReply, ClaimTerms, Deduction, DepositReply, FollowUpReply, LendReply,
    OpenTransfer, OrderEntry, Overdue, ReleaseKind, ReleaseReply, SettleReply, ShardProbe,
    StockChange, StockChanged, Transfer, WipeReply, checksum_of,
};
use crate::idempotency::AttemptTag;
use crate::shard::bucket;
use weir_base::id::UserId;

/// One shard's part of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardLedger {
    /// The time of Redis' clock, in microseconds.
    clock_us: u64,
    stock: Option<i64>,
    epoch: i64,
    sequence: u64,
    /// Increases with each change of the terms.
    version: u64,
    users: BTreeMap<UserId, Record>,
    /// The deadlines of open claims, in milliseconds: one per claim, unless a key was evicted.
    pending: BTreeMap<UserId, u64>,
    /// The part of the sums whose keys were evicted.
    evicted: Sums,
    /// The claim of each attempt with a key. (Redis removes these after a day.)
    attempts: BTreeMap<(UserId, AttemptTag), u64>,
    reserved: BTreeSet<UserId>,
    blocked: BTreeSet<UserId>,
    /// Open transfers by target: at most one each, so that the target stores only the last id.
    transfers: BTreeMap<u32, (Transfer, u64)>,
    /// The last received transfer, by source shard.
    deposits: BTreeMap<u32, u64>,
    /// The last change of the sale's stock, with its result here.
    change: StockChange,
    /// The number of applied order changes. Objects stored by older versions have none.
    #[serde(default)]
    mark: u64,
    /// The current rebuild.
    rebuild: Option<Rebuild>,
}

/// A running rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rebuild {
    token: String,
    /// When another rebuild may start.
    until_us: u64,
    lease_ms: u64,
}

/// Sums over users, as in Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sums {
    open: u64,
    held: u64,
    bought: u64,
    deferred: u64,
    checksum: u64,
}

impl Sums {
    fn count(&mut self, record: &Record) {
        self.open += u64::from(record.held > 0);
        self.held += record.held;
        self.bought += record.ordered_so(Deduction::AtOrder);
        self.deferred += record.ordered_so(Deduction::AtPayment);
        for order in &record.orders {
            self.checksum = checksum_of(self.checksum, order.generation, true);
        }
    }

    /// The part of `sums` that these sums lack.
    fn missing_in(&self, sums: &Audit) -> Self {
        Self {
            open: sums.open.saturating_sub(self.open),
            held: sums.held.saturating_sub(self.held),
            bought: sums.bought.saturating_sub(self.bought),
            deferred: sums.deferred.saturating_sub(self.deferred),
            checksum: checksum_of(sums.checksum, self.checksum, false),
        }
    }
}

/// A key that Redis may lose, by its eviction policy or manually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictedKey {
    /// The open claims, with their users' orders.
    Claims,
    /// The deadlines of open claims.
    Pending,
    /// The orders of users without a claim, in one bucket.
    Bought(u32),
}

/// The sum cannot overflow: a sale has at most a billion units.
fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl ShardLedger {
    /// Sets Redis' clock.
    pub fn set_clock_us(&mut self, now_us: u64) {
        self.clock_us = now_us;
    }

    fn now_ms(&self) -> u64 {
        self.clock_us / 1_000
    }

    /// Puts `units` on a cold shard: one that was never used, or the one whose rebuild has this token. Returns whether
    /// it did.
    pub fn warm(&mut self, units: u64, token: Option<&str>) -> bool {
        let rebuilds = self.rebuild.as_ref().map(|rebuild| rebuild.token.as_str());
        if self.stock.is_some() || rebuilds != token {
            return false;
        }
        self.stock = Some(signed(units));
        self.version += 1;
        self.raise_epoch();
        self.rebuild = None;
        true
    }

    /// Gives the user a reservation.
    pub fn reserve(&mut self, user: &UserId) {
        self.reserved.insert(user.clone());
    }

    /// Blocks or unblocks the user.
    pub fn block(&mut self, user: &UserId, is_blocked: bool) {
        match is_blocked {
            true => self.blocked.insert(user.clone()),
            false => self.blocked.remove(user),
        };
    }

    /// One user's claim without an idempotency key.
    pub fn claim(&mut self, user: &UserId, terms: ClaimTerms) -> ClaimReply {
        self.claim_for(user, None, terms)
    }

    /// One user's claim. A retry of a granted attempt gets the same claim or its order; see `claim.lua`.
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
                // A claim's quantity, originally a `u32`.
                quantity: order.units as u32,
            };
        }
        if let Some(refused) = self.refused(user, terms.checks) {
            return refused;
        }
        if record.held > 0 {
            let is_other = attempt.is_some() && granted != Some(&record.generation);
            return match is_other && u64::from(terms.user_cap) > record.held {
                true => ClaimReply::InProgress,
                false => self.deliver_again(user, record),
            };
        }
        if terms.checks.drain {
            return ClaimReply::Draining;
        }
        let requested = u64::from(terms.quantity);
        if record.ordered() + requested > u64::from(terms.user_cap) {
            let generation = record.orders.last().map_or(0, |order| order.generation);
            return ClaimReply::CapReached { generation };
        }
        if stock < signed(requested) {
            return ClaimReply::Empty {
                epoch: self.epoch,
                open_claims: self.open_claims(),
            };
        }
        self.change_stock(-signed(requested));
        self.version += 1;
        let reply = self.grant(user, record, terms);
        if let Some(attempt) = attempt {
            self.attempts.insert(attempt, self.sequence);
        }
        reply
    }

    /// Records that, according to SQL, this attempt was granted the claim of this generation.
    pub fn note_attempt(&mut self, user: &UserId, tag: AttemptTag, generation: u64) {
        self.attempts.insert((user.clone(), tag), generation);
    }

    fn refused(&self, user: &UserId, checks: Checks) -> Option<ClaimReply> {
        if checks.blocked && self.blocked.contains(user) {
            return Some(ClaimReply::Blocked);
        }
        (checks.reserved && !self.reserved.contains(user)).then_some(ClaimReply::NotReserved)
    }

    /// The number of users with an open claim.
    fn records(&self) -> u64 {
        self.users.values().filter(|record| record.held > 0).count() as u64
    }

    /// The number of open claims in the sums.
    fn open_claims(&self) -> u64 {
        self.records() + self.evicted.open
    }

    fn deliver_again(&mut self, user: &UserId, mut record: Record) -> ClaimReply {
        let held = record.deliver();
        self.users.insert(user.clone(), record);
        ClaimReply::GrantedAgain(held)
    }

    fn grant(&mut self, user: &UserId, record: Record, terms: ClaimTerms) -> ClaimReply {
        let mut granted = Record {
            generation: self.next_in_sequence(),
            held: u64::from(terms.quantity),
            deadline_ms: self.now_ms() + terms.ttl_ms,
            orders: record.orders,
            ..Record::default()
        };
        let held = granted.deliver();
        self.pending.insert(user.clone(), granted.deadline_ms);
        self.users.insert(user.clone(), granted);
        ClaimReply::Granted(held)
    }

    /// The clock is a lower bound, so that numbers never repeat, even after data loss.
    fn next_in_sequence(&mut self) -> u64 {
        self.sequence = (self.sequence + 1).max(self.clock_us);
        self.sequence
    }

    fn raise_epoch(&mut self) {
        self.epoch = (self.epoch + 1).max(signed(self.clock_us));
    }

    /// Adds or removes units. The epoch changes whenever units arrive, and whenever the last one leaves.
    fn change_stock(&mut self, units: i64) {
        let Some(before) = self.stock else { return };
        let after = before + units;
        self.stock = Some(after);
        if units > 0 || before > 0 && after <= 0 {
            self.raise_epoch();
        }
    }

    /// The record with the open claim of this generation, unless the shard is cold.
    fn open_record(&mut self, user: &UserId, generation: u64) -> Option<&mut Record> {
        self.stock?;
        let record = self.users.get_mut(user);
        record.filter(|record| record.is_open(generation))
    }

    /// Ends the user's open claim and returns its units.
    fn close(&mut self, user: &UserId) -> u64 {
        self.pending.remove(user);
        self.users.get_mut(user).map_or(0, Record::close)
    }

    /// Turns a claim into an order.
    pub fn settle(&mut self, user: &UserId, generation: u64, deduction: Deduction) -> SettleReply {
        if self.open_record(user, generation).is_none() {
            return SettleReply::Nothing;
        }
        let units = self.close(user);
        let order = OrderEntry {
            generation,
            units,
            deduction,
        };
        self.users
            .entry(user.clone())
            .or_default()
            .orders
            .push(order);
        self.version += 1;
        self.mark += 1;
        if deduction == Deduction::AtPayment {
            self.change_stock(signed(units));
        }
        SettleReply::Settled
    }

    /// Records the payment of an order that is deducted at payment. Its units leave the stock even if it becomes
    /// negative, because SQL has sold them. If its claim is still open, this call arrived before the settlement, and
    /// the claim's units become the order's.
    pub fn charge(&mut self, user: &UserId, generation: u64) -> FollowUpReply {
        if self.stock.is_none() {
            return FollowUpReply::Cold;
        }
        if self.settle(user, generation, Deduction::AtOrder) == SettleReply::Settled {
            return FollowUpReply::Done;
        }
        let unpaid = |order: &&mut OrderEntry| {
            order.generation == generation && order.deduction == Deduction::AtPayment
        };
        let orders = self.users.get_mut(user).map(|record| &mut record.orders);
        let Some(order) = orders.and_then(|orders| orders.iter_mut().find(unpaid)) else {
            return FollowUpReply::Nothing;
        };
        order.deduction = Deduction::AtOrder;
        let units = signed(order.units);
        self.version += 1;
        self.change_stock(-units);
        FollowUpReply::Done
    }

    /// Cancels an order, or a claim that has become an order in SQL. Its units return to the stock.
    pub fn cancel(&mut self, user: &UserId, generation: u64) -> FollowUpReply {
        if self.stock.is_none() {
            return FollowUpReply::Cold;
        }
        let Some(record) = self.users.get_mut(user) else {
            return FollowUpReply::Nothing;
        };
        let (units, changes) = if record.is_open(generation) {
            // The order was made, and ended.
            (self.close(user), 2)
        } else {
            match record.take_order(generation) {
                Some(order) if order.deduction == Deduction::AtOrder => (order.units, 1),
                Some(_) => (0, 1),
                None => return FollowUpReply::Nothing,
            }
        };
        self.mark += changes;
        self.forget_if_blank(user);
        self.version += 1;
        self.change_stock(signed(units));
        FollowUpReply::Done
    }

    /// Releases a claim, or one delivery of it.
    pub fn release(&mut self, user: &UserId, generation: u64, kind: ReleaseKind) -> ReleaseReply {
        let Some(record) = self.open_record(user, generation) else {
            return ReleaseReply::Nothing;
        };
        if let ReleaseKind::Delivery(delivery) = kind
            && record.take_back(delivery)
        {
            return ReleaseReply::StillOut;
        }
        let units = self.close(user);
        self.forget_if_blank(user);
        self.version += 1;
        if kind != ReleaseKind::Void {
            self.change_stock(signed(units));
        }
        ReleaseReply::Ended
    }

    fn forget_if_blank(&mut self, user: &UserId) {
        if self.users.get(user).is_some_and(Record::is_blank) {
            self.users.remove(user);
        }
    }

    /// Transfers units out to another shard: in the existing open transfer, or in a new one. A new one has the larger
    /// of `requested` and half of the stock, at most all of it.
    pub fn lend(&mut self, to_shard: u32, requested: u64) -> LendReply {
        let Some(stock) = self.stock else {
            return LendReply::Cold;
        };
        if let Some(&(open, _)) = self.transfers.get(&to_shard) {
            return LendReply::Lent(open);
        }
        let Some(there) = u64::try_from(stock).ok().filter(|&there| there > 0) else {
            return LendReply::Nothing;
        };
        let units = there.div_ceil(2).max(requested).min(there);
        let id = self.next_in_sequence();
        let transfer = Transfer { id, units };
        self.change_stock(-signed(units));
        self.version += 1;
        self.transfers.insert(to_shard, (transfer, self.now_ms()));
        LendReply::Lent(transfer)
    }

    /// Transfers units in from another shard.
    pub fn deposit(&mut self, from_shard: u32, transfer: Transfer) -> DepositReply {
        if self.stock.is_none() {
            return DepositReply::Cold;
        }
        let last = self.deposits.entry(from_shard).or_default();
        if transfer.id <= *last {
            return DepositReply::Already;
        }
        *last = transfer.id;
        self.change_stock(signed(transfer.units));
        self.version += 1;
        DepositReply::Deposited
    }

    /// Finishes a transfer that has arrived. Returns whether it was open.
    pub fn settle_transfer(&mut self, to_shard: u32, id: u64) -> bool {
        let is_it = self
            .transfers
            .get(&to_shard)
            .is_some_and(|(t, _)| t.id == id);
        is_it && self.transfers.remove(&to_shard).is_some()
    }

    /// The shard's summary.
    pub fn probe(&self) -> ShardProbe {
        ShardProbe {
            stock: self.stock,
            epoch: self.epoch,
            open_claims: self.open_claims(),
            moving: self.transfers.len() as u64,
        }
    }

    /// At most `limit` claims whose deadline passed at least `grace_ms` ago, the earliest first. Removes deadlines of
    /// evicted claims.
    pub fn overdue(&mut self, grace_ms: u64, limit: usize) -> Vec<Overdue> {
        let due_ms = self.now_ms().saturating_sub(grace_ms);
        self.open_until(due_ms, limit)
    }

    /// All open claims with a deadline, the earliest first.
    pub fn open(&mut self) -> Vec<Overdue> {
        self.open_until(u64::MAX, usize::MAX)
    }

    fn open_until(&mut self, due_ms: u64, limit: usize) -> Vec<Overdue> {
        let pending = self.pending.iter();
        let due = pending.filter(|(_, deadline_ms)| **deadline_ms <= due_ms);
        let mut due: Vec<_> = due.map(|(user, at_ms)| (user.clone(), *at_ms)).collect();
        // Users are already sorted, and the sort is stable.
        due.sort_by_key(|(_, deadline_ms)| *deadline_ms);
        due.truncate(limit);
        due.into_iter()
            .filter_map(|(user, _)| self.overdue_of(user))
            .collect()
    }

    fn overdue_of(&mut self, user: UserId) -> Option<Overdue> {
        let record = self.users.get(&user).filter(|record| record.held > 0);
        let Some(held) = record.map(Record::as_open_claim) else {
            self.pending.remove(&user);
            return None;
        };
        Some(Overdue { user, held })
    }

    /// Adds `units` to the stock, or removes them, if the shard is unchanged since an audit. Repairs a loss of data.
    /// Returns whether it did.
    pub fn restock(&mut self, units: i64, audit: &Audit) -> bool {
        let is_unchanged = self.epoch == audit.epoch
            && self.sequence == audit.sequence
            && self.version == audit.version;
        match self.stock {
            Some(stock) if is_unchanged && (units > 0 || stock + units >= 0) => {
                self.change_stock(units);
                self.version += 1;
                true
            }
            _ => false,
        }
    }

    /// Raises the mark to SQL's count if the shard is unchanged since an audit and has a lower mark. Returns whether it
    /// did.
    pub fn raise_mark(&mut self, mark: u64, audit: &Audit) -> bool {
        let is_unchanged = self.stock.is_some()
            && self.epoch == audit.epoch
            && self.sequence == audit.sequence
            && self.version == audit.version;
        let raises = is_unchanged && self.mark < mark;
        if raises {
            self.mark = mark;
        }
        raises
    }

    /// Applies an operator's stock change: adds units, or withdraws free ones. The shard stores the result, so a
    /// repeated change has no effect.
    pub fn change(&mut self, change: StockChange) -> StockChanged {
        let Some(stock) = self.stock else {
            return StockChanged::Cold;
        };
        if change.number < self.change.number {
            return StockChanged::Over;
        }
        if change.number > self.change.number {
            let units = change.units.max(-stock.max(0));
            self.change = StockChange { units, ..change };
            self.change_stock(units);
            self.version += 1;
        }
        StockChanged::Done(self.change.units)
    }

    /// Redis loses only the stock entry, so the shard is cold.
    pub fn lose_stock(&mut self) {
        self.stock = None;
    }

    /// Redis loses a key and continues.
    pub fn evict(&mut self, key: EvictedKey) {
        if key == EvictedKey::Pending {
            return self.pending.clear();
        }
        let is_in = |user: &UserId, record: &Record| match key {
            EvictedKey::Bought(number) => record.held == 0 && bucket(user) == number,
            _ => record.held > 0,
        };
        let evicted = &mut self.evicted;
        self.users.retain(|user, record| {
            let stays = !is_in(user, record);
            if !stays {
                evicted.count(record);
            }
            stays
        });
    }

    /// Begins the rebuild of a cold shard: deletes all its claims, orders and transfers. No other rebuild may begin for
    /// `lease_ms`, nor for as long after each restored order.
    pub fn wipe(&mut self, token: &str, lease_ms: u64) -> WipeReply {
        if self.stock.is_some() {
            return WipeReply::Warm;
        }
        let other = self
            .rebuild
            .as_ref()
            .filter(|existing| existing.token != token);
        if other.is_some_and(|other| other.until_us > self.clock_us) {
            return WipeReply::Other;
        }
        self.users.clear();
        self.pending.clear();
        self.evicted = Sums::default();
        self.transfers.clear();
        self.deposits.clear();
        self.version = 0;
        self.rebuild = Some(Rebuild {
            token: token.into(),
            until_us: self.clock_us + lease_ms * 1_000,
            lease_ms,
        });
        WipeReply::Begun
    }

    /// Continues the rebuild of a cold shard. Returns whether this token still owns it.
    pub fn renew(&mut self, token: &str) -> bool {
        // Only a cold shard has a rebuild.
        let rebuild = self
            .rebuild
            .as_mut()
            .filter(|existing| existing.token == token);
        let Some(rebuild) = rebuild else { return false };
        rebuild.until_us = self.clock_us + rebuild.lease_ms * 1_000;
        true
    }

    /// Writes a user's orders from SQL to a cold shard, oldest first. Returns whether it did: another rebuild may have
    /// started.
    pub fn restore(&mut self, token: &str, user: &UserId, orders: &[OrderEntry]) -> bool {
        if !self.renew(token) {
            return false;
        }
        let generation = orders.last().map_or(0, |order| order.generation);
        self.sequence = self.sequence.max(generation);
        self.users.insert(user.clone(), Record::from_orders(orders));
        true
    }

    /// Writes a user's orders from SQL, if the orders here still equal `entries` and no claim is open. Returns
    /// whether it did.
    pub fn correct(
        &mut self,
        user: &UserId,
        entries: &[OrderEntry],
        orders: &[OrderEntry],
    ) -> bool {
        let existing = self.users.get(user).cloned().unwrap_or_default();
        if self.stock.is_none() || existing.held > 0 || existing.orders != entries {
            return false;
        }
        self.users.insert(user.clone(), Record::from_orders(orders));
        self.forget_if_blank(user);
        self.version += 1;
        true
    }

    /// The orders of a user without a claim; `None` for a user with one.
    pub fn orders_of(&self, user: &UserId) -> Option<Vec<OrderEntry>> {
        let existing = self.users.get(user).cloned().unwrap_or_default();
        (existing.held == 0).then_some(existing.orders)
    }

    /// The users with orders and without a claim.
    pub fn settled(&self) -> impl Iterator<Item = (&UserId, &[OrderEntry])> {
        let users = self.users.iter().filter(|(_, record)| record.held == 0);
        users.map(|(user, record)| (user, record.orders.as_slice()))
    }

    /// Restores the evicted deadline of a claim.
    pub fn restore_deadline(&mut self, user: &UserId, deadline_ms: u64) {
        self.pending.entry(user.clone()).or_insert(deadline_ms);
    }

    /// The users with an open claim, with its units and its deadline in milliseconds.
    pub fn claimed(&self) -> impl Iterator<Item = (&UserId, u64, u64)> {
        let open = self.users.iter().filter(|(_, record)| record.held > 0);
        open.map(|(user, record)| (user, record.held, record.deadline_ms))
    }

    /// Writes these sums if the shard still has their version. Returns whether it did.
    pub fn recount(&mut self, sums: &Audit) -> bool {
        let is_unchanged = self.stock.is_some() && self.version == sums.version;
        if is_unchanged {
            self.evicted = self.sums_of_users().missing_in(sums);
            self.version += 1;
        }
        is_unchanged
    }

    fn sums_of_users(&self) -> Sums {
        let mut sums = Sums::default();
        self.users.values().for_each(|record| sums.count(record));
        sums
    }

    /// The terms of the invariant.
    pub fn audit(&self) -> Audit {
        let is_warm = self.stock.is_some();
        // A cold shard's sums are meaningless.
        let mut sums = match is_warm {
            true => self.evicted.clone(),
            false => Sums::default(),
        };
        let users = self.users.values().filter(|_| is_warm);
        users.for_each(|record| sums.count(record));
        let transfers = self.transfers.iter();
        Audit {
            stock: self.stock,
            version: if is_warm { self.version } else { 0 },
            open: sums.open,
            held: sums.held,
            bought: sums.bought,
            deferred: sums.deferred,
            checksum: sums.checksum,
            mark: if is_warm { self.mark } else { 0 },
            epoch: self.epoch,
            sequence: self.sequence,
            records: self.records(),
            deadlines: self.pending.len() as u64,
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
            change: self.change,
        }
    }
}
