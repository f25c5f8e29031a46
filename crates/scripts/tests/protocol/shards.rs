//! The shards of one sale: the model, and, if there is one, a real Redis beside it.

use std::sync::atomic::{AtomicU32, Ordering};

use weir_base::id::{SaleId, UserId};
use weir_sale::ledger::{
    Audit, ClaimReply, ClaimTerms, Deduction, DepositReply, Followed, LendReply, ReleaseKind,
    ReleaseReply, SettleReply, ShardLedger, ShardProbe, Transfer,
};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::{
    audit, cancel, charge, claim, deposit, lend, probe, release, restock, settle, settle_transfer,
    warm,
};
use weir_scripts::Call;

use crate::support::{Redis, Server};

/// A call of a script that writes.
#[derive(Clone, Debug)]
pub enum Write {
    Warm(u64),
    Claim(UserId, ClaimTerms),
    Settle(UserId, u64, Deduction),
    Charge(UserId, u64),
    Cancel(UserId, u64),
    Release(UserId, u64, ReleaseKind),
    Lend { to_shard: u32, wanted: u64 },
    Deposit(u32, Transfer),
    SettleTransfer(u32, u64),
    Restock(i64, Audit),
}

/// A script's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done(bool),
    Followed(Followed),
    Claim(ClaimReply),
    Settle(SettleReply),
    Release(ReleaseReply),
    Lend(LendReply),
    Deposit(DepositReply),
}

pub struct Shards {
    models: Vec<ShardLedger>,
    /// Every write to each shard, with its place among all, and its time.
    written: Vec<Vec<(usize, u64, Write)>>,
    writes: usize,
    now_us: u64,
    redis: Option<(Redis, Vec<ShardKeys>)>,
}

impl Shards {
    pub fn new(count: u32, server: Option<&Server>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("protocol-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let sale = SaleId::new(name).unwrap();
        let keys = (0..count)
            .map(|n| ShardKeys::new("test", &sale, n))
            .collect();
        Self {
            models: vec![ShardLedger::default(); count as usize],
            written: vec![vec![]; count as usize],
            writes: 0,
            now_us: 1_700_000_000_000_000,
            redis: server.map(|server| (server.connect(), keys)),
        }
    }

    pub fn count(&self) -> u32 {
        self.models.len() as u32
    }

    pub fn write(&mut self, shard: u32, write: Write) -> Reply {
        self.writes += 1;
        self.now_us += 1;
        self.written[shard as usize].push((self.writes, self.now_us, write.clone()));
        self.apply(shard, self.now_us, &write)
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn apply(&mut self, shard: u32, now_us: u64, write: &Write) -> Reply {
        let model = &mut self.models[shard as usize];
        model.set_clock_us(now_us);
        let reply = on_model(model, write);
        if let Some((redis, keys)) = &mut self.redis {
            redis.set_clock_us(now_us);
            let heard = on_redis(redis, &keys[shard as usize], write);
            assert_eq!(heard, reply, "{write:?}");
        }
        reply
    }

    /// Redis forgets its last writes: all of them, or those to one shard, as when one server of a
    /// cluster fails over. The first one, that warmed a shard, is never forgotten here.
    pub fn lose(&mut self, shard: Option<u32>, writes: usize) {
        let cutoff = match shard {
            Some(_) => 0,
            None => self.writes.saturating_sub(writes),
        };
        for n in 0..self.count() {
            let history = &mut self.written[n as usize];
            let kept = match shard {
                Some(shard) if shard != n => continue,
                Some(_) => history.len().saturating_sub(writes),
                None => history.iter().filter(|(at, ..)| *at <= cutoff).count(),
            };
            history.truncate(kept.max(1));
            self.replay(n);
        }
    }

    fn replay(&mut self, shard: u32) {
        self.models[shard as usize] = ShardLedger::default();
        if let Some((redis, keys)) = &mut self.redis {
            let keys = &keys[shard as usize];
            let mut delete = vec![b"DEL".to_vec()];
            delete.extend(keys.ledger());
            let words: Vec<&[u8]> = delete.iter().map(Vec::as_slice).collect();
            redis.command(&words);
        }
        for (_, at_us, write) in self.written[shard as usize].clone() {
            self.apply(shard, at_us, &write);
        }
    }

    pub fn probe(&mut self) -> Vec<ShardProbe> {
        let expected: Vec<ShardProbe> = self.models.iter().map(ShardLedger::probe).collect();
        if let Some((redis, keys)) = &mut self.redis {
            let heard = probe::parse(&redis.run(&probe::call(keys)), keys.len()).unwrap();
            assert_eq!(heard, expected);
        }
        expected
    }

    pub fn audits(&mut self) -> Vec<Audit> {
        let expected: Vec<Audit> = self.models.iter().map(ShardLedger::audit).collect();
        if let Some((redis, keys)) = &mut self.redis {
            for (keys, expected) in keys.iter().zip(&expected) {
                let heard = audit::parse(&redis.run(&audit::call(keys))).unwrap();
                assert_eq!(heard, *expected);
            }
        }
        expected
    }

    pub fn model(&mut self, shard: u32) -> &mut ShardLedger {
        let model = &mut self.models[shard as usize];
        model.set_clock_us(self.now_us);
        model
    }
}

fn on_model(shard: &mut ShardLedger, write: &Write) -> Reply {
    match write {
        Write::Warm(units) => Reply::Done(shard.warm(*units, None)),
        Write::Claim(user, terms) => Reply::Claim(shard.claim(user, *terms)),
        Write::Settle(user, generation, deduction) => {
            Reply::Settle(shard.settle(user, *generation, *deduction))
        }
        Write::Charge(user, generation) => Reply::Followed(shard.charge(user, *generation)),
        Write::Cancel(user, generation) => Reply::Followed(shard.cancel(user, *generation)),
        Write::Release(user, generation, kind) => {
            Reply::Release(shard.release(user, *generation, *kind))
        }
        Write::Lend { to_shard, wanted } => Reply::Lend(shard.lend(*to_shard, *wanted)),
        Write::Deposit(from, transfer) => Reply::Deposit(shard.deposit(*from, *transfer)),
        Write::SettleTransfer(to, id) => Reply::Done(shard.settle_transfer(*to, *id)),
        Write::Restock(units, seen) => Reply::Done(shard.restock(*units, seen)),
    }
}

fn on_redis(redis: &mut Redis, keys: &ShardKeys, write: &Write) -> Reply {
    let mut run = |call: Call| redis.run(&call);
    match write {
        Write::Warm(units) => {
            Reply::Done(warm::parse(&run(warm::call(keys, *units, None))).unwrap())
        }
        Write::Claim(user, terms) => {
            let group = claim::Group {
                keys: keys.clone(),
                terms: *terms,
                users: vec![user],
                attempts: vec![],
            };
            Reply::Claim(claim::parse(&run(claim::call(&[group])), 1).unwrap()[0])
        }
        Write::Settle(user, generation, deduction) => {
            let value = run(settle::call(keys, user, *generation, *deduction));
            Reply::Settle(settle::parse(&value).unwrap())
        }
        Write::Charge(user, generation) => {
            Reply::Followed(charge::parse(&run(charge::call(keys, user, *generation))).unwrap())
        }
        Write::Cancel(user, generation) => {
            Reply::Followed(cancel::parse(&run(cancel::call(keys, user, *generation))).unwrap())
        }
        Write::Release(user, generation, kind) => {
            let value = run(release::call(keys, &[(user, *generation, *kind)]));
            Reply::Release(release::parse(&value, 1).unwrap()[0])
        }
        Write::Lend { to_shard, wanted } => {
            let value = run(lend::call(keys, *to_shard, *wanted));
            Reply::Lend(lend::parse(&value).unwrap())
        }
        Write::Deposit(from, transfer) => {
            let value = run(deposit::call(keys, *from, *transfer));
            Reply::Deposit(deposit::parse(&value).unwrap())
        }
        Write::SettleTransfer(to, id) => {
            let value = run(settle_transfer::call(keys, *to, *id));
            Reply::Done(settle_transfer::parse(&value).unwrap())
        }
        Write::Restock(units, seen) => {
            Reply::Done(restock::parse(&run(restock::call(keys, *units, seen))).unwrap())
        }
    }
}
