//! Simulates flash sales, limits, links and waiting rooms on one virtual clock, under random faults.
//!
//! A seed determines a schedule: participants, clients, and faults at random times. It runs in one thread without a
//! real clock, socket or file, so that the same seed gives the same run, which takes a few milliseconds.
//!
//! | subject | real | models | invariants |
//! |---|---|---|---|
//! | [`Sales`] | [`weir_sale::engine::Gate`] | Redis ([`weir_sale::ledger::ShardLedger`]), origins, SQL | `witness`, `finish` |
//! | [`Sites`] | as sales, at two sites: a Redis, gateways and origins each | one SQL | as sales |
//! | [`Limits`] | [`weir_limit::engine::Limiter`] | Redis ([`weir_limit::State`]), rules | `limits/witness`, `limits/finish` |
//! | [`Links`] | [`weir_link::engine::Links`] | Redis (strings, streams), origin, SQL | `links/witness`, `links/finish` |
//! | [`Rooms`] | [`weir_room::engine::WaitingRoom`] | Redis ([`weir_room::model`]) | `rooms/witness`, `rooms/finish` |
//!
//! Gateways are real engines, several workers each, in one small host that applies their effects (`host`). `stage` is
//! the common part of limits, links and waiting rooms.
//!
//! Faults: lost, duplicated, late and truncated calls; crashed and paused gateways and workers; crashed and stalled
//! origins; a stalled Redis, or one that restarts with all its data, with earlier data, or empty; changed clocks;
//! clients that disconnect; parties that do not reach each other, and sites that are lost, failed, drained and joined; transactions that fail or whose commit is not reported; SQL failing over to a lagging
//! replica; changed rules; unsigned claims.
//!
//! Each step checks the invariants that always hold. At the end all faults are over and all work finishes. Then exactly
//! the remaining units, quotas and clicks must be available, with the right answer to every client.
//!
//! A failure reports its seed, and is shrunk to the fewest faults and clients that still fail. [`Mutation`]s show that
//! the simulation finds mistakes: each violates a rule of the protocol.

#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic)]

mod attempt;
mod client;
mod failover;
mod finish;
mod gateway;
mod host;
mod limits;
mod links;
mod mutation;
mod network;
mod operators;
mod origin;
mod plan;
mod queue;
mod random;
mod redis;
mod rooms;
mod runner;
mod sale_schedule;
#[cfg(test)]
mod scenarios;
mod schedule;
mod shrink;
mod sites;
mod sql;
mod stage;
mod stats;
mod trace;
mod witness;
mod world;

pub use limits::Plan as Limits;
pub use links::Plan as Links;
pub use mutation::Mutation;
pub use plan::Plan as Sales;
pub use rooms::Plan as Rooms;
pub use runner::{Outcome, run_many};
pub use schedule::Schedule;
pub use shrink::shrink;
pub use sites::Sites;
pub use stats::Stats;
pub use witness::Violation;

/// The users who come after all faults: more than the units.
const USERS_AT_THE_END: std::ops::Range<u32> = 100..118;

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The injected mistake, if any.
    pub mutation: Option<Mutation>,
    /// Whether to record events as text.
    pub keeps_lines: bool,
}

/// The result of one schedule.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// A hash of all events.
    pub trace_hash: u64,
    /// The events as text, if recorded.
    pub lines: Vec<String>,
    /// Statistics of the schedule.
    pub stats: Stats,
}

impl Report {
    fn panicked(seed: u64, text: &str) -> Self {
        Self {
            seed,
            violation: Some(Violation {
                at_us: 0,
                what: format!("panic: {text}"),
            }),
            trace_hash: 0,
            lines: vec![],
            stats: Stats::default(),
        }
    }
}

// External tests in the executable of the internal ones: one less to link. The program does not contain them.
#[cfg(test)]
extern crate self as weir_simulation;
#[cfg(test)]
#[path = "../tests/mutations.rs"]
mod mutations;
#[cfg(test)]
#[path = "../tests/schedules.rs"]
mod schedules;
