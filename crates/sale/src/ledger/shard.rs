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
    /// What Redis' clock shows, in microseconds.
    clock_us: u64,
    stock: Option<i64>,
    epoch: i64,
    sequence: u64,
    /// One more with each change of the terms.
    version: u64,
    users: BTreeMap<UserId, Record>,
    /// The deadlines of open claims, in milliseconds: as many as claims, unless a key was evicted.
    pending: BTreeMap<UserId, u64>,
    /// What the sums still count, and no key holds any more.
    evicted: Sums,
    /// Which claim each attempt with a key was granted. (Redis forgets them after a day.)
    attempts: BTreeMap<(UserId, AttemptTag), u64>,
    reserved: BTreeSet<UserId>,
    blocked: BTreeSet<UserId>,
    /// By target. One at a time for each, so that the target need remember only the last id.
    transfers: BTreeMap<u32, (Transfer, u64)>,
    /// The last transfer that came, by lender.
    deposits: BTreeMap<u32, u64>,
    /// The last change of the sale's stock, with what came of it here.
    change: StockChange,
    /// How many changes of orders it was told of. Objects that were stored before it was counted have none.
    #[serde(default)]
    mark: u64,
    /// Who rebuilds it.
    rebuild: Option<Rebuild>,
}

/// A rebuild under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rebuild {
    token: String,
    /// Until when nobody else may begin one.
    until_us: u64,
    lease_ms: u64,
}

/// Sums over users, as Redis keeps them.
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

    /// What `sums` have more than these.
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

/// A key that Redis may be made to forget, by its own settings or by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictedKey {
    /// The open claims, with their users' orders.
    Claims,
    /// The deadlines of open claims.
    Pending,
    /// The orders of users who hold no claim, of one bucket.
    Bought(u32),
}

/// Stock and what is added to it fit: a sale has at most a billion units.
fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

impl ShardLedger {
    /// Redis' clock shows this time from now on.
    pub fn set_clock_us(&mut self, now_us: u64) {
        self.clock_us = now_us;
    }

    fn now_ms(&self) -> u64 {
        self.clock_us / 1_000
    }

    /// Puts `units` on a cold shard, which is in use from then on: one that was never, or the one that the rebuild of
    /// this token ends with. Returns whether it did.
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
            return match is_other && u64::from(terms.user_cap) > record.held {
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
        self.change_stock(-signed(wanted));
        self.version += 1;
        let reply = self.grant(user, record, terms);
        if let Some(attempt) = attempt {
            self.attempts.insert(attempt, self.sequence);
        }
        reply
    }

    /// This attempt was granted the claim of this generation, as far as SQL knows.
    pub fn note_attempt(&mut self, user: &UserId, tag: AttemptTag, generation: u64) {
        self.attempts.insert((user.clone(), tag), generation);
    }

    fn refused(&self, user: &UserId, checks: Checks) -> Option<ClaimReply> {
        if checks.blocked && self.blocked.contains(user) {
            return Some(ClaimReply::Blocked);
        }
        (checks.reserved && !self.reserved.contains(user)).then_some(ClaimReply::NotReserved)
    }

    /// The users with an open claim.
    fn records(&self) -> u64 {
        self.users.values().filter(|record| record.held > 0).count() as u64
    }

    /// Open claims as the sums count them.
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

    /// The time as a floor keeps numbers from coming twice, whatever is lost.
    fn next_in_sequence(&mut self) -> u64 {
        self.sequence = (self.sequence + 1).max(self.clock_us);
        self.sequence
    }

    fn raise_epoch(&mut self) {
        self.epoch = (self.epoch + 1).max(signed(self.clock_us));
    }

    /// Units come, or go. The epoch is another whenever some come, and whenever the last one goes.
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

    /// Ends the user's open claim; returns the units that it held.
    fn close(&mut self, user: &UserId) -> u64 {
        self.pending.remove(user);
        self.users.get_mut(user).map_or(0, Record::close)
    }

    /// A claim became an order.
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

    /// An order that was to be deducted at payment is paid. Its units leave the stock, be there any
    /// or not: SQL has decided that they are sold. If its claim is still open, its settlement was
    /// overtaken, and the units that it holds are the order's.
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

    /// An order, or the claim that SQL has made one of, is cancelled: what it took from the stock
    /// comes back.
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

    /// A claim, or one delivery of it, is given back.
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

    /// Units leave for another shard: the transfer that is open to it already, or at least `wanted`
    /// and at least half of what is there, but no more than all.
    pub fn lend(&mut self, to_shard: u32, wanted: u64) -> LendReply {
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
        let id = self.next_in_sequence();
        let transfer = Transfer { id, units };
        self.change_stock(-signed(units));
        self.version += 1;
        self.transfers.insert(to_shard, (transfer, self.now_ms()));
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
        self.change_stock(signed(transfer.units));
        self.version += 1;
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

    /// At most `limit` claims whose deadline has passed for `grace_ms`, the earliest first. A deadline whose claim was
    /// evicted is removed.
    pub fn overdue(&mut self, grace_ms: u64, limit: usize) -> Vec<Overdue> {
        let due_ms = self.now_ms().saturating_sub(grace_ms);
        self.open_until(due_ms, limit)
    }

    /// All open claims that have a deadline, the earliest first.
    pub fn open(&mut self) -> Vec<Overdue> {
        self.open_until(u64::MAX, usize::MAX)
    }

    fn open_until(&mut self, due_ms: u64, limit: usize) -> Vec<Overdue> {
        let pending = self.pending.iter();
        let due = pending.filter(|(_, deadline_ms)| **deadline_ms <= due_ms);
        let mut due: Vec<_> = due.map(|(user, at_ms)| (user.clone(), *at_ms)).collect();
        // Users are in order already, and the sort is stable.
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

    /// Adds `units` to the stock, or takes them, if the shard is as an audit has seen it. Puts right
    /// what a loss of data has made wrong. Returns whether it did.
    pub fn restock(&mut self, units: i64, seen: &Audit) -> bool {
        let is_unchanged = self.epoch == seen.epoch
            && self.sequence == seen.sequence
            && self.version == seen.version;
        match self.stock {
            Some(stock) if is_unchanged && (units > 0 || stock + units >= 0) => {
                self.change_stock(units);
                self.version += 1;
                true
            }
            _ => false,
        }
    }

    /// Sets the mark to what SQL counts, if the shard is as an audit has seen it and has a lower one. Returns whether it
    /// did.
    pub fn raise_mark(&mut self, mark: u64, seen: &Audit) -> bool {
        let is_unchanged = self.stock.is_some()
            && self.epoch == seen.epoch
            && self.sequence == seen.sequence
            && self.version == seen.version;
        let raises = is_unchanged && self.mark < mark;
        if raises {
            self.mark = mark;
        }
        raises
    }

    /// An operator adds units to the sale, or withdraws some that nobody holds. The shard remembers what came of it, so the
    /// same change again changes nothing.
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

    /// Redis forgets what makes the shard cold, and nothing else.
    pub fn lose_stock(&mut self) {
        self.stock = None;
    }

    /// Redis forgets a key, and goes on.
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

    /// Begins the rebuild of a cold shard: forgets all claims, orders and transfers of it. Nobody else may begin one for
    /// `lease_ms`, nor for as long after each restored order.
    pub fn wipe(&mut self, token: &str, lease_ms: u64) -> WipeReply {
        if self.stock.is_some() {
            return WipeReply::Warm;
        }
        let other = self.rebuild.as_ref().filter(|known| known.token != token);
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

    /// Goes on with the rebuild of a cold shard. Returns whether it is still this one's.
    pub fn renew(&mut self, token: &str) -> bool {
        // Only a cold shard has one.
        let rebuild = self.rebuild.as_mut().filter(|known| known.token == token);
        let Some(rebuild) = rebuild else { return false };
        rebuild.until_us = self.clock_us + rebuild.lease_ms * 1_000;
        true
    }

    /// Writes the orders of a user on a cold shard, as SQL knows them, oldest first. Returns whether it did: another may
    /// rebuild the shard meanwhile.
    pub fn restore(&mut self, token: &str, user: &UserId, orders: &[OrderEntry]) -> bool {
        if !self.renew(token) {
            return false;
        }
        let generation = orders.last().map_or(0, |order| order.generation);
        self.sequence = self.sequence.max(generation);
        self.users.insert(user.clone(), Record::from_orders(orders));
        true
    }

    /// Writes the orders of a user as SQL knows them, if they are as they were `seen` and no claim is open. Returns
    /// whether it did.
    pub fn correct(&mut self, user: &UserId, seen: &[OrderEntry], orders: &[OrderEntry]) -> bool {
        let known = self.users.get(user).cloned().unwrap_or_default();
        if self.stock.is_none() || known.held > 0 || known.orders != seen {
            return false;
        }
        self.users.insert(user.clone(), Record::from_orders(orders));
        self.forget_if_blank(user);
        self.version += 1;
        true
    }

    /// The orders of a user who holds no claim; `None` for one who does.
    pub fn orders_of(&self, user: &UserId) -> Option<Vec<OrderEntry>> {
        let known = self.users.get(user).cloned().unwrap_or_default();
        (known.held == 0).then_some(known.orders)
    }

    /// The users who have orders and hold no claim.
    pub fn settled(&self) -> impl Iterator<Item = (&UserId, &[OrderEntry])> {
        let users = self.users.iter().filter(|(_, record)| record.held == 0);
        users.map(|(user, record)| (user, record.orders.as_slice()))
    }

    /// A claim whose deadline was evicted gets it again.
    pub fn restore_deadline(&mut self, user: &UserId, deadline_ms: u64) {
        self.pending.entry(user.clone()).or_insert(deadline_ms);
    }

    /// The users with an open claim, each with its units and its deadline in milliseconds.
    pub fn claimed(&self) -> impl Iterator<Item = (&UserId, u64, u64)> {
        let open = self.users.iter().filter(|(_, record)| record.held > 0);
        open.map(|(user, record)| (user, record.held, record.deadline_ms))
    }

    /// Writes these sums, if the shard is still of their version. Returns whether it did.
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
        // A cold shard's sums say nothing.
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
