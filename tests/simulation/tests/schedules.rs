//! Many schedules, and one of them twice.

use std::thread::available_parallelism;

use weir_simulation::{Options, Plan, run_many, run_plan, shrink};

/// The first seed. Each schedule has the next one, so a failure is the same on every machine.
const SEED: u64 = 1;

const SCHEDULES: u64 = 2_000;

#[test]
fn every_sale_sells_exactly_its_stock_whatever_breaks() {
    println!("seeds from {SEED} on");
    let options = Options::default();
    let threads = available_parallelism().map_or(1, usize::from);
    let outcome = run_many(SEED, SCHEDULES, threads, &options, |_| {});
    if let Some(report) = outcome.failure {
        let (small, report) = shrink(&Plan::new(report.seed), &options);
        panic!(
            "seed {} fails, shrunk: {:?}\n{small}again: cargo run -p weir-simulation -- --seed {} --schedules 1",
            report.seed, report.violation, report.seed
        );
    }
    // A simulation in which little happens finds little.
    let stats = outcome.stats;
    assert_eq!(stats.schedules, SCHEDULES);
    assert!(stats.orders > 3 * SCHEDULES, "{stats:?}");
    assert_eq!(stats.faults.len(), 13, "every kind of fault: {stats:?}");
    assert!(stats.faults.values().all(|&count| count > 100), "{stats:?}");
    assert_eq!(stats.feedback.len(), 3, "{stats:?}");
    assert!(
        stats.feedback.values().all(|&count| count > 100),
        "{stats:?}"
    );
    assert!(stats.units_repaired > 100, "{stats:?}");
    for word in [
        "sold_out",
        "restocking",
        "unavailable",
        "overloaded",
        "cap_reached",
        "ordered_before",
        "key_reused",
        "in_progress",
        "blocked",
        "not_reserved",
    ] {
        assert!(stats.answers.contains_key(word), "nobody heard {word}");
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    let hash = |seed| run_plan(&Plan::new(seed), &Options::default()).trace_hash;
    for seed in 1..=50 {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(1), hash(2));
}
