//! The shards of one sale in the model, and optionally in a real Redis.

use std::sync::atomic::{AtomicU32, Ordering};

use weir_base::id::SaleId;
use weir_base::resp::Value;
use weir_edge::shard::ShardCommand;
use weir_sale::ledger::{Audit, ShardLedger, ShardProbe};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::{audit, probe};

use crate::support::{Redis, Server};

pub struct Shards {
    models: Vec<ShardLedger>,
    /// Every write to each shard, with its overall sequence number and its time.
    written: Vec<Vec<(usize, u64, ShardCommand)>>,
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

    pub fn write(&mut self, shard: u32, write: ShardCommand) -> Value {
        self.writes += 1;
        self.now_us += 1;
        self.written[shard as usize].push((self.writes, self.now_us, write.clone()));
        self.apply(shard, self.now_us, &write)
    }

    /// Advances the time.
    pub fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
    }

    fn apply(&mut self, shard: u32, now_us: u64, write: &ShardCommand) -> Value {
        let model = &mut self.models[shard as usize];
        model.set_clock_us(now_us);
        let reply = write.write(model, now_us);
        if let Some((redis, keys)) = &mut self.redis {
            redis.set_clock_us(now_us);
            let received = redis.run(&write.to_redis(&keys[shard as usize]).unwrap());
            assert_eq!(received, reply, "{write:?}");
        }
        reply
    }

    /// Redis loses its last writes: all of them, or those to one shard, as when one server of a cluster fails over. The
    /// first write, which warmed a shard, is never lost here.
    pub fn lose(&mut self, shard: Option<u32>, writes: usize) {
        let cutoff = match shard {
            Some(_) => 0,
            None => self.writes.saturating_sub(writes),
        };
        for n in 0..self.count() {
            let history = &mut self.written[n as usize];
            let retained = match shard {
                Some(shard) if shard != n => continue,
                Some(_) => history.len().saturating_sub(writes),
                None => history.iter().filter(|(at, ..)| *at <= cutoff).count(),
            };
            history.truncate(retained.max(1));
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
            let reply = probe::parse(&redis.run(&probe::call(keys)), keys.len()).unwrap();
            assert_eq!(reply, expected);
        }
        expected
    }

    pub fn audits(&mut self) -> Vec<Audit> {
        let expected: Vec<Audit> = self.models.iter().map(ShardLedger::audit).collect();
        if let Some((redis, keys)) = &mut self.redis {
            for (keys, expected) in keys.iter().zip(&expected) {
                let received = audit::parse(&redis.run(&audit::call(keys))).unwrap();
                assert_eq!(received, *expected);
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
