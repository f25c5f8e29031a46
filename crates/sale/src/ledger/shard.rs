//! The model of one shard.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::record::Record;
use super::{
    Audit, Checks, ClaimReply, ClaimTerms, Deduction, DepositReply, Followed, LendReply,
    OpenTransfer, OrderEntry, Overdue, ReleaseKind, ReleaseReply, SettleReply, ShardProbe,
    Transfer, WipeReply, checksum_of,
};
use crate::idempotency::AttemptTag;
use weir_base::id::UserId;

/// One shard's part of a sale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLedger {
    /// What Redis' clock shows, in microseconds.
    clock_us: u64,
    stock: Option<i64>,
    epoch: i64,
    sequence: u64,
    /// One more with each change of the terms.
    version: u64,
    users: BTreeMap<UserId, Record>,
    /// Which claim each attempt with a key was granted. (Redis forgets them after a day.)
    attempts: BTreeMap<(UserId, AttemptTag), u64>,
    reserved: BTreeSet<UserId>,
    blocked: BTreeSet<UserId>,
    /// By target. One at a time for each, so that the target need remember only the last id.
    transfers: BTreeMap<u32, (Transfer, u64)>,
    /// The last transfer that came, by lender.
    deposits: BTreeMap<u32, u64>,
    /// Who rebuilds it.
    rebuild: Option<Rebuild>,
}

/// A rebuild under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rebuild {
    token: String,
    /// Until when nobody else may begin one.
    until_us: u64,
    lease_ms: u64,
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
            generation: self.next_in_sequence(),
            held: u64::from(terms.quantity),
            deadline_ms: self.now_ms() + terms.ttl_ms,
            orders: record.orders,
            ..Record::default()
        };
        let held = granted.deliver();
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

    /// A claim became an order.
    pub fn settle(&mut self, user: &UserId, generation: u64, deduction: Deduction) -> SettleReply {
        let Some(record) = self.open_record(user, generation) else {
            return SettleReply::Nothing;
        };
        let units = record.close();
        record.orders.push(OrderEntry {
            generation,
            units,
            deduction,
        });
        self.version += 1;
        if deduction == Deduction::AtPayment {
            self.change_stock(signed(units));
        }
        SettleReply::Settled
    }

    /// An order that was to be deducted at payment is paid. Its units leave the stock, be there any
    /// or not: SQL has decided that they are sold. If its claim is still open, its settlement was
    /// overtaken, and the units that it holds are the order's.
    pub fn charge(&mut self, user: &UserId, generation: u64) -> Followed {
        if self.stock.is_none() {
            return Followed::Cold;
        }
        if self.settle(user, generation, Deduction::AtOrder) == SettleReply::Settled {
            return Followed::Done;
        }
        let unpaid = |order: &&mut OrderEntry| {
            order.generation == generation && order.deduction == Deduction::AtPayment
        };
        let orders = self.users.get_mut(user).map(|record| &mut record.orders);
        let Some(order) = orders.and_then(|orders| orders.iter_mut().find(unpaid)) else {
            return Followed::Nothing;
        };
        order.deduction = Deduction::AtOrder;
        let units = signed(order.units);
        self.version += 1;
        self.change_stock(-units);
        Followed::Done
    }

    /// An order, or the claim that SQL has made one of, is cancelled: what it took from the stock
    /// comes back.
    pub fn cancel(&mut self, user: &UserId, generation: u64) -> Followed {
        if self.stock.is_none() {
            return Followed::Cold;
        }
        let Some(record) = self.users.get_mut(user) else {
            return Followed::Nothing;
        };
        let units = if record.is_open(generation) {
            record.close()
        } else {
            match record.take_order(generation) {
                Some(order) if order.deduction == Deduction::AtOrder => order.units,
                Some(_) => 0,
                None => return Followed::Nothing,
            }
        };
        self.forget_if_blank(user);
        self.version += 1;
        self.change_stock(signed(units));
        Followed::Done
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
        let units = record.close();
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

    /// At most `limit` claims whose deadline has passed for `grace_ms`, the earliest first.
    pub fn overdue(&self, grace_ms: u64, limit: usize) -> Vec<Overdue> {
        let due_ms = self.now_ms().saturating_sub(grace_ms);
        let mut due = self.open_until(due_ms);
        due.truncate(limit);
        due
    }

    /// All open claims, the earliest deadline first.
    pub fn open(&self) -> Vec<Overdue> {
        self.open_until(u64::MAX)
    }

    fn open_until(&self, due_ms: u64) -> Vec<Overdue> {
        let mut due: Vec<Overdue> = self
            .users
            .iter()
            .filter(|(_, record)| record.held > 0 && record.deadline_ms <= due_ms)
            .map(|(user, record)| Overdue {
                user: user.clone(),
                held: record.as_open_claim(),
            })
            .collect();
        // Users are in order already, and the sort is stable.
        due.sort_by_key(|claim| claim.held.deadline_ms);
        due
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

    /// Redis forgets what makes the shard cold, and nothing else.
    pub fn lose_stock(&mut self) {
        self.stock = None;
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
        self.users.insert(user.clone(), Record::of(orders));
        true
    }

    /// Writes the orders of a user as SQL knows them, if they are as they were `seen` and no claim is open. Returns
    /// whether it did.
    pub fn correct(&mut self, user: &UserId, seen: &[OrderEntry], orders: &[OrderEntry]) -> bool {
        let known = self.users.get(user).cloned().unwrap_or_default();
        if self.stock.is_none() || known.held > 0 || known.orders != seen {
            return false;
        }
        self.users.insert(user.clone(), Record::of(orders));
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

    /// Notes open claims and what they hold anew: the model adds them up whenever it is asked, so they are right
    /// already. Returns whether the shard is as it was at this version.
    pub fn recount(&mut self, version: u64) -> bool {
        let is_unchanged = self.stock.is_some() && self.version == version;
        self.version += u64::from(is_unchanged);
        is_unchanged
    }

    fn checksum(&self) -> u64 {
        let orders = self.users.values().flat_map(|record| &record.orders);
        orders.fold(0, |sum, order| checksum_of(sum, order.generation, true))
    }

    /// The terms of the invariant.
    pub fn audit(&self) -> Audit {
        let is_warm = self.stock.is_some();
        let sum = |of: fn(&Record) -> u64| match is_warm {
            true => self.users.values().map(of).sum(),
            false => 0,
        };
        let transfers = self.transfers.iter();
        Audit {
            stock: self.stock,
            version: if is_warm { self.version } else { 0 },
            open: sum(|record| u64::from(record.held > 0)),
            held: sum(|record| record.held),
            bought: sum(|record| record.ordered_so(Deduction::AtOrder)),
            deferred: sum(|record| record.ordered_so(Deduction::AtPayment)),
            checksum: if is_warm { self.checksum() } else { 0 },
            epoch: self.epoch,
            sequence: self.sequence,
            records: self.open_claims(),
            deadlines: self.open_claims(),
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
