//! Compares the Lua with the model: the same operations on a real Redis and on [`ShardLedger`], every reply compared,
//! and the stock balance checked after each.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Redis, Server};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir_base::id::{SaleId, UserId};
use weir_base::resp::Value;
use weir_edge::shard::command::prefix_of;
use weir_edge::shard::{Shard, ShardCommand};
use weir_sale::idempotency::{AttemptTag, IdempotencyKey};
use weir_sale::ledger::{
    Checks, ClaimReply, ClaimTerms, Deduction, EvictedKey, LendReply, OrderEntry, ReleaseKind,
    SettleReply, ShardLedger, StockChange, StockChanged, Transfer,
};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::{
    audit, cancel, charge, claim, correct, deposit, lend, overdue, probe, raise_mark, record,
    recount, release, restock, restore, settle, settle_transfer, stock_change, warm, wipe,
};
use weir_sale::shard::bucket;
use weir_scripts::{Call, Script, gateway_report, tally};

const TTL_MS: u64 = 500;

/// The scripts of each crate, by folder.
const DOMAINS: [(&str, &[&Script]); 7] = [
    ("fitment", weir_fitment::redis::SCRIPTS),
    ("history", weir_history::redis::SCRIPTS),
    ("limit", weir_limit::redis::SCRIPTS),
    ("link", weir_link::redis::SCRIPTS),
    ("room", weir_room::redis::SCRIPTS),
    ("sale", weir_sale::redis::SCRIPTS),
    ("scripts", &[&gateway_report::SCRIPT, &tally::SCRIPT]),
];

/// One shard, in Redis and in the model.
struct Pair {
    redis: Redis,
    keys: ShardKeys,
    model: ShardLedger,
    /// The same in an object, until Redis loses data: objects lose none.
    shard: Option<Shard>,
    now_us: u64,
}

impl Pair {
    /// A cold shard that no other test uses.
    fn cold(server: &Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sale-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut pair = Self {
            redis: server.connect(),
            keys: ShardKeys::new("model", &SaleId::new(name).unwrap(), 0),
            model: ShardLedger::default(),
            shard: None,
            now_us: START_US,
        };
        pair.shard = Some(Shard::default());
        pair.set_clock_us(START_US);
        pair
    }

    fn warmed(server: &Server, units: u64) -> Self {
        let mut pair = Self::cold(server);
        assert!(pair.warm(units, None));
        pair
    }

    fn set_clock_us(&mut self, now_us: u64) {
        self.redis.set_clock_us(now_us);
        self.model.set_clock_us(now_us);
        self.now_us = now_us;
    }

    /// The reply of Redis; the object must give the same.
    fn run(&mut self, call: &Call) -> Value {
        let reply = self.redis.run(call);
        let (keys, args) = (
            Vec::from_iter(call.keys.iter()),
            Vec::from_iter(call.args.iter()),
        );
        let command = ShardCommand::from_script(call.script.name, &keys, &args).unwrap();
        assert_eq!(command.to_redis(&self.keys).as_ref(), Some(call));
        if let Some(shard) = &mut self.shard {
            let response = value_of(&shard.run(&[command], self.now_us).replies);
            assert_eq!(
                in_order(response),
                in_order(reply.clone()),
                "{}",
                call.script.name
            );
        }
        reply
    }

    fn command(&mut self, words: &[&[u8]]) -> Value {
        let reply = self.redis.command(words);
        if let Some(shard) = &mut self.shard {
            let stock = self.keys.stock();
            let command = ShardCommand::from_redis(words, prefix_of(&stock).unwrap()).unwrap();
            // Only Redis reports how many of them were new.
            let response = value_of(&shard.run(&[command], self.now_us).replies);
            assert!(
                response == reply || matches!(response, Value::Integer(_)),
                "{response:?} {reply:?}"
            );
        }
        reply
    }

    fn warm(&mut self, units: u64, token: Option<&str>) -> bool {
        let reply = self.run(&warm::call(&self.keys, units, token));
        let warmed = warm::parse(&reply).unwrap();
        assert_eq!(warmed, self.model.warm(units, token));
        warmed
    }

    /// One batch of claims, without attempt keys.
    fn claim(&mut self, users: &[UserId], terms: ClaimTerms) -> Vec<ClaimReply> {
        self.claim_for(users, &vec![None; users.len()], terms)
    }

    /// One batch of claims.
    fn claim_for(
        &mut self,
        users: &[UserId],
        attempts: &[Option<AttemptTag>],
        terms: ClaimTerms,
    ) -> Vec<ClaimReply> {
        let group = claim::Group {
            keys: self.keys.clone(),
            terms,
            users: users.iter().collect(),
            attempts: attempts.to_vec(),
        };
        let reply = self.run(&claim::call(&[group]));
        let replies =
            claim::parse(&reply, users.len()).unwrap_or_else(|e| panic!("{e}: {reply:?}"));
        let expected: Vec<_> = users
            .iter()
            .zip(attempts)
            .map(|(user, attempt)| self.model.claim_for(user, *attempt, terms))
            .collect();
        assert_eq!(replies, expected);
        replies
    }

    fn settle(&mut self, user: &UserId, generation: u64, deduction: Deduction) -> SettleReply {
        let call = settle::call(&self.keys, user, generation, deduction);
        let settled = settle::parse(&self.run(&call)).unwrap();
        assert_eq!(settled, self.model.settle(user, generation, deduction));
        settled
    }

    fn charge(&mut self, user: &UserId, generation: u64) {
        let reply = self.run(&charge::call(&self.keys, user, generation));
        let charged = charge::parse(&reply).unwrap();
        assert_eq!(charged, self.model.charge(user, generation));
    }

    fn cancel(&mut self, user: &UserId, generation: u64) {
        let reply = self.run(&cancel::call(&self.keys, user, generation));
        let cancelled = cancel::parse(&reply).unwrap();
        assert_eq!(cancelled, self.model.cancel(user, generation));
    }

    fn lend(&mut self, to_shard: u32, expected: u64) -> LendReply {
        let call = lend::call(&self.keys, to_shard, expected);
        let reply = lend::parse(&self.run(&call)).unwrap();
        assert_eq!(reply, self.model.lend(to_shard, expected));
        reply
    }

    fn deposit(&mut self, from_shard: u32, transfer: Transfer) {
        let call = deposit::call(&self.keys, from_shard, transfer);
        let reply = deposit::parse(&self.run(&call)).unwrap();
        assert_eq!(reply, self.model.deposit(from_shard, transfer));
    }

    fn settle_transfer(&mut self, to_shard: u32, id: u64) {
        let call = settle_transfer::call(&self.keys, to_shard, id);
        let settled = settle_transfer::parse(&self.run(&call)).unwrap();
        assert_eq!(settled, self.model.settle_transfer(to_shard, id));
    }

    /// Adds or removes units, with the audit of `age` changes ago.
    fn restock(&mut self, units: i64, age: u64) {
        let mut audit = self.model.audit();
        audit.version = audit.version.saturating_sub(age);
        let reply = self.run(&restock::call(&self.keys, units, &audit));
        let restocked = restock::parse(&reply).unwrap();
        let expected = self.model.restock(units, &audit);
        assert_eq!(restocked, expected);
    }

    /// Sets the mark, with the audit of `age` changes ago.
    fn raise_mark(&mut self, mark: u64, age: u64) {
        let mut audit = self.model.audit();
        audit.version = audit.version.saturating_sub(age);
        let reply = self.run(&raise_mark::call(&self.keys, mark, &audit));
        let raised = raise_mark::parse(&reply).unwrap();
        assert_eq!(raised, self.model.raise_mark(mark, &audit));
    }

    fn change(&mut self, change: StockChange) -> StockChanged {
        let reply = self.run(&stock_change::call(&self.keys, change));
        let changed = stock_change::parse(&reply).unwrap();
        assert_eq!(changed, self.model.change(change));
        changed
    }

    fn overdue(&mut self, limit: u32) {
        const GRACE_MS: u64 = 100;
        let reply = self.run(&overdue::call(&self.keys, GRACE_MS, limit));
        let due = overdue::parse(&reply).unwrap();
        assert_eq!(due, self.model.overdue(GRACE_MS, limit as usize));
    }

    /// Redis loses a key, which makes the shard cold.
    fn lose(&mut self) {
        self.redis.command(&[b"DEL", &self.keys.stock()]);
        self.model.lose_stock();
        self.shard = None;
    }

    /// Redis loses a key, which does not make the shard cold.
    fn evict(&mut self, key: EvictedKey) {
        let name = match key {
            EvictedKey::Claims => self.keys.claims(),
            EvictedKey::Pending => self.keys.pending(),
            EvictedKey::Bought(bucket) => self.keys.bought_in(bucket),
        };
        self.redis.command(&[b"DEL", &name]);
        self.model.evict(key);
        self.shard = None;
    }

    /// Restores the deadline of each open claim, and sets the sums of `age` changes ago.
    fn recount(&mut self, age: u64) {
        let claimed = self.model.claimed();
        let claimed: Vec<_> = claimed
            .map(|(user, held, at)| (user.clone(), held, at))
            .collect();
        let mut sums = self.model.audit();
        sums.version = sums.version.saturating_sub(age);
        sums.open = claimed.len() as u64;
        sums.held = claimed.iter().map(|(_, held, _)| held).sum();
        for (user, _, deadline_ms) in &claimed {
            let deadline = deadline_ms.to_string();
            let words: [&[u8]; 5] = [
                b"ZADD",
                &self.keys.pending(),
                b"NX",
                deadline.as_bytes(),
                user.as_str().as_bytes(),
            ];
            self.command(&words);
            self.model.restore_deadline(user, *deadline_ms);
        }
        let reply = self.run(&recount::call(&self.keys, &sums));
        let recounted = recount::parse(&reply).unwrap();
        assert_eq!(recounted, self.model.recount(&sums));
        if recounted {
            let audit = self.model.audit();
            assert_eq!(audit.records, audit.open);
            assert!(audit.deadlines >= audit.open, "each claim has one");
        }
    }

    /// Replaces a user's orders, whether the audit has seen them or not.
    fn correct(&mut self, user: &UserId, is_seen: bool, count: u64) {
        let entries = self.model.orders_of(user).filter(|_| is_seen);
        let (entries, orders) = (entries.unwrap_or_default(), orders_from(1, count));
        let call = correct::call(&self.keys, user, &entries, &orders);
        let corrected = correct::parse(&self.run(&call)).unwrap();
        assert_eq!(corrected, self.model.correct(user, &entries, &orders));
    }

    /// Starts a rebuild of the shard.
    fn wipe(&mut self, token: &str) {
        const LEASE_MS: u64 = 200;
        let reply = self.run(&wipe::call(&self.keys, token, LEASE_MS));
        let expected = self.model.wipe(token, LEASE_MS);
        assert_eq!(wipe::parse(&reply).unwrap(), expected);
    }

    /// Restores two orders of each of `users`.
    fn restore(&mut self, token: &str, users: &[UserId], generation: u64) {
        let orders = orders_from(generation, 2);
        let named: Vec<(&UserId, &[OrderEntry])> =
            users.iter().map(|user| (user, &*orders)).collect();
        let reply = self.run(&restore::call(&self.keys, token, &named));
        let restored = restore::parse(&reply).unwrap();
        assert_eq!(restored, self.model.renew(token));
        for user in users {
            assert_eq!(restored, self.model.restore(token, user, &orders));
        }
    }

    fn mark(&mut self, user: &UserId, mark: UserMark) {
        let set = match mark {
            UserMark::Reserve => self.keys.reserved(bucket(user)),
            UserMark::Block | UserMark::Unblock => self.keys.blocked(bucket(user)),
        };
        let command: &[u8] = match mark {
            UserMark::Unblock => b"SREM",
            _ => b"SADD",
        };
        self.command(&[command, &set, user.as_str().as_bytes()]);
        match mark {
            UserMark::Reserve => self.model.reserve(user),
            UserMark::Block => self.model.block(user, true),
            UserMark::Unblock => self.model.block(user, false),
        }
    }

    fn release(&mut self, kind: ReleaseKind, claims: &[(UserId, u64)]) {
        let named: Vec<_> = claims.iter().map(|(user, g)| (user, *g, kind)).collect();
        let reply = self.run(&release::call(&self.keys, &named));
        let replies = release::parse(&reply, claims.len()).unwrap();
        let model = &mut self.model;
        let expected: Vec<_> = claims
            .iter()
            .map(|(user, g)| model.release(user, *g, kind))
            .collect();
        assert_eq!(replies, expected);
    }

    /// Compares the stock balances.
    fn check_books(&mut self) {
        let reply = self.run(&audit::call(&self.keys));
        let balance = audit::parse(&reply).unwrap();
        assert_eq!(balance, self.model.audit());
        let reply = self.run(&probe::call(std::slice::from_ref(&self.keys)));
        let parsed = probe::parse(&reply, 1).unwrap()[0];
        let expected = self.model.probe();
        assert_eq!(parsed.stock, expected.stock);
        if parsed.stock.is_some() {
            assert_eq!(parsed, expected);
        }
        let settled = self.model.settled();
        let settled: Vec<_> = settled
            .map(|(user, orders)| (user.clone(), orders.to_vec()))
            .collect();
        for (user, orders) in settled {
            let key = self.keys.bought_in(bucket(&user));
            let Value::Bulk(text) = self.command(&[b"HGET", &key, user.as_str().as_bytes()]) else {
                panic!("{user} has no orders in Redis");
            };
            assert_eq!(record::read_orders(&text), Some(orders));
        }
    }
}

fn value_of(reply: &[u8]) -> Value {
    weir_base::resp::decode(reply).unwrap().0
}

/// Sorts replies of Redis' unordered hashes.
fn in_order(value: Value) -> Value {
    let Value::Array(mut values) = value else {
        return value;
    };
    let is_hash = values.iter().all(|value| matches!(value, Value::Bulk(_)));
    if is_hash && values.len() > 2 && values.len().is_multiple_of(2) {
        let mut pairs: Vec<_> = values.chunks(2).map(<[Value]>::to_vec).collect();
        pairs.sort_by_key(|pair| format!("{pair:?}"));
        return Value::Array(pairs.concat());
    }
    values = values.into_iter().map(in_order).collect();
    Value::Array(values)
}

/// Orders of these generations, each with another deduction than the previous one.
fn orders_from(generation: u64, count: u64) -> Vec<OrderEntry> {
    let order = |n| OrderEntry {
        generation: generation + n,
        units: n + 1,
        deduction: [Deduction::AtOrder, Deduction::AtPayment][n as usize % 2],
    };
    (0..count).map(order).collect()
}

fn user(n: u8) -> UserId {
    UserId::new(format!("user-{n}")).unwrap()
}

fn terms(user_cap: u32, quantity: u32) -> ClaimTerms {
    ClaimTerms {
        ttl_ms: TTL_MS,
        user_cap,
        quantity,
        checks: Checks::default(),
    }
}

#[derive(Clone, Copy, Debug)]
enum UserMark {
    Reserve,
    Block,
    Unblock,
}

fn tag(key: u8) -> AttemptTag {
    IdempotencyKey::read(&[b'a' + key]).unwrap().tag()
}

#[derive(Clone, Debug)]
enum ModelOperation {
    Claim {
        users: Vec<u8>,
        /// The attempt key of each request, if any.
        attempts: Vec<Option<u8>>,
        quantity: u32,
        checks: Checks,
    },
    /// Settles the last claim of a user, or one that never existed; likewise the next two.
    Settle(u8, u64, Deduction),
    Charge(u8, u64),
    Cancel(u8, u64),
    Release {
        users: Vec<u8>,
        kind: ReleaseKind,
        off_by: u64,
    },
    Mark(u8, UserMark),
    Lend(u32, u64),
    /// From this shard, this transfer.
    Deposit(u32, Transfer),
    /// To this shard, the last transfer's id or another.
    SettleTransfer(u32, u64),
    Restock(i64, u64),
    RaiseMark(u64, u64),
    /// The change with this number, or an earlier one.
    Change(StockChange),
    Overdue(u32),
    Correct(u8, bool, u64),
    Lose,
    Evict(EvictedKey),
    Recount(u64),
    /// One of two rebuilders.
    Wipe(u8),
    Restore(u8, Vec<u8>),
    Warm(u64, Option<u8>),
    Pass(i64),
}

fn any_op() -> impl Strategy<Value = ModelOperation> {
    let users = || prop::collection::vec(0..6_u8, 1..8);
    let kind = prop_oneof![
        (0..4_u32).prop_map(ReleaseKind::Delivery),
        Just(ReleaseKind::Decided),
        Just(ReleaseKind::Void),
    ];
    let deduction = prop_oneof![3 => Just(Deduction::AtOrder), 2 => Just(Deduction::AtPayment)];
    let mark = prop_oneof![
        Just(UserMark::Reserve),
        Just(UserMark::Block),
        Just(UserMark::Unblock)
    ];
    let yes_or_no = || prop::bool::weighted(0.2);
    let checks =
        (yes_or_no(), yes_or_no(), yes_or_no()).prop_map(|(blocked, reserved, drain)| Checks {
            blocked,
            reserved,
            drain,
        });
    let attempt = prop_oneof![3 => Just(None), 2 => (0..3_u8).prop_map(Some)];
    let attempts = prop_oneof![
        1 => Just(vec![None; 8]),
        2 => prop::collection::vec(attempt, 8),
    ];
    // Mostly the right generation.
    let off_by = || prop_oneof![4 => Just(0_u64), 1 => 1..3_u64];
    let claim = || (0..6_u8, off_by());
    let transfer = (1..6_u64, 1..4_u64).prop_map(|(id, units)| Transfer { id, units });
    prop_oneof![
        6 => (users(), attempts, 1..3_u32, checks)
            .prop_map(|(users, attempts, quantity, checks)| ModelOperation::Claim { users, attempts, quantity, checks }),
        4 => (claim(), deduction).prop_map(|((user, off_by), d)| ModelOperation::Settle(user, off_by, d)),
        2 => claim().prop_map(|(user, off_by)| ModelOperation::Charge(user, off_by)),
        2 => claim().prop_map(|(user, off_by)| ModelOperation::Cancel(user, off_by)),
        3 => (users(), kind, off_by()).prop_map(|(users, kind, off_by)| ModelOperation::Release { users, kind, off_by }),
        2 => (0..6_u8, mark).prop_map(|(user, mark)| ModelOperation::Mark(user, mark)),
        2 => (0..3_u32, 0..4_u64).prop_map(|(to, expected)| ModelOperation::Lend(to, expected)),
        2 => (0..3_u32, transfer).prop_map(|(from, transfer)| ModelOperation::Deposit(from, transfer)),
        2 => (0..3_u32, off_by()).prop_map(|(to, off_by)| ModelOperation::SettleTransfer(to, off_by)),
        1 => (-3..4_i64, prop_oneof![3 => Just(0_u64), 1 => Just(1)])
            .prop_map(|(units, age)| ModelOperation::Restock(units, age)),
        1 => (0..9_u64, prop_oneof![3 => Just(0_u64), 1 => Just(1)])
            .prop_map(|(mark, age)| ModelOperation::RaiseMark(mark, age)),
        2 => (1..5_u64, -5..6_i64)
            .prop_map(|(number, units)| ModelOperation::Change(StockChange { number, units })),
        1 => (0..5_u32).prop_map(ModelOperation::Overdue),
        1 => (0..6_u8, yes_or_no(), 0..3_u64).prop_map(|(user, not, count)| ModelOperation::Correct(user, !not, count)),
        1 => Just(ModelOperation::Lose),
        1 => evicted_key().prop_map(ModelOperation::Evict),
        1 => off_by().prop_map(ModelOperation::Recount),
        2 => (0..2_u8).prop_map(ModelOperation::Wipe),
        2 => (0..2_u8, prop::collection::btree_set(0..6_u8, 0..4))
            .prop_map(|(subject, users)| ModelOperation::Restore(subject, users.into_iter().collect())),
        2 => (0..5_u64, prop::option::of(0..2_u8)).prop_map(|(units, subject)| ModelOperation::Warm(units, subject)),
        1 => (-50..800_i64).prop_map(ModelOperation::Pass),
    ]
}

fn evicted_key() -> impl Strategy<Value = EvictedKey> {
    prop_oneof![
        Just(EvictedKey::Claims),
        Just(EvictedKey::Pending),
        (0..6_u8).prop_map(|n| EvictedKey::Bought(bucket(&user(n)))),
    ]
}

/// The tokens of the two rebuilders.
const TOKENS: [&str; 2] = ["one", "other"];

/// The start time of a history, in microseconds since the Unix epoch.
const START_US: u64 = 1_700_000_000_000_000;

/// The state of a history: the last generation of each user, the last transfer, the time.
struct Story {
    user_cap: u32,
    now_us: u64,
    generations: std::collections::BTreeMap<u8, u64>,
    transferred: u64,
}

impl Story {
    fn note(&mut self, users: &[u8], replies: &[ClaimReply]) {
        for (user, reply) in users.iter().zip(replies) {
            if let ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) = reply {
                self.generations.insert(*user, held.generation);
            }
        }
    }

    fn generation(&self, user: u8, off_by: u64) -> u64 {
        self.generations.get(&user).copied().unwrap_or(1) + off_by
    }

    fn run(&mut self, pair: &mut Pair, op: ModelOperation) {
        let names = |users: &[u8]| -> Vec<UserId> { users.iter().map(|&n| user(n)).collect() };
        match op {
            ModelOperation::Claim {
                users,
                attempts,
                quantity,
                checks,
            } => {
                let terms = ClaimTerms {
                    checks,
                    ..terms(self.user_cap, quantity)
                };
                let attempts: Vec<_> = attempts.iter().map(|key| key.map(tag)).collect();
                let attempts = &attempts[..users.len()];
                let replies = pair.claim_for(&names(&users), attempts, terms);
                self.note(&users, &replies);
            }
            ModelOperation::Settle(n, off_by, deduction) => {
                pair.settle(&user(n), self.generation(n, off_by), deduction);
            }
            ModelOperation::Charge(n, off_by) => pair.charge(&user(n), self.generation(n, off_by)),
            ModelOperation::Cancel(n, off_by) => pair.cancel(&user(n), self.generation(n, off_by)),
            ModelOperation::Release {
                users,
                kind,
                off_by,
            } => {
                let claim = |&n: &u8| (user(n), self.generation(n, off_by));
                let claims: Vec<_> = users.iter().map(claim).collect();
                pair.release(kind, &claims);
            }
            ModelOperation::Mark(n, mark) => pair.mark(&user(n), mark),
            ModelOperation::Lend(to_shard, expected) => {
                if let LendReply::Lent(transferred) = pair.lend(to_shard, expected) {
                    self.transferred = transferred.id;
                }
            }
            ModelOperation::Deposit(from_shard, transfer) => pair.deposit(from_shard, transfer),
            ModelOperation::SettleTransfer(to_shard, off_by) => {
                pair.settle_transfer(to_shard, self.transferred + off_by);
            }
            ModelOperation::Restock(units, age) => pair.restock(units, age),
            ModelOperation::RaiseMark(mark, age) => pair.raise_mark(mark, age),
            ModelOperation::Change(change) => {
                pair.change(change);
            }
            ModelOperation::Overdue(limit) => pair.overdue(limit),
            ModelOperation::Correct(n, is_seen, count) => pair.correct(&user(n), is_seen, count),
            ModelOperation::Lose => pair.lose(),
            ModelOperation::Evict(key) => pair.evict(key),
            ModelOperation::Recount(age) => pair.recount(age),
            ModelOperation::Wipe(subject) => pair.wipe(TOKENS[usize::from(subject)]),
            ModelOperation::Restore(subject, users) => {
                let token = TOKENS[usize::from(subject)];
                pair.restore(token, &names(&users), self.now_us);
            }
            ModelOperation::Warm(units, subject) => {
                pair.warm(units, subject.map(|subject| TOKENS[usize::from(subject)]));
            }
            ModelOperation::Pass(ms) => {
                self.now_us = self.now_us.saturating_add_signed(ms * 1_000);
                pair.set_clock_us(self.now_us);
            }
        }
    }
}

#[test]
fn lua_and_model_return_equal_replies() {
    let server = Server::start();
    let config = ProptestConfig {
        cases: 2_000,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let history = (
        prop::collection::vec(any_op(), 1..40),
        1..4_u32,
        any::<bool>(),
        // Each call needs the digests of all scripts, so only some histories use bytes.
        prop::bool::weighted(0.1),
    );
    let outcome =
        TestRunner::new(config).run(&history, |(ops, user_cap, starts_cold, has_shard)| {
            let mut pair = Pair::cold(&server);
            pair.shard = pair.shard.filter(|_| has_shard);
            if !starts_cold {
                assert!(pair.warm(4, None));
            }
            let mut story = Story {
                user_cap,
                now_us: START_US,
                generations: std::collections::BTreeMap::new(),
                transferred: 0,
            };
            for op in ops {
                story.run(&mut pair, op);
                pair.check_books();
            }
            Ok(())
        });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn keyed_attempt_always_gets_the_same_claim_and_order() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 2);
    let (alice, [first, second]) = ([user(1)], [1, 2].map(|n| [Some(tag(n))]));
    let claim = |pair: &mut Pair, key| pair.claim_for(&alice, key, terms(2, 1))[0];
    let ClaimReply::Granted(held) = claim(&mut pair, &first) else {
        panic!("not granted");
    };
    assert!(matches!(
        claim(&mut pair, &first),
        ClaimReply::GrantedAgain(again) if again.generation == held.generation
    ));
    let other = claim(&mut pair, &second);
    assert_eq!(
        other,
        ClaimReply::InProgress,
        "it could become an order of either"
    );
    pair.settle(&alice[0], held.generation, Deduction::AtOrder);
    let ordered = ClaimReply::Ordered {
        generation: held.generation,
        quantity: 1,
    };
    assert_eq!(claim(&mut pair, &first), ordered);
    let ClaimReply::Granted(next) = claim(&mut pair, &second) else {
        panic!("the cap allows for two");
    };
    pair.settle(&alice[0], next.generation, Deduction::AtOrder);
    assert_eq!(claim(&mut pair, &first), ordered, "though nothing is left");
    pair.mark(&alice[0], UserMark::Block);
    assert_eq!(
        claim(&mut pair, &first),
        ordered,
        "though the user is blocked since"
    );
    assert_eq!(pair.model.audit().stock, Some(0));
    let key = pair.keys.attempt(&alice[0], tag(1));
    let Value::Integer(ttl_ms) = pair.redis.command(&[b"PTTL", &key]) else {
        panic!("no integer");
    };
    let day_ms = i64::try_from(claim::ATTEMPT_TTL_MS).unwrap();
    assert!((day_ms - 60_000..=day_ms).contains(&ttl_ms), "{ttl_ms}");
}

#[test]
fn stock_change_applies_once_and_takes_only_free_units() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 3);
    let change = |number, units| StockChange { number, units };
    assert!(matches!(
        pair.claim(&[user(1)], terms(1, 1))[..],
        [ClaimReply::Granted(_)]
    ));
    // The size of real clock values, as the origin numbers them.
    let first = 1_700_000_000_000;
    assert_eq!(pair.change(change(first, -9)), StockChanged::Done(-2));
    assert_eq!(pair.change(change(first, -9)), StockChanged::Done(-2));
    let audit = pair.model.audit();
    assert_eq!((audit.stock, audit.held), (Some(0), 1));
    let emptied = audit.epoch;
    assert_eq!(
        pair.change(change(first + 1, 1_000_000_000)),
        StockChanged::Done(1_000_000_000)
    );
    assert_eq!(
        pair.change(change(first, -9)),
        StockChanged::Over,
        "it comes late"
    );
    assert!(
        pair.model.audit().epoch > emptied,
        "gateways that saw nothing look again"
    );
    pair.check_books();
    pair.lose();
    assert_eq!(pair.change(change(first + 2, 1)), StockChanged::Cold);
    pair.check_books();
}

#[test]
fn one_call_decides_many_shards_each_from_its_own_stock() {
    let server = Server::start();
    let mut redis = server.connect();
    let sale = SaleId::new("many-shards").unwrap();
    let shards: Vec<ShardKeys> = (0..3).map(|k| ShardKeys::new("model", &sale, k)).collect();
    for (units, keys) in shards.iter().enumerate() {
        redis.run(&warm::call(keys, units as u64, None));
    }
    let users: Vec<UserId> = (0..2).map(user).collect();
    let group = |keys| claim::Group {
        keys,
        terms: terms(1, 1),
        users: users.iter().collect(),
        attempts: vec![],
    };
    let groups: Vec<_> = shards.into_iter().map(group).collect();
    let replies = claim::parse(&redis.run(&claim::call(&groups)), 6).unwrap();
    let granted: Vec<bool> = replies
        .iter()
        .map(|r| matches!(r, ClaimReply::Granted(_)))
        .collect();
    assert_eq!(granted, [false, false, true, false, true, true]);
}

#[test]
fn one_call_runs_only_the_requested_checks_of_each_shard() {
    let server = Server::start();
    let mut redis = server.connect();
    let sale = SaleId::new("checks").unwrap();
    let [blocked, reserved] = [0, 1].map(user);
    let requested = [
        (true, true),
        (false, false),
        (true, false),
        (false, true),
        (true, true),
    ];
    let group = |(shard, (is_blocked_asked, is_reserved_asked))| claim::Group {
        keys: ShardKeys::new("model", &sale, shard),
        terms: ClaimTerms {
            checks: Checks {
                blocked: is_blocked_asked,
                reserved: is_reserved_asked,
                drain: false,
            },
            ..terms(1, 1)
        },
        users: vec![&blocked, &reserved],
        // For every other shard only: requests for one shard must not affect the next.
        attempts: vec![(shard % 2 == 0).then(|| tag(1))],
    };
    let groups: Vec<_> = (0..).zip(requested).map(group).collect();
    // The first stays cold.
    for claim::Group { keys, .. } in &groups[1..] {
        redis.run(&warm::call(keys, 10, None));
        for (set, user) in [
            (keys.blocked(bucket(&blocked)), &blocked),
            (keys.reserved(bucket(&reserved)), &reserved),
        ] {
            redis.command(&[b"SADD", &set, user.as_str().as_bytes()]);
        }
    }
    let replies = claim::parse(&redis.run(&claim::call(&groups)), 10).unwrap();
    let words: Vec<&str> = replies
        .iter()
        .map(|reply| match reply {
            ClaimReply::Granted(_) => "granted",
            ClaimReply::Cold => "cold",
            ClaimReply::Blocked => "blocked",
            ClaimReply::NotReserved => "not reserved",
            other => panic!("{other:?}"),
        })
        .collect();
    let of_the_blocked: Vec<_> = words.iter().step_by(2).copied().collect();
    let of_the_reserved: Vec<_> = words.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(
        of_the_blocked,
        ["cold", "granted", "blocked", "not reserved", "blocked"]
    );
    assert_eq!(
        of_the_reserved,
        ["cold", "granted", "granted", "granted", "granted"]
    );
}

/// Two shards of ten units; the second's key `damaged` has another type. Returns the units of each after a failed claim
/// on both.
fn units_after_a_claim_on(damaged: impl Fn(&ShardKeys) -> Vec<u8>) -> [Value; 2] {
    let server = Server::start();
    let mut redis = server.connect();
    let sale = SaleId::new("damaged").unwrap();
    let shards = [0, 1].map(|k| ShardKeys::new("model", &sale, k));
    for keys in &shards {
        redis.run(&warm::call(keys, 10, None));
    }
    redis.command(&[b"SET", &damaged(&shards[1]), b"text"]);
    let user = user(0);
    let groups = shards.each_ref().map(|keys| claim::Group {
        keys: keys.clone(),
        terms: terms(1, 1),
        users: vec![&user],
        attempts: vec![],
    });
    let reply = redis.run(&claim::call(&groups));
    assert!(matches!(reply, Value::Error(_)), "{reply:?}");
    shards.map(|keys| redis.command(&[b"GET", &keys.stock()]))
}

#[test]
fn damaged_shard_creates_no_units() {
    let units = |n: &str| Value::Bulk(n.into());
    assert_eq!(
        units_after_a_claim_on(ShardKeys::claims),
        [units("10"), units("10")],
        "what cannot be read is found out before anything is written"
    );
    assert_eq!(
        units_after_a_claim_on(ShardKeys::pending),
        [units("9"), units("9")],
        "what is taken is taken, whether or not it can be written for whom"
    );
}

#[test]
fn generations_are_exact_at_real_clock_values() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 100);
    let now_us = 4_102_444_800_000_000; // the year 2100
    pair.set_clock_us(now_us);
    let users: Vec<UserId> = (0..100).map(user).collect();
    let replies = pair.claim(&users, terms(1, 1));
    let ClaimReply::Granted(last) = replies[99] else {
        panic!("{:?}", replies[99])
    };
    assert_eq!(
        (last.generation, last.deadline_ms),
        (now_us + 99, now_us / 1_000 + TTL_MS)
    );
    pair.check_books();
}

#[test]
fn full_batch_of_one_user_takes_one_unit() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 10);
    let replies = pair.claim(&vec![user(1); 64], terms(1, 1));
    assert!(matches!(replies[0], ClaimReply::Granted(_)));
    assert!(
        replies[1..]
            .iter()
            .all(|reply| matches!(reply, ClaimReply::GrantedAgain(_)))
    );
    assert_eq!(pair.model.audit().stock, Some(9));
}

/// Redis identifies a script by this digest: a wrong one would turn every EVALSHA into an EVAL.
#[test]
fn redis_and_weir_compute_the_same_script_digests() {
    let server = Server::start();
    let mut redis = server.connect();
    for script in DOMAINS.into_iter().flat_map(|(_, scripts)| scripts) {
        let loaded = redis.command(&[b"SCRIPT", b"LOAD", script.source.as_bytes()]);
        assert_eq!(
            loaded,
            Value::Bulk(script.sha1_hex().into_bytes()),
            "{}",
            script.name
        );
    }
}

#[test]
fn every_script_file_is_listed() {
    // Not scripts of engines: shared source, and the doctor's script.
    let preludes = [
        "acl_check.lua",
        "write_check.lua",
        "record.lua",
        "first_claim.lua",
        "shard.lua",
        "limit_state.lua",
        "room_state.lua",
    ];
    let is_prelude = |name: &String| preludes.contains(&name.as_str());
    for (domain, scripts) in DOMAINS {
        let folder = format!("{}/../{domain}/lua", env!("CARGO_MANIFEST_DIR"));
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !is_prelude(name))
            .collect();
        files.sort();
        let names = scripts.iter();
        let names: Vec<String> = names.map(|script| format!("{}.lua", script.name)).collect();
        assert_eq!(files, names, "{domain}");
    }
}
