//! Checks the design goals: the memory of a relation, and the time of 1,000 pairs.

use weir_base::resp::Value;
use weir_fitment::redis::fit_add::Change;
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::keys::FitmentKeys;
use weir_fitment::redis::{fit_add, fit_put, fit_query};
use weir_fitment::{Plan, SEGMENT_LEN, Shape, Sku, Spu};
use weir_scripts::Call;

use super::{Offset, offset};
use crate::support::{Redis, Server};

/// The number of vehicles in the design.
const VEHICLES: u32 = 400_000;
const SKUS: u32 = 200;

fn memory(redis: &mut Redis, key: &[u8]) -> i64 {
    match redis.command(&[b"MEMORY", b"USAGE", key, b"SAMPLES", b"0"]) {
        Value::Integer(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn used(redis: &mut Redis) -> u64 {
    let Value::Bulk(text) = redis.command(&[b"INFO", b"memory"]) else {
        panic!("no memory");
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}

/// Offsets spread evenly over all vehicles, different for each SKU.
fn spread(sku: u32, count: u32) -> Vec<Offset> {
    let step = VEHICLES / count;
    let shift = sku.wrapping_mul(2_654_435_761) % step;
    (0..count).map(|at| offset(1 + shift + at * step)).collect()
}

fn skus() -> Vec<Sku> {
    (0..SKUS)
        .map(|number| Sku::new(format!("{}", 100_012_043_000_u64 + u64::from(number))).unwrap())
        .collect()
}

fn put(redis: &mut Redis, keys: &FitmentKeys, sku: &Sku, shape: &Shape) {
    let call = fit_put::call(keys, sku, 1_700_000, NewerEntryPolicy::Stays, shape);
    assert!(fit_put::parse(&redis.run(&call)).unwrap());
}

#[test]
fn full_segment_takes_at_most_7300_bytes_in_any_encoding() {
    let server = Server::start();
    let mut redis = server.connect();
    let keys = FitmentKeys::new("weir", &Spu::new("100012043000").unwrap());
    let [whole, grown] = [&skus()[0], &skus()[1]];
    let all: Vec<_> = (1..=SEGMENT_LEN).map(offset).collect();
    put(
        &mut redis,
        &keys,
        whole,
        &Shape::from_offsets(Plan::Directory, &all, 8),
    );
    // The other one grows by increments, from the front.
    put(
        &mut redis,
        &keys,
        grown,
        &Shape::from_offsets(Plan::Directory, &all[..600], 8),
    );
    for (index, some) in all[600..].chunks(fit_add::OFFSETS_MAX).enumerate() {
        let added: Vec<_> = some.iter().rev().copied().collect();
        let change = Change {
            from_version: 1_700_000 + index as u64,
            to_version: 1_700_001 + index as u64,
            added: &added,
            removed: &[],
        };
        let reply = redis.run(&fit_add::call(&keys, grown, &change));
        assert_eq!(
            fit_add::parse(&reply).unwrap(),
            fit_add::ChangeOutcome::Done
        );
    }
    for sku in [whole, grown] {
        let key = keys.bitmap(sku, 0);
        assert_eq!(redis.command(&[b"STRLEN", &key]), Value::Integer(6_251));
        assert_eq!(redis.command(&[b"BITCOUNT", &key]), Value::Integer(50_001));
        let bytes = memory(&mut redis, &key);
        println!("bytes of Redis a full segment: {bytes}");
        assert!(bytes <= 7_300, "{bytes}");
    }
}

/// Includes the share of directory and keyspace: measured as the difference in Redis' total memory.
#[test]
fn sku_of_100_vehicles_takes_1_kb_and_a_twentieth_of_seed_plan() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut of = |plan, name: &str| {
        let keys = FitmentKeys::new("weir", &Spu::new(name).unwrap());
        let before = used(&mut redis);
        for (sku, number) in skus().iter().zip(0..) {
            let shape = Shape::from_offsets(plan, &spread(number, 100), VEHICLES / SEGMENT_LEN);
            put(&mut redis, &keys, sku, &shape);
        }
        (used(&mut redis) - before) as f64 / f64::from(SKUS)
    };
    let _ = of(Plan::Directory, "warm");
    let _ = of(Plan::Bitmaps, "warm");
    let (hybrid, seed) = (of(Plan::Directory, "P1"), of(Plan::Bitmaps, "P2"));
    println!("bytes of Redis a SKU at 100 vehicles: {hybrid:.0}; bitmaps alone: {seed:.0}");
    assert!(hybrid <= 1_000.0, "{hybrid}");
    assert!(hybrid <= seed / 20.0, "{hybrid} {seed}");
}

/// The number of EVALSHA calls and their time, in microseconds.
fn script_time(redis: &mut Redis, calls: &[Call], rounds: u32) -> f64 {
    calls.iter().for_each(|call| drop(redis.run(call)));
    redis.command(&[b"CONFIG", b"RESETSTAT"]);
    for _ in 0..rounds {
        calls.iter().for_each(|call| drop(redis.run(call)));
    }
    let Value::Bulk(text) = redis.command(&[b"INFO", b"commandstats"]) else {
        panic!("no statistics");
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let us = line.unwrap().split("usec=").nth(1).unwrap();
    let us: f64 = us.split(',').next().unwrap().parse().unwrap();
    us / f64::from(rounds)
}

/// The cost of 1,000 pairs. Times depend on the machine: the test only prints them, and `cargo xtask bench fitment`
/// measures them. Everywhere, it is one call with the same answers.
#[test]
fn thousand_fitment_pairs_take_one_call() {
    let server = Server::start();
    let mut redis = server.connect();
    let skus = skus();
    let vehicles = [1, 50_001, 120_000, 230_000, 399_999].map(offset);
    for (name, count) in [("few", 100), ("many", 500)] {
        let mut answers = Vec::new();
        for plan in [Plan::Directory, Plan::Bitmaps] {
            let keys = FitmentKeys::new("weir", &Spu::new(format!("{name}{plan:?}")).unwrap());
            for (sku, number) in skus.iter().zip(0..) {
                let mut offsets = spread(number, count);
                offsets.push(vehicles[number as usize % 5]);
                offsets.sort_unstable();
                offsets.dedup();
                put(
                    &mut redis,
                    &keys,
                    sku,
                    &Shape::from_offsets(plan, &offsets, VEHICLES / SEGMENT_LEN),
                );
            }
            let calls = fit_query::calls(plan, &keys, &vehicles, skus.iter());
            assert_eq!(calls.len(), if plan == Plan::Directory { 1 } else { 5 });
            let us = script_time(&mut redis, &calls, 300);
            println!("1,000 pairs at {count} vehicles a SKU, {plan:?}: {us:.0} µs of Redis");
            let replies: Vec<_> = calls.iter().map(|call| redis.run(call)).collect();
            answers.push(fit_query::parse(plan, &replies, 5, skus.len()).unwrap());
        }
        assert_eq!(answers[0], answers[1]);
    }
}
