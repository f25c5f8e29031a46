//! Ten thousand random schedules of everything that happens to lists: views, delivered late, twice and in any order;
//! deletions, clearings, joins, folds by two origins, readers in between; origins that die between any two steps; a Redis
//! that loses all, or what it was told since its file was written, and lists that expire. What the origin does is here as steps, each of which is one call on Redis, on SQL
//! or on the cold store. No view may be lost or shown twice, and nothing that was removed may come back.
//!
//! `SCHEDULES=<number>` runs more, `SCHEDULE=<seed>` one of them.

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
fn nothing_is_lost_nothing_is_doubled_and_nothing_comes_back() {
    if let Some(seed) = number("SCHEDULE") {
        return run(seed);
    }
    for seed in 0..number("SCHEDULES").unwrap_or(SCHEDULES) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("schedule {seed} fails: run it alone by SCHEDULE={seed}");
        }
    }
}
