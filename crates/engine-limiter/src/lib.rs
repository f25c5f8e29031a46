//! Rate limits as an engine.
//!
//! The engine holds each request against the rules that match it ([`weir_limit::rules`]). Rules with the store `local` are
//! decided at once, in memory that all workers share. Rules in Redis wait in the pump, many requests a call. A request
//! is charged to all its rules or to none.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `limiter` | events in, effects out; what each stream has left to do |
//! | `decider` | which requests pass |
//! | `evaluation` | one request on its way through the rules |
//! | `ruleset` | the rules in force, with their tables and counters |
//! | `request` | the request as rules see it |
//! | `redis` | what a worker knows of Redis: its breaker, `lease`, `known` |
//! | `lease` | slices of limits, taken from Redis and spent here |
//! | `known` | what Redis has refused, for as long as it would refuse it again |
//! | `job` | what waits in the pump, and how it is grouped into script calls |
//! | `reload` | rules that are read from Redis |
//! | `answer` | what a refused client gets |
//! | `metrics` | the counters of one rule |

#![no_std]
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answer;
pub mod config;
mod decider;
mod evaluation;
mod job;
mod known;
mod lease;
mod limiter;
mod metrics;
mod redis;
mod reload;
mod request;
mod ruleset;

pub use limiter::Limiter;

/// The engine's name, in logs and metrics.
pub const NAME: &str = "ratelimit";
