//! Ten thousand random schedules of all events of lists: views that arrive late, twice and in any order; deletions,
//! clearings, joins, folds by two origins, and concurrent readers. Origins crash between any two steps. Redis loses
//! everything, or all changes since its last file, and lists expire. Each step is one call to Redis, SQL or the cold
//! store. No view may be lost or shown twice, and removed views must not return.
//!
//! `SCHEDULES=<number>` sets the number of schedules, `SCHEDULE=<seed>` runs a single one.

#![allow(clippy::indexing_slicing)]

mod steps;
mod world;

use world::World;

const SCHEDULES: u64 = 10_000;
const STEPS: u64 = 250;

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.turn();
    }
    world.end();
    world.check_end();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_schedule_loses_duplicates_or_restores_views() {
    if let Some(seed) = number("SCHEDULE") {
        return run(seed);
    }
    for seed in 0..number("SCHEDULES").unwrap_or(SCHEDULES) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("schedule {seed} fails: run it alone by SCHEDULE={seed}");
        }
    }
}
