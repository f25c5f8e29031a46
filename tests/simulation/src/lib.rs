//! Flash sales, limits, links and waiting rooms on one virtual clock, under random faults.
//!
//! A schedule is made from a seed: who takes part, who comes, and faults at random times. It runs in one thread without a real
//! clock, socket or file, so the same seed gives the same run, and a few milliseconds are enough for one.
//!
//! | subject | real | models | what must hold |
//! |---|---|---|---|
//! | [`Sales`] | [`weir_sale::engine::Gate`] | Redis ([`weir_sale::ledger::ShardLedger`]), origins on the same pure decisions, SQL | `witness`, `finish` |
//! | [`Limits`] | [`weir_limit::engine::Limiter`] | Redis ([`weir_limit::State`]), the document with rules | `limits/witness`, `limits/finish` |
//! | [`Links`] | [`weir_link::engine::Links`] | Redis (strings, streams, the scripts of links), the origin, SQL | `links/witness`, `links/finish` |
//! | [`Rooms`] | [`weir_room::engine::WaitingRoom`] | Redis ([`weir_room::model`]) | `rooms/witness`, `rooms/finish` |
//!
//! Gateways are real engines, several workers each, in one small host that applies their effects (`host`). `stage` is what
//! limits, links and waiting rooms have in common.
//!
//! Faults: lost, doubled, late and cut calls; dead and paused gateways, single workers that die; dead and stalled origins;
//! Redis that stands still, or restarts, with all its data, with what it held a moment ago, or empty; clocks that are set;
//! clients who leave; transactions that fail or whose commit nobody hears of; SQL that fails over to a replica that was behind;
//! rules that change; claims that nobody signed.
//!
//! After each step the invariants that always hold are checked. At the end all faults are over, everything comes to rest, and
//! exactly what is left must be sold, let pass or led on, with the right answer to everybody.
//!
//! A failure names its seed, and is shrunk to the fewest faults and clients that still fail. That the simulation would
//! find mistakes is shown by [`Mutation`]: each is a rule of the protocol that is broken.

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
pub use stats::Stats;
pub use witness::Violation;

/// The users who come when all faults are over: more than there are units.
const USERS_AT_THE_END: std::ops::Range<u32> = 100..118;

/// How schedules run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a party does wrong.
    pub mutation: Option<Mutation>,
    /// Whether what happens is kept as text.
    pub keeps_lines: bool,
}

/// What came of one schedule.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What must not be, if anything was.
    pub violation: Option<Violation>,
    /// What has happened, as one number.
    pub trace_hash: u64,
    /// The same as text, if that was wanted.
    pub lines: Vec<String>,
    /// What it was made of.
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

// Tests from outside, in the executable of those from inside: one less to link, and none of the program.
#[cfg(test)]
extern crate self as weir_simulation;
#[cfg(test)]
#[path = "../tests/mutations.rs"]
mod mutations;
#[cfg(test)]
#[path = "../tests/schedules.rs"]
mod schedules;
