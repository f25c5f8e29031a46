//! Compares vehicle fitment in Redis with a model: the same steps on both, and every reply compared. Also measures
//! memory.

mod costs;
mod vehicles;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Redis, Server};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_fitment::check::StoredAnswer;
use weir_fitment::model::{self, LostKey, Product, Routes};
use weir_fitment::redis::fit_add::{Change, ChangeOutcome};
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::fit_route_put::NewRoute;
use weir_fitment::redis::fit_verify::StoredSku;
use weir_fitment::redis::keys::FitmentKeys;
use weir_fitment::redis::{
    fit_add, fit_drop, fit_put, fit_query, fit_route, fit_route_put, fit_verify,
};
use weir_fitment::{Cluster, Offset, Placement, Plan, Shape, Sku, Spu};
use weir_scripts::Call;

/// The number of segments for the plan with bitmaps.
const SEGMENTS: u32 = 3;

/// SKUs of the tests; one looks like a key of another.
const SKUS: [&str; 4] = ["100012043978", "a", "a:0", "0:a"];

fn sku(index: usize) -> Sku {
    Sku::new(SKUS[index % SKUS.len()]).unwrap()
}

fn offset(number: u32) -> Offset {
    Offset::new(number).unwrap()
}

/// One product in Redis and in the model.
struct Pair<'a> {
    redis: &'a mut Redis,
    keys: FitmentKeys,
    plan: Plan,
    model: Product,
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u64, bool, Vec<u32>),
    Add(usize, [u64; 2], Vec<u32>, Vec<u32>),
    Drop(usize, u64),
    Forget(usize, u64),
    Lose(u8, usize),
    Query(Vec<u32>),
}

impl<'a> Pair<'a> {
    fn new(redis: &'a mut Redis, plan: Plan) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let spu = format!("P{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            redis,
            keys: FitmentKeys::new("test", &Spu::new(spu).unwrap()),
            plan,
            model: Product::default(),
        }
    }

    fn put(&mut self, sku: &Sku, version: u64, is_forced: bool, offsets: &[Offset]) -> bool {
        let shape = Shape::from_offsets(self.plan, offsets, SEGMENTS);
        let newer = if is_forced {
            NewerEntryPolicy::IsReplaced
        } else {
            NewerEntryPolicy::Stays
        };
        let call = fit_put::call(&self.keys, sku, version, newer, &shape);
        let written = fit_put::parse(&self.redis.run(&call)).unwrap();
        assert_eq!(written, self.model.put(sku, version, is_forced, &shape));
        written
    }

    fn add(
        &mut self,
        sku: &Sku,
        versions: [u64; 2],
        added: &[Offset],
        removed: &[Offset],
    ) -> ChangeOutcome {
        let change = Change {
            from_version: versions[0],
            to_version: versions[1],
            added,
            removed,
        };
        let call = fit_add::call(&self.keys, sku, &change);
        let changed = fit_add::parse(&self.redis.run(&call)).unwrap();
        let expected = match self.model.add(sku, versions, added, removed) {
            model::ChangeOutcome::Done => ChangeOutcome::Done,
            model::ChangeOutcome::NeedsWhole => ChangeOutcome::NeedsWhole,
            model::ChangeOutcome::Known => ChangeOutcome::Known,
        };
        assert_eq!(changed, expected);
        changed
    }

    fn segments(&self) -> u32 {
        match self.plan {
            Plan::Directory => 0,
            Plan::Bitmaps => 8,
        }
    }

    fn query(&mut self, vehicles: &[Offset], skus: &[Sku]) -> Vec<StoredAnswer> {
        let calls = fit_query::calls(self.plan, &self.keys, vehicles, skus.iter());
        let replies: Vec<Value> = calls.iter().map(|call| self.redis.run(call)).collect();
        let reply = fit_query::parse(self.plan, &replies, vehicles.len(), skus.len()).unwrap();
        let expected = skus.iter().map(|sku| match self.plan {
            Plan::Directory => self.model.query(vehicles, sku),
            Plan::Bitmaps => self.model.query_bitmaps(vehicles, sku),
        });
        assert_eq!(reply, expected.collect::<Vec<_>>(), "{vehicles:?} {skus:?}");
        reply
    }

    fn lose(&mut self, lost: &LostKey) {
        let key = match lost {
            LostKey::Directory => self.keys.directory(),
            LostKey::Set(sku) => self.keys.set(sku),
            LostKey::Bitmap(sku, segment) => self.keys.bitmap(sku, *segment),
        };
        self.redis.command(&[b"DEL", &key]);
        self.model.lose(lost);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(at, version, is_forced, offsets) => {
                let offsets: Vec<_> = offsets.iter().map(|number| offset(*number)).collect();
                self.put(&sku(*at), *version, *is_forced, &offsets);
            }
            Step::Add(at, versions, added, removed) => {
                let [mut added, removed] =
                    [added, removed].map(|all| all.iter().map(|n| offset(*n)).collect::<Vec<_>>());
                added.retain(|offset| !removed.contains(offset));
                added.reverse();
                self.add(&sku(*at), *versions, &added, &removed);
            }
            Step::Drop(at, version) => {
                let (sku, segments) = (sku(*at), self.segments());
                let call = fit_drop::call(&self.keys, segments, [(&sku, *version)]);
                let dropped = fit_drop::parse(&self.redis.run(&call)).unwrap();
                assert_eq!(dropped, self.model.drop(segments, &[(sku, *version)]));
            }
            Step::Forget(at, version) => {
                let sku = sku(*at);
                let call = fit_drop::forget(&self.keys, [(&sku, *version)]);
                let forgotten = fit_drop::parse(&self.redis.run(&call)).unwrap();
                assert_eq!(forgotten, self.model.forget(&[(sku, *version)]));
            }
            Step::Lose(kind, at) => self.lose(&match kind {
                0 => LostKey::Directory,
                1 => LostKey::Set(sku(*at)),
                kind => LostKey::Bitmap(sku(*at), u32::from(*kind) - 2),
            }),
            Step::Query(numbers) => {
                let vehicles: Vec<_> = numbers.iter().map(|number| offset(*number)).collect();
                self.query(&vehicles, &SKUS.map(|name| Sku::new(name).unwrap()));
            }
        }
    }

    /// Checks queries for all SKUs and vehicles of every segment, and the audit.
    fn check(&mut self) {
        let skus = SKUS.map(|name| Sku::new(name).unwrap());
        for vehicles in [[1, 7, 50_000, 50_001, 150_000], [2, 100_000, 3, 9, 8]] {
            self.query(&vehicles.map(offset), &skus);
        }
        let call = fit_verify::call(&self.keys, &skus);
        let all = fit_verify::parse(&self.redis.run(&call), skus.len()).unwrap();
        for (sku, retained) in skus.iter().zip(all) {
            match (retained, self.model.audit_sku(sku)) {
                (StoredSku::Nothing, model::SkuAudit::Nothing) => {}
                (StoredSku::Dropped { version }, model::SkuAudit::Dropped(expected)) => {
                    assert_eq!(version, expected);
                }
                (
                    StoredSku::Relations { version, parts },
                    model::SkuAudit::Relations(of, offsets),
                ) => {
                    assert_eq!(version, of);
                    match offsets {
                        Some(offsets) => {
                            assert!(parts.are(&offsets), "{parts:?} {offsets:?}");
                            assert!(!parts.are(&[&offsets[..], &[offset(149_999)]].concat()));
                        }
                        None => assert!(!parts.are(&[])),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Few offsets, or enough for bitmaps.
fn offsets() -> impl Strategy<Value = Vec<u32>> {
    let few = prop::collection::btree_set(number(), 0..6);
    let many = (number(), 505..530_u32, number()).prop_map(|(first, count, other)| {
        let first = first.min(149_000);
        (first..first + count).chain([other]).collect()
    });
    prop_oneof![3 => few, 1 => many].prop_map(|set| set.into_iter().collect())
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 1..12_u32,
        1 => prop::sample::select(vec![49_999_u32, 50_000, 50_001, 100_000, 100_001, 149_998, 150_000]),
        1 => 1..=149_998_u32,
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let at = 0..SKUS.len();
    let set = |max| prop::collection::btree_set(number(), 0..max);
    prop_oneof![
        6 => (at.clone(), 1..6_u64, prop::bool::weighted(0.1), offsets())
            .prop_map(|(at, version, forced, offsets)| Step::Put(at, version, forced, offsets)),
        6 => (at.clone(), 1..6_u64, 1..3_u64, set(20), set(8)).prop_map(
            |(at, from, more, added, removed)| Step::Add(
                at,
                [from, from + more],
                added.into_iter().collect(),
                removed.into_iter().collect(),
            )
        ),
        1 => (at.clone(), 1..7_u64).prop_map(|(at, version)| Step::Drop(at, version)),
        1 => (at.clone(), 1..7_u64).prop_map(|(at, version)| Step::Forget(at, version)),
        2 => (0..5_u8, at).prop_map(|(kind, at)| Step::Lose(kind, at)),
        3 => prop::collection::vec(number(), 1..6).prop_map(Step::Query),
    ]
}

fn agree(plan: Plan) {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(250)
    };
    let steps = prop::collection::vec(any_step(), 1..20);
    let run = TestRunner::new(config).run(&steps, |steps| {
        let mut redis = redis.borrow_mut();
        let mut pair = Pair::new(&mut redis, plan);
        for step in &steps {
            pair.step(step);
            pair.check();
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn redis_matches_the_fitment_model_with_a_directory() {
    agree(Plan::Directory);
}

#[test]
fn redis_matches_the_fitment_model_with_bitmaps_only() {
    agree(Plan::Bitmaps);
}

#[test]
fn both_fitment_plans_return_equal_answers() {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(60)
    };
    let data = (
        prop::collection::vec(prop::option::of(offsets()), SKUS.len()),
        prop::collection::vec(number(), 1..6),
    );
    let run = TestRunner::new(config).run(&data, |(all, requested)| {
        let skus = SKUS.map(|name| Sku::new(name).unwrap());
        let requested: Vec<_> = requested.into_iter().map(offset).collect();
        let replies = [Plan::Directory, Plan::Bitmaps].map(|plan| {
            let mut redis = redis.borrow_mut();
            let mut pair = Pair::new(&mut redis, plan);
            for (sku, numbers) in skus.iter().zip(&all) {
                if let Some(numbers) = numbers {
                    let offsets: Vec<_> = numbers.iter().map(|number| offset(*number)).collect();
                    pair.put(sku, 1, false, &offsets);
                }
            }
            pair.query(&requested, &skus)
        });
        prop_assert_eq!(&replies[0], &replies[1]);
        for (stored, numbers) in replies[0].iter().zip(&all) {
            let has = |numbers: &Vec<u32>, offset: &Offset| numbers.contains(&offset.get());
            let expected = match numbers {
                None => StoredAnswer::Absent,
                Some(numbers) => StoredAnswer::Known(
                    (0..requested.len())
                        .map(|at| u8::from(has(numbers, &requested[at])) << at)
                        .sum(),
                ),
            };
            prop_assert_eq!(*stored, expected);
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn lost_fitment_key_reads_as_unknown() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, Plan::Directory);
    let (sparse, dense) = (sku(0), sku(1));
    let many: Vec<_> = (1..=600).chain([50_001]).map(offset).collect();
    pair.put(&sparse, 1, false, &[offset(7)]);
    pair.put(&dense, 1, false, &many);
    let skus = [sparse.clone(), dense.clone()];
    assert_eq!(pair.query(&[offset(7)], &skus), [StoredAnswer::Known(1); 2]);
    pair.lose(&LostKey::Set(sparse.clone()));
    pair.lose(&LostKey::Bitmap(dense.clone(), 0));
    assert_eq!(pair.query(&[offset(7)], &skus), [StoredAnswer::Lost; 2]);
    // Other keys still answer, and so does an empty segment.
    assert_eq!(
        pair.query(&[offset(50_001), offset(120_000)], &skus[1..]),
        [StoredAnswer::Known(1)]
    );
    // An increment does not treat a lost key as empty.
    assert_eq!(
        pair.add(&sparse, [1, 2], &[offset(9)], &[]),
        ChangeOutcome::NeedsWhole
    );
    assert_eq!(
        pair.add(&dense, [1, 2], &[offset(9)], &[]),
        ChangeOutcome::NeedsWhole
    );
    // Writing the same version again repairs it.
    assert!(pair.put(&sparse, 1, false, &[offset(7)]));
    assert_eq!(
        pair.query(&[offset(7)], &skus[..1]),
        [StoredAnswer::Known(1)]
    );
    pair.lose(&LostKey::Directory);
    assert_eq!(pair.query(&[offset(7)], &skus), [StoredAnswer::Absent; 2]);
}

#[test]
fn routes_follow_their_versions() {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(100)
    };
    let step = (
        0..40_u32,
        1..6_u64,
        prop::bool::weighted(0.1),
        prop::option::of(0..4_u8),
    );
    let steps = prop::collection::vec(prop::collection::vec(step, 1..30), 1..6);
    let run = TestRunner::new(config).run(&steps, |steps| {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("route{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (mut redis, mut model) = (redis.borrow_mut(), Routes::default());
        for routes in steps {
            let is_forced = routes[0].2;
            let newer = if is_forced {
                NewerEntryPolicy::IsReplaced
            } else {
                NewerEntryPolicy::Stays
            };
            let routes: Vec<_> = routes
                .into_iter()
                .map(|(sku, version, _, place)| {
                    let place = place.map(|number| Placement {
                        cluster: Cluster::home(),
                        spu: Spu::new(format!("P{number}")).unwrap(),
                    });
                    (Sku::new(format!("S{sku}")).unwrap(), version, place)
                })
                .collect();
            let new = routes.iter().map(|(sku, version, place)| NewRoute {
                sku,
                version: *version,
                place: place.as_ref(),
            });
            let mut count = |calls: Vec<Call>| -> usize {
                let one = |call| fit_route_put::parse(&redis.run(call)).unwrap();
                calls.iter().map(one).sum()
            };
            let written = count(fit_route_put::calls(&prefix, newer, new));
            let expected = routes
                .iter()
                .filter(|(sku, version, place)| model.put(sku, *version, is_forced, place.clone()));
            assert_eq!(written, expected.count());
            let some: Vec<_> = routes
                .iter()
                .map(|(sku, version, _)| (sku, version / 2))
                .collect();
            let forgotten = count(fit_route_put::forget(&prefix, some.iter().copied()));
            let expected = some
                .iter()
                .filter(|(sku, version)| model.forget(sku, *version));
            assert_eq!(forgotten, expected.count());
            let all: Vec<_> = (0..40)
                .map(|n| Sku::new(format!("S{n}")).unwrap())
                .collect();
            for (call, indices) in fit_route::calls(&prefix, &all) {
                let found = fit_route::parse(&redis.run(&call), indices.len()).unwrap();
                for (index, route) in indices.into_iter().zip(found) {
                    let route = route.map(|route| (route.version, route.place));
                    assert_eq!(route.as_ref(), model.get(&all[index]));
                }
            }
        }
        Ok(())
    });
    run.unwrap();
}
