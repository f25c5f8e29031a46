//! Violates each rule of the protocol: the simulation must detect it.

#![allow(clippy::expect_used, clippy::panic)]

use std::thread::available_parallelism;

use weir_simulation::{Limits, Links, Mutation, Options, Rooms, Sales, Schedule, Sites, run_many};

/// The first seed of each search.
const SEED: u64 = 1;

/// The maximum number of schedules to detect a mutation.
const SCHEDULES_MAX: u64 = 4_000;

/// Each mutation is detected, and without it the same schedules pass.
fn all_are_caught<S: Schedule>(mutations: &[Mutation]) {
    let threads = available_parallelism().map_or(1, usize::from);
    let mut longest = 0;
    for &mutation in mutations {
        let options = Options {
            mutation: Some(mutation),
            ..Options::default()
        };
        let outcome = run_many::<S>(SEED, SCHEDULES_MAX, threads, &options, |_| {});
        let report = outcome.failure;
        let report = report.unwrap_or_else(|| panic!("{mutation} is not caught"));
        let schedules = report.seed - SEED + 1;
        let subject = report.violation.expect("it failed").what;
        println!("{mutation}: {schedules} schedules: {subject}");
        assert!(!subject.starts_with("panic"), "{mutation}: {subject}");
        longest = longest.max(schedules);
    }
    let outcome = run_many::<S>(SEED, longest, threads, &Options::default(), |_| {});
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
}

#[test]
fn every_mutation_of_sales_is_caught() {
    all_are_caught::<Sales>(Mutation::SALES);
}

#[test]
fn every_mutation_of_two_sites_is_caught() {
    all_are_caught::<Sites>(Mutation::SITES);
}

#[test]
fn every_mutation_of_limits_is_caught() {
    all_are_caught::<Limits>(Mutation::LIMITS);
}

#[test]
fn every_mutation_of_links_is_caught() {
    all_are_caught::<Links>(Mutation::LINKS);
}

#[test]
fn every_mutation_of_waiting_rooms_is_caught() {
    all_are_caught::<Rooms>(Mutation::ROOMS);
}
