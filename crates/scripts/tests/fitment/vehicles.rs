//! The vehicle map and the pages of SKUs that fit a vehicle.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_fitment::check::Browse;
use weir_fitment::model::{Map, MapPutOutcome};
use weir_fitment::redis::fit_browse::Page;
use weir_fitment::redis::fit_vehicles::{Head, VehicleMapVersion};
use weir_fitment::redis::fit_vehicles_put::{MapPiece, VehiclesPutOutcome};
use weir_fitment::redis::keys::{VehicleMapKeys, fitment_pages};
use weir_fitment::redis::{fit_browse, fit_browse_fill, fit_vehicles, fit_vehicles_put};
use weir_fitment::{SEGMENT_LEN, VehicleId};

use crate::support::{Redis, Server};

struct Pair<'a> {
    redis: &'a mut Redis,
    keys: VehicleMapKeys,
    model: Map,
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u32, u32, Option<(u32, u64)>),
    Read(u64, u32, u32),
    Lose(Option<(u64, u32)>),
}

fn ids(before: u32, count: u32) -> Vec<Option<VehicleId>> {
    let id = |number| VehicleId::from_number(1_000_000 + number).unwrap();
    // Every seventh vehicle is retired.
    (before..before + count)
        .map(|number| (number % 7 != 3).then(|| id(number)))
        .collect()
}

impl Pair<'_> {
    fn put(
        &mut self,
        generation: u64,
        before: u32,
        count: u32,
        head: Option<(u32, u64)>,
    ) -> VehiclesPutOutcome {
        let vehicles = ids(before, count);
        let new_head = head.map(|(count, stamp)| Head {
            generation,
            count,
            stamp,
        });
        let chunk = MapPiece {
            before,
            vehicles: &vehicles,
        };
        let call = fit_vehicles_put::call(&self.keys, generation, chunk, new_head);
        let written = fit_vehicles_put::parse(&self.redis.run(&call)).unwrap();
        let expected = match self.model.put(generation, before, &vehicles, head) {
            MapPutOutcome::Done => VehiclesPutOutcome::Done,
            MapPutOutcome::Superseded => VehiclesPutOutcome::Superseded,
            MapPutOutcome::Hole => VehiclesPutOutcome::Hole,
        };
        assert_eq!(written, expected);
        written
    }

    fn read(&mut self, generation: u64, count: u32, max: u32) -> Option<fit_vehicles::Tail> {
        let call = fit_vehicles::call(&self.keys, VehicleMapVersion { generation, count }, max);
        let tail = fit_vehicles::parse(&self.redis.run(&call)).unwrap();
        let replies = tail.clone().map(|tail| {
            let Head {
                generation,
                count,
                stamp,
            } = tail.head;
            ((generation, count, stamp), tail.vehicles)
        });
        assert_eq!(replies, self.model.get(generation, count, max));
        tail
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(generation, before, count, head) => {
                let _ = self.put(*generation, *before, *count, *head);
            }
            Step::Read(generation, count, max) => drop(self.read(*generation, *count, *max)),
            Step::Lose(block) => {
                let key = match block {
                    None => self.keys.head(),
                    Some((generation, segment)) => self.keys.block(*generation, *segment),
                };
                self.redis.command(&[b"DEL", &key]);
                self.model.lose(*block);
            }
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let before =
        prop_oneof![3 => 0..20_u32, 1 => Just(SEGMENT_LEN), 1 => SEGMENT_LEN..SEGMENT_LEN + 9];
    let head = prop::option::weighted(0.7, (0..60_000_u32, 0..9_u64));
    let block = prop::option::of((1..4_u64, 0..2_u32));
    prop_oneof![
        5 => (1..4_u64, before.clone(), 0..12_u32, head)
            .prop_map(|(generation, before, count, head)| Step::Put(generation, before, count, head)),
        3 => (0..4_u64, before, 1..20_u32)
            .prop_map(|(generation, count, max)| Step::Read(generation, count, max)),
        1 => block.prop_map(Step::Lose),
    ]
}

#[test]
fn vehicle_map_in_redis_matches_the_model() {
    let server = Server::start();
    let redis = RefCell::new(server.connect());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(250)
    };
    let steps = prop::collection::vec(any_step(), 1..25);
    let run = TestRunner::new(config).run(&steps, |steps| {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("map{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut redis = redis.borrow_mut();
        let mut pair = Pair {
            redis: &mut redis,
            keys: VehicleMapKeys::new(&prefix),
            model: Map::default(),
        };
        steps.iter().for_each(|step| pair.step(step));
        Ok(())
    });
    run.unwrap();
}

/// A gateway that starts without data, a generation that ends during a read, and the remaining blocks.
#[test]
fn gateway_reads_a_whole_map_first_and_then_only_changes() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair {
        redis: &mut redis,
        keys: VehicleMapKeys::new("map"),
        model: Map::default(),
    };
    assert_eq!(pair.read(0, 0, 100), None);
    assert_eq!(pair.put(1, 0, SEGMENT_LEN, None), VehiclesPutOutcome::Done);
    assert_eq!(pair.read(0, 0, 100), None, "the head comes last");
    pair.put(1, SEGMENT_LEN, 10, Some((SEGMENT_LEN + 10, 5)));
    let mut existing = Vec::new();
    let mut generation = 0;
    let mut reads = 0;
    loop {
        let tail = pair
            .read(generation, existing.len() as u32, 20_000)
            .unwrap();
        reads += 1;
        if tail.head.generation != generation {
            generation = tail.head.generation;
            existing.clear();
            continue;
        }
        existing.extend(tail.vehicles);
        if existing.len() == tail.head.count as usize {
            break;
        }
    }
    assert_eq!((reads, existing), (5, ids(0, SEGMENT_LEN + 10)));
    // A vehicle is added.
    pair.put(1, SEGMENT_LEN + 10, 1, Some((SEGMENT_LEN + 11, 5)));
    let tail = pair.read(1, SEGMENT_LEN + 10, 20_000).unwrap();
    assert_eq!(tail.vehicles, ids(SEGMENT_LEN + 10, 1));
    // One is retired: this starts the next generation and deletes the old blocks.
    pair.put(2, 0, SEGMENT_LEN, None);
    pair.put(2, SEGMENT_LEN, 11, Some((SEGMENT_LEN + 11, 5)));
    let tail = pair.read(1, SEGMENT_LEN + 11, 20_000).unwrap();
    assert_eq!((tail.head.generation, tail.vehicles.len()), (2, 0));
    assert_eq!(
        pair.put(1, 0, 1, Some((1, 9))),
        VehiclesPutOutcome::Superseded
    );
    let keys = pair.redis.command(&[b"KEYS", b"map:*"]);
    let Value::Array(keys) = keys else {
        panic!("{keys:?}");
    };
    assert_eq!(keys.len(), 3, "{keys:?}");
    // Redis has lost the block that is extended.
    pair.redis.command(&[b"DEL", &pair.keys.block(2, 1)]);
    pair.model.lose(Some((2, 1)));
    let hole = pair.put(2, SEGMENT_LEN + 11, 1, Some((SEGMENT_LEN + 12, 5)));
    assert_eq!(hole, VehiclesPutOutcome::Hole);
}

#[test]
fn pages_expire_with_their_stamp_or_their_lifetime() {
    let server = Server::start();
    let mut redis = server.connect();
    let vehicle: VehicleId = "1000001".parse().unwrap();
    let fill = |redis: &mut Redis, after, stamp, json: &str| {
        let page = Page {
            stamp,
            json: json.into(),
        };
        let browse = Browse { vehicle, after };
        let call = fit_browse_fill::call("by", &browse, &page, 60_000);
        fit_browse_fill::parse(&redis.run(&call)).unwrap()
    };
    let read = |redis: &mut Redis, after| {
        let call = fit_browse::call("by", &Browse { vehicle, after });
        let page = fit_browse::parse(&redis.run(&call)).unwrap();
        page.map(|page| (page.stamp, String::from_utf8(page.json).unwrap()))
    };
    assert_eq!(read(&mut redis, 0), None);
    assert!(fill(&mut redis, 0, 3, "a"));
    assert!(fill(&mut redis, 9, 3, "b"));
    assert_eq!(read(&mut redis, 0), Some((3, "a".into())));
    assert_eq!(read(&mut redis, 9), Some((3, "b".into())));
    let key = fitment_pages("by", vehicle);
    let Value::Integer(life_ms) = redis.command(&[b"PTTL", &key]) else {
        panic!("no life");
    };
    assert!((1..=60_000).contains(&life_ms));
    assert!(fill(&mut redis, 9, 4, "c"));
    assert_eq!(read(&mut redis, 0), None, "an older stamp goes");
    assert!(!fill(&mut redis, 0, 3, "d"), "who comes late");
    for after in 10..200 {
        fill(&mut redis, after, 4, "e");
    }
    let length = redis.command(&[b"HLEN", &key]);
    assert_eq!(
        length,
        Value::Integer(1 + fit_browse_fill::PAGES_MAX as i64)
    );
}
