//! Compares browse history in Redis with a model: the same steps on both, every reply and the list compared.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Redis, Server};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_history::model::{Hot, ListReply};
use weir_history::redis::history::List;
use weir_history::redis::history::{Active, Change};
use weir_history::redis::history_fill::NO_GENERATION;
use weir_history::redis::history_read::{CountReply, NewGeneration, Promise};
use weir_history::redis::keys::{HistoryKeys, history_active_of};
use weir_history::redis::{
    history_clear, history_count, history_delete, history_fill, history_mark, history_read,
    history_view,
};
use weir_history::slot::Tags;
use weir_history::{
    DAY_MS, HOT_MS, LoadedLists, Owner, Removals, Sku, VIEWS_MAX, ViewOutcome, ViewedProduct,
};

const ACTIVE_MS: u64 = HOT_MS + DAY_MS;

/// The generation for a list without one.
const GENERATION: NewGeneration<'_> = NewGeneration {
    name: "g1",
    life_ms: 50_000,
};

/// Maximum views of the smaller lists, so that few steps fill one.
const FEW: usize = 4;

/// One owner's list in Redis and in the model.
struct Pair<'a> {
    redis: &'a mut Redis,
    owner: Owner,
    keys: HistoryKeys,
    active: Vec<u8>,
    max: usize,
    model: Hot,
    /// The run ID of the server.
    run: String,
}

#[derive(Clone, Debug)]
enum Step {
    View(Vec<(u8, u64)>),
    Delete(Vec<(u8, u64)>, u64),
    Clear(u64),
    Fill(
        Option<&'static str>,
        Vec<(u8, u64)>,
        u64,
        Option<Vec<(u8, u64)>>,
    ),
    Read(&'static str),
    Count(u8),
    PutCount(u8, u64),
    Expire,
    TakeActive,
}

fn viewed((sku, at_ms): &(u8, u64)) -> ViewedProduct {
    // Some are numbers, which Redis packs.
    let sku = match sku % 2 {
        0 => Sku::from(u64::from(*sku)),
        _ => Sku::new(format!("sku-{sku}")).unwrap(),
    };
    ViewedProduct { sku, at_ms: *at_ms }
}

fn all(pairs: &[(u8, u64)]) -> Vec<ViewedProduct> {
    pairs.iter().map(viewed).collect()
}

/// An owner that no other test uses.
fn new_owner() -> Owner {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Owner::guest(&format!("v{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

impl<'a> Pair<'a> {
    fn new(redis: &'a mut Redis, tags: &Tags, max: usize) -> Self {
        let owner = new_owner();
        let run = run_of(redis);
        let mut model = Hot::default();
        model.restart(&run);
        Self {
            run,
            redis,
            keys: HistoryKeys::new("test", &owner),
            active: history_active_of("test", tags, 7, &owner),
            owner,
            max,
            model,
        }
    }

    fn change(&self) -> Change<'_> {
        Change {
            owner: &self.owner,
            max: self.max,
            life_ms: HOT_MS,
        }
    }

    fn active(&self) -> Active<'_> {
        Active {
            key: &self.active,
            life_ms: ACTIVE_MS,
        }
    }

    fn view(&mut self, views: &[ViewedProduct]) -> Vec<ViewOutcome> {
        let call = history_view::call(&self.keys, &self.active(), &self.change(), views);
        let reply = self.redis.run(&call);
        let outcomes = history_view::parse(&reply, views.len()).unwrap();
        assert_eq!(outcomes, self.model.view(views, self.max));
        outcomes
    }

    fn delete(&mut self, deleted: &[ViewedProduct], forget_ms: u64) {
        let (active, change) = (self.active(), self.change());
        let call = history_delete::call(&self.keys, &active, &change, forget_ms, deleted);
        let reply = history_delete::parse(&self.redis.run(&call)).unwrap();
        assert_eq!(reply, self.model.delete(deleted, forget_ms, self.max));
    }

    fn clear(&mut self, at_ms: u64) {
        let call = history_clear::call(&self.keys, &self.active(), &self.change(), at_ms);
        let reply = history_clear::parse(&self.redis.run(&call)).unwrap();
        assert_eq!(reply, self.model.clear(at_ms));
    }

    fn fill(
        &mut self,
        generation: Option<&str>,
        removals: &Removals,
        cold: Option<&[ViewedProduct]>,
    ) {
        let generation = generation.map(|name| format!("{}.{name}", self.run));
        let name = generation.as_deref().unwrap_or(NO_GENERATION);
        let call = history_fill::call(&self.keys, &self.change(), name, removals, cold);
        let list = history_fill::parse(&self.redis.run(&call)).unwrap();
        let generation = generation.as_deref();
        let expected = self.model.fill(generation, removals, cold, self.max);
        assert_eq!(list_reply(list), expected);
    }

    fn read(&mut self, name: &str) -> ListReply {
        let generation = NewGeneration { name, ..GENERATION };
        let call = history_read::call(&self.keys, generation, None);
        let list = list_reply(history_read::parse(&self.redis.run(&call)).unwrap());
        assert_eq!(list, self.model.read(name));
        list
    }

    fn count(&mut self, name: &str) {
        let life_ms = 100_000;
        let promise = Some(Promise { name, life_ms });
        let call = history_read::call(&self.keys, GENERATION, promise);
        let counted = match history_read::parse_count(&self.redis.run(&call)).unwrap() {
            CountReply::Known(count) => Ok(count),
            CountReply::Unknown(list) => Err(list_reply(list)),
        };
        assert_eq!(counted, self.model.read_count(GENERATION.name, name));
    }

    fn put_count(&mut self, name: &str, count: u64) {
        let call = history_count::call(&self.keys, name, count, 100_000);
        let reply = history_count::parse(&self.redis.run(&call)).unwrap();
        assert_eq!(reply, self.model.put_count(name, count));
    }

    fn take_active(&mut self) {
        let member = self.owner.as_str().as_bytes();
        let removed = self.redis.command(&[b"SREM", &self.active, member]);
        assert_eq!(removed, Value::Integer(self.model.take_active().into()));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::View(views) => drop(self.view(&all(views))),
            Step::Delete(deleted, forget_ms) => self.delete(&all(deleted), *forget_ms),
            Step::Clear(at_ms) => self.clear(*at_ms),
            Step::Fill(generation, deleted, cleared_ms, cold) => {
                let mut removals = Removals {
                    cleared_ms: *cleared_ms,
                    ..Removals::default()
                };
                for ViewedProduct { sku, at_ms } in all(deleted) {
                    removals.delete(sku, at_ms);
                }
                self.fill(*generation, &removals, cold.as_deref().map(all).as_deref());
            }
            Step::Count(name) => self.count(&name.to_string()),
            Step::PutCount(name, count) => self.put_count(&name.to_string(), *count),
            Step::Read(name) => drop(self.read(name)),
            Step::Expire => self.expire(),
            Step::TakeActive => self.take_active(),
        }
        self.check();
    }

    fn expire(&mut self) {
        let keys = [
            self.keys.views(),
            self.keys.deleted(),
            self.keys.marker(),
            self.keys.count(),
        ];
        self.redis
            .command(&[b"DEL", &keys[0], &keys[1], &keys[2], &keys[3]]);
        let was_active = self.model.take_active();
        self.model = Hot::default();
        self.model.restart(&self.run);
        if was_active {
            // The day's set is a separate key.
            self.model.set_active();
        }
    }

    /// Compares the list and the lifetimes of its keys: none expires before the marker, otherwise removed views would
    /// return.
    fn check(&mut self) {
        let key = self.keys.views();
        let views = self.redis.command(&[b"ZRANGE", &key, b"0", b"-1", b"REV"]);
        let names = self.model.views().into_iter();
        let names = names.map(|viewed| Value::Bulk(viewed.sku.as_str().into()));
        assert_eq!(views, Value::Array(names.collect()));
        let keys = [self.keys.marker(), self.keys.views(), self.keys.deleted()];
        let [marker, views, deleted] =
            keys.map(|key| match self.redis.command(&[b"PEXPIRETIME", &key]) {
                Value::Integer(-2) => None,
                Value::Integer(at_ms) => Some(at_ms),
                other => panic!("{other:?}"),
            });
        for end in [marker, views, deleted].into_iter().flatten() {
            assert!(end > 0, "one lives for ever");
            assert!(marker.is_none_or(|marker| marker <= end));
        }
    }
}

/// The run ID of a server, as scripts read it.
fn run_of(redis: &mut Redis) -> String {
    let Value::Bulk(text) = redis.command(&[b"INFO", b"server"]) else {
        panic!("no INFO");
    };
    let text = String::from_utf8(text).unwrap();
    let run = text.lines().find_map(|line| line.strip_prefix("run_id:"));
    run.unwrap()[..8].to_owned()
}

fn pairs(max: usize) -> impl Strategy<Value = Vec<(u8, u64)>> {
    prop::collection::vec((0..7_u8, 1..40_u64), 1..max)
}

fn list_reply(list: List) -> ListReply {
    ListReply {
        loaded: list.loaded,
        generation: (list.generation != NO_GENERATION).then_some(list.generation),
        views: list.views,
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let generation = prop::sample::select(vec![None, Some("g1"), Some("g2")]);
    prop_oneof![
        6 => pairs(4).prop_map(Step::View),
        3 => (pairs(3), 0..10_u64).prop_map(|(deleted, forget)| Step::Delete(deleted, forget)),
        1 => (1..30_u64).prop_map(Step::Clear),
        4 => (generation, pairs(4), 0..10_u64, prop::option::of(pairs(6))).prop_map(
            |(generation, deleted, cleared, cold)| Step::Fill(generation, deleted, cleared, cold)
        ),
        3 => (0..2_usize).prop_map(|name| Step::Read(["g1", "g2"][name])),
        2 => (0..3_u8).prop_map(Step::Count),
        2 => (0..3_u8, 0..200_u64).prop_map(|(name, count)| Step::PutCount(name, count)),
        1 => Just(Step::Expire),
        1 => Just(Step::TakeActive),
    ]
}

#[test]
fn redis_and_the_model_agree_on_random_steps() {
    let server = Server::start();
    let (redis, tags) = (RefCell::new(server.connect()), Tags::new());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(300)
    };
    let steps = prop::collection::vec(any_step(), 1..25);
    let run = TestRunner::new(config).run(&steps, |steps| {
        let mut redis = redis.borrow_mut();
        let mut pair = Pair::new(&mut redis, &tags, FEW);
        steps.iter().for_each(|step| pair.step(step));
        Ok(())
    });
    run.unwrap();
}

/// A log delivers each view at least once, in any order, here around one deletion.
#[test]
fn redelivery_and_reordering_change_nothing() {
    let server = Server::start();
    let (redis, tags) = (RefCell::new(server.connect()), Tags::new());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(100)
    };
    let deliveries = (
        prop::collection::vec((0..9_u8, 1..50_u64), 1..12),
        prop::collection::vec(0..12_usize, 0..20),
        (0..9_u8, 1..50_u64),
        0..30_usize,
    );
    let run = TestRunner::new(config).run(&deliveries, |(views, again, deleted, at)| {
        let mut deliveries: Vec<ViewedProduct> = again
            .iter()
            .filter_map(|index| views.get(*index).map(viewed))
            .collect();
        // The second half first.
        let (early, late) = views.split_at(views.len() / 2);
        deliveries.extend(all(late));
        deliveries.extend(all(early));
        let mut redis = redis.borrow_mut();
        let mut pair = Pair::new(&mut redis, &tags, VIEWS_MAX);
        for (index, delivery) in deliveries.iter().enumerate() {
            if index == at.min(deliveries.len() - 1) {
                pair.delete(&[viewed(&deleted)], 0);
            }
            pair.view(std::slice::from_ref(delivery));
        }
        pair.check();
        let mut removals = Removals::default();
        removals.delete(viewed(&deleted).sku, deleted.1);
        let expected = weir_history::list::merge(all(&views), &removals, 0, VIEWS_MAX);
        assert_eq!(pair.model.views(), expected);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn fill_does_not_restore_cleared_or_deleted_views() {
    let server = Server::start();
    let (mut redis, tags) = (server.connect(), Tags::new());
    let mut pair = Pair::new(&mut redis, &tags, FEW);
    pair.view(&all(&[(1, 10), (2, 20), (3, 30)]));
    pair.delete(&all(&[(3, 30)]), 0);
    pair.clear(10);
    // An older state of the database, and an older cold list.
    let cold = all(&[(3, 30), (2, 20), (1, 10), (5, 11)]);
    pair.read("g1");
    pair.fill(Some("g1"), &Removals::default(), Some(&cold));
    let list = pair.read("g2");
    assert_eq!(
        (list.loaded, list.views),
        (LoadedLists::All, all(&[(2, 20), (5, 11)]))
    );
    assert_eq!(
        pair.view(&all(&[(3, 30), (1, 10)])),
        [ViewOutcome::Removed; 2]
    );
    assert_eq!(pair.view(&all(&[(3, 31)])), [ViewOutcome::Latest]);
}

#[test]
fn history_list_keeps_the_latest_200_for_four_days() {
    let server = Server::start();
    let (mut redis, tags) = (server.connect(), Tags::new());
    let mut pair = Pair::new(&mut redis, &tags, VIEWS_MAX);
    let views: Vec<ViewedProduct> = (1..=250)
        .map(|number| ViewedProduct {
            sku: Sku::from(number),
            at_ms: 1_700_000_000_000 + number,
        })
        .collect();
    for some in views.chunks(100) {
        pair.view(some);
    }
    pair.check();
    let list = pair.model.views();
    assert_eq!((list.len(), list[199].sku.number()), (200, Some(51)));
    let key = pair.keys.views();
    let Value::Integer(left_ms) = pair.redis.command(&[b"PTTL", &key]) else {
        panic!("no life");
    };
    assert!((1..=HOT_MS as i64).contains(&left_ms), "{left_ms}");
}

/// Redis lost removals that were made between the reads of database and Redis.
#[test]
fn fill_of_a_lost_list_does_not_count_as_loaded() {
    let server = Server::start();
    let (mut redis, tags) = (server.connect(), Tags::new());
    let mut pair = Pair::new(&mut redis, &tags, FEW);
    pair.view(&all(&[(1, 10)]));
    pair.read("g1");
    pair.delete(&all(&[(1, 10)]), 0);
    pair.expire();
    pair.view(&all(&[(1, 10)]));
    pair.fill(Some("g1"), &Removals::default(), Some(&all(&[(1, 10)])));
    assert_eq!(pair.read("g2").loaded, LoadedLists::Nothing);
    let mut removals = Removals::default();
    removals.delete(Sku::from(1), 10);
    pair.fill(Some("g1"), &removals, None);
    assert_eq!(pair.read("g3").loaded, LoadedLists::Nothing);
    pair.fill(Some("g2"), &removals, None);
    assert_eq!(pair.read("g3").loaded, LoadedLists::Removals);
}

/// After a restart from a file or a promotion, lists may lack the latest removals.
#[test]
fn list_loaded_by_another_process_is_reloaded_without_counts() {
    let server = Server::start();
    let (mut redis, tags) = (server.connect(), Tags::new());
    let mut pair = Pair::new(&mut redis, &tags, FEW);
    pair.view(&all(&[(1, 10), (2, 20)]));
    pair.read("g1");
    pair.fill(Some("g1"), &Removals::default(), Some(&[]));
    pair.count("p");
    pair.put_count("p", 2);
    assert_eq!(pair.read("g2").loaded, LoadedLists::All);
    // The marker of another process.
    let (marker, other) = (pair.keys.marker(), b"0 a 00000000.g1");
    pair.redis.command(&[b"SET", &marker, other, b"KEEPTTL"]);
    let name = GENERATION.name;
    let life_ms = 100_000;
    let promise = Some(Promise { name: "q", life_ms });
    let call = history_read::call(&pair.keys, GENERATION, promise);
    let counted = history_read::parse_count(&pair.redis.run(&call)).unwrap();
    let CountReply::Unknown(list) = counted else {
        panic!("{counted:?}");
    };
    assert_eq!(list.loaded, LoadedLists::Nothing);
    assert_eq!(list.generation, format!("{}.{name}", pair.run));
    assert_eq!(list.views, all(&[(2, 20), (1, 10)]));
    // Data that was read for the other process's list is not accepted for this one.
    pair.redis.command(&[b"SET", &marker, other, b"KEEPTTL"]);
    let current = format!("{}.{name}", pair.run);
    let none = Removals::default();
    let call = history_fill::call(&pair.keys, &pair.change(), &current, &none, Some(&[]));
    let list = history_fill::parse(&pair.redis.run(&call)).unwrap();
    assert_eq!(list.loaded, LoadedLists::Nothing);
    println!("Redis' time of a read: {:.1} µs", read_us(&mut pair));
}

/// The time of reading a list of four views, in microseconds.
fn read_us(pair: &mut Pair<'_>) -> f64 {
    const READS: u64 = 2_000;
    let call = history_read::call(&pair.keys, GENERATION, None);
    pair.redis.run(&call);
    let before = commands(pair.redis)[1];
    for _ in 0..READS {
        pair.redis.run(&call);
    }
    (commands(pair.redis)[1] - before) as f64 / READS as f64
}

/// The mark moves only for a caller that has its position; a mark before the caller's position proves that Redis lost
/// data.
#[test]
fn mark_reveals_lost_redis_writes() {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(100)
    };
    let numbers = prop::sample::select(vec![0, 9, 10, 1 << 40, u64::MAX - 1, u64::MAX]);
    let steps = prop::collection::vec((numbers.clone(), numbers, 0..9_u8), 1..20);
    let run = TestRunner::new(config).run(&steps, |steps| {
        let mut redis = redis.borrow_mut();
        let key = new_owner().as_str().as_bytes().to_vec();
        let mut model: Option<u64> = None;
        for (from, to, subject) in steps {
            match subject {
                0 => {
                    redis.command(&[b"DEL", &key]);
                    model = None;
                }
                1..=3 => {
                    let position = history_mark::position(to);
                    redis.command(&[b"HSET", &key, b"log", position.as_bytes()]);
                    model = Some(to);
                }
                _ => {
                    let call = history_mark::call(&key, "log", from, to);
                    let moved = history_mark::parse(&redis.run(&call)).unwrap();
                    assert_eq!(moved, model.is_some_and(|mark| mark >= from));
                    model = if moved { Some(to) } else { model };
                }
            }
            let mark = redis.command(&[b"HGET", &key, b"log"]);
            assert_eq!(history_mark::read(&mark), model);
        }
        Ok(())
    });
    run.unwrap();
}

fn integer(value: Value) -> i64 {
    match value {
        Value::Integer(number) => number,
        other => panic!("{other:?}"),
    }
}

/// The design goals: at most 25 bytes of Redis memory per view, and one command.
#[test]
fn view_costs_at_most_25_redis_bytes_and_one_call() {
    let server = Server::start();
    let (mut redis, tags) = (server.connect(), Tags::new());
    redis.command(&[b"CONFIG", b"SET", b"zset-max-listpack-entries", b"256"]);
    let mut pair = Pair::new(&mut redis, &tags, VIEWS_MAX);
    let views: Vec<ViewedProduct> = (0..1_200_u64)
        .map(|number| ViewedProduct {
            sku: Sku::from(100_000_000_000 + number * 7_919 % 600 * 483_611),
            at_ms: 1_700_000_000_000 + number * 61_000,
        })
        .collect();
    pair.view(&views[..1]);
    let before = commands(pair.redis);
    for view in &views[1..] {
        pair.view(std::slice::from_ref(view));
    }
    let [calls, call_us] = [0, 1].map(|n| commands(pair.redis)[n] - before[n]);
    assert_eq!(calls, views.len() as u64 - 1, "one call a view");
    println!(
        "Redis' time of a view: {:.1} µs",
        call_us as f64 / calls as f64
    );
    let key = pair.keys.views();
    assert_eq!(integer(pair.redis.command(&[b"ZCARD", &key])), 200);
    let bytes = integer(
        pair.redis
            .command(&[b"MEMORY", b"USAGE", &key, b"SAMPLES", b"0"]),
    );
    println!("bytes of Redis a view: {:.1}", bytes as f64 / 200.0);
    assert!(bytes <= 25 * 200, "{bytes}");
}

/// The number of EVALSHA calls and their time, in microseconds.
fn commands(redis: &mut Redis) -> [u64; 2] {
    let Value::Bulk(text) = redis.command(&[b"INFO", b"commandstats"]) else {
        panic!("no statistics");
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let line = line.unwrap_or_default();
    ["calls=", "usec="].map(|name| {
        let rest = line.split(name).nth(1).unwrap_or("0");
        rest.split(',').next().unwrap().parse().unwrap()
    })
}
