//! The Lua against the model: the same operations on a real Redis and on [`ShardLedger`], every
//! reply compared, and the books looked at after each.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::{Redis, Server};
use weir_core::id::{SaleId, UserId};
use weir_core::ledger::{ClaimReply, ClaimTerms, ReleaseKind, SettleReply, ShardLedger};
use weir_resp::Value;
use weir_scripts::keys::ShardKeys;
use weir_scripts::{SCRIPTS, audit, claim, release, settle, warm};

const TTL_MS: u64 = 500;

/// One shard, in Redis and in the model.
struct Pair {
    redis: Redis,
    keys: ShardKeys,
    model: ShardLedger,
}

impl Pair {
    /// A cold shard that no other test has.
    fn cold(server: &Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sale-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            redis: server.connect(),
            keys: ShardKeys::new("model", &SaleId::new(name).unwrap(), 0),
            model: ShardLedger::default(),
        }
    }

    fn warmed(server: &Server, units: u64) -> Self {
        let mut pair = Self::cold(server);
        assert!(pair.warm(units, 7));
        pair
    }

    fn warm(&mut self, units: u64, now_ms: u64) -> bool {
        let reply = self.redis.run(&warm::call(&self.keys, units, now_ms));
        let warmed = warm::parse(&reply).unwrap();
        assert_eq!(warmed, self.model.warm(units, now_ms));
        warmed
    }

    /// One batch of claims.
    fn claim(&mut self, users: &[UserId], terms: ClaimTerms) -> Vec<ClaimReply> {
        let users: Vec<&UserId> = users.iter().collect();
        let group = claim::Group {
            keys: &self.keys,
            terms,
            users: &users,
        };
        let reply = self.redis.run(&claim::call(&[group]));
        let replies =
            claim::parse(&reply, users.len()).unwrap_or_else(|e| panic!("{e}: {reply:?}"));
        let expected: Vec<_> = users
            .iter()
            .map(|user| self.model.claim(user, terms))
            .collect();
        assert_eq!(replies, expected);
        replies
    }

    fn settle(&mut self, user: &UserId, generation: u64) -> SettleReply {
        let reply = self.redis.run(&settle::call(&self.keys, user, generation));
        let settled = settle::parse(&reply).unwrap();
        assert_eq!(settled, self.model.settle(user, generation));
        settled
    }

    fn release(&mut self, kind: ReleaseKind, claims: &[(UserId, u64)]) {
        let named: Vec<(&UserId, u64)> = claims.iter().map(|(user, g)| (user, *g)).collect();
        let reply = self.redis.run(&release::call(&self.keys, kind, &named));
        let replies = release::parse(&reply, claims.len()).unwrap();
        let model = &mut self.model;
        let expected: Vec<_> = claims
            .iter()
            .map(|(user, g)| model.release(user, *g, kind))
            .collect();
        assert_eq!(replies, expected);
    }

    /// Both have the same books, and `pending` holds exactly the open claims.
    fn check_books(&mut self) {
        let reply = self.redis.run(&audit::call(&self.keys));
        let books = audit::parse(&reply).unwrap();
        assert_eq!(books, self.model.audit());
        let Value::Array(records) = self.redis.command(&[b"HVALS", &self.keys.claims()]) else {
            panic!("HVALS gives an array");
        };
        let is_open = |record: &&Value| match record {
            Value::Bulk(text) => !text.ends_with(b" 0 0 0"),
            other => panic!("{other:?}"),
        };
        let open = records.iter().filter(is_open).count() as i64;
        let pending = self.redis.command(&[b"ZCARD", &self.keys.pending()]);
        assert_eq!(pending, Value::Integer(open));
    }
}

fn user(n: u8) -> UserId {
    UserId::new(format!("user-{n}")).unwrap()
}

fn terms(now_ms: u64, user_cap: u32, quantity: u32) -> ClaimTerms {
    ClaimTerms {
        now_ms,
        ttl_ms: TTL_MS,
        user_cap,
        quantity,
    }
}

#[derive(Clone, Debug)]
enum Op {
    Claim {
        users: Vec<u8>,
        quantity: u32,
    },
    /// Settles the last claim of a user, or one that never was.
    Settle {
        user: u8,
        off_by: u64,
    },
    Release {
        users: Vec<u8>,
        kind: ReleaseKind,
        off_by: u64,
    },
    Warm(u64),
    Pass(i64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let users = || prop::collection::vec(0..6_u8, 1..8);
    let kind = prop_oneof![
        Just(ReleaseKind::Handout),
        Just(ReleaseKind::Decided),
        Just(ReleaseKind::Void),
    ];
    // Mostly the right generation.
    let off_by = || prop_oneof![4 => Just(0_u64), 1 => 1..3_u64];
    prop_oneof![
        4 => (users(), 1..3_u32).prop_map(|(users, quantity)| Op::Claim { users, quantity }),
        2 => (0..6_u8, off_by()).prop_map(|(user, off_by)| Op::Settle { user, off_by }),
        2 => (users(), kind, off_by()).prop_map(|(users, kind, off_by)| Op::Release { users, kind, off_by }),
        1 => (0..5_u64).prop_map(Op::Warm),
        1 => (-50..200_i64).prop_map(Op::Pass),
    ]
}

/// The last generation that each user was told.
type Generations = std::collections::BTreeMap<u8, u64>;

fn note(generations: &mut Generations, users: &[u8], replies: &[ClaimReply]) {
    for (user, reply) in users.iter().zip(replies) {
        if let ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) = reply {
            generations.insert(*user, held.generation);
        }
    }
}

fn run(pair: &mut Pair, op: Op, user_cap: u32, now_ms: &mut u64, generations: &mut Generations) {
    match op {
        Op::Claim { users, quantity } => {
            let names: Vec<UserId> = users.iter().map(|&n| user(n)).collect();
            let replies = pair.claim(&names, terms(*now_ms, user_cap, quantity));
            note(generations, &users, &replies);
        }
        Op::Settle { user: n, off_by } => {
            let generation = generations.get(&n).copied().unwrap_or(1) + off_by;
            pair.settle(&user(n), generation);
        }
        Op::Release {
            users,
            kind,
            off_by,
        } => {
            let claim = |&n: &u8| (user(n), generations.get(&n).copied().unwrap_or(1) + off_by);
            let claims: Vec<_> = users.iter().map(claim).collect();
            pair.release(kind, &claims);
        }
        Op::Warm(units) => {
            pair.warm(units, *now_ms);
        }
        Op::Pass(ms) => *now_ms = now_ms.saturating_add_signed(ms),
    }
}

#[test]
fn lua_and_model_answer_alike() {
    let server = Server::start();
    let config = ProptestConfig {
        cases: 400,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let history = (
        prop::collection::vec(any_op(), 1..40),
        1..4_u32,
        any::<bool>(),
    );
    let outcome = TestRunner::new(config).run(&history, |(ops, user_cap, starts_cold)| {
        let mut pair = if starts_cold {
            Pair::cold(&server)
        } else {
            Pair::warmed(&server, 4)
        };
        let (mut now_ms, mut generations) = (1_700_000_000_000, Generations::new());
        for op in ops {
            run(&mut pair, op, user_cap, &mut now_ms, &mut generations);
            pair.check_books();
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn one_call_decides_many_shards_each_from_its_own_stock() {
    let server = Server::start();
    let mut redis = server.connect();
    let sale = SaleId::new("many-shards").unwrap();
    let shards: Vec<ShardKeys> = (0..3).map(|k| ShardKeys::new("model", &sale, k)).collect();
    for (units, keys) in shards.iter().enumerate() {
        redis.run(&warm::call(keys, units as u64, 1));
    }
    let users: Vec<UserId> = (0..2).map(user).collect();
    let users: Vec<&UserId> = users.iter().collect();
    let group = |keys| claim::Group {
        keys,
        terms: terms(10, 1, 1),
        users: &users,
    };
    let groups: Vec<_> = shards.iter().map(group).collect();
    let replies = claim::parse(&redis.run(&claim::call(&groups)), 6).unwrap();
    let granted: Vec<bool> = replies
        .iter()
        .map(|r| matches!(r, ClaimReply::Granted(_)))
        .collect();
    assert_eq!(granted, [false, false, true, false, true, true]);
}

#[test]
fn generations_are_exact_at_the_size_of_real_clocks() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 100);
    let now_ms = 4_102_444_800_000; // the year 2100
    let users: Vec<UserId> = (0..100).map(user).collect();
    let replies = pair.claim(&users, terms(now_ms, 1, 1));
    let ClaimReply::Granted(last) = replies[99] else {
        panic!("{:?}", replies[99])
    };
    assert_eq!(
        (last.generation, last.deadline_ms),
        (now_ms + 99, now_ms + TTL_MS)
    );
    pair.check_books();
}

#[test]
fn a_batch_as_large_as_a_flight_of_one_user_takes_one_unit() {
    let server = Server::start();
    let mut pair = Pair::warmed(&server, 10);
    let replies = pair.claim(&vec![user(1); 64], terms(10, 1, 1));
    assert!(matches!(replies[0], ClaimReply::Granted(_)));
    assert!(
        replies[1..]
            .iter()
            .all(|reply| matches!(reply, ClaimReply::GrantedAgain(_)))
    );
    assert_eq!(pair.model.audit().stock, Some(9));
}

/// Redis names a script by this digest: a wrong one would turn every EVALSHA into an EVAL.
#[test]
fn redis_gives_each_script_the_digest_that_we_do() {
    let server = Server::start();
    let mut redis = server.connect();
    for script in SCRIPTS {
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let names: Vec<String> = SCRIPTS
        .iter()
        .map(|script| format!("{}.lua", script.name))
        .collect();
    assert_eq!(files, names);
}
