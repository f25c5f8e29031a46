//! Rate limits with bounded memory.
//!
//! - [`Quota`]: an [`Algorithm`] and its numbers. [`State`] is the stored state of one key: it checks and charges
//!   requests.
//! - [`Slot`]: the states of up to [`WAYS`] keys, as one value of a table with a fixed number of them.
//! - [`table`]: states of many keys, in memory shared by all workers.
//! - [`engine`]: the engine of the filter; [`redis`]: Redis keys, and typed calls of the scripts in `lua/`.
//! - [`rules`]: the requests of a rule, their keys, and the limits.
//!
//! The algorithms, for `rate` requests per `per_ms`:
//!
//! | | admits | state |
//! |---|---|---|
//! | [`Algorithm::Gcra`] | at most `burst + rate·t` in any time `t` | 24 bytes |
//! | [`Algorithm::SlidingWindow`] | at most `rate` in any `per_ms`; a request may count `per_ms`/7 too long | 80 bytes |
//! | [`Algorithm::FixedWindow`] | at most `rate` per window of `per_ms`; around its edge up to twice that | 16 bytes |
//! | [`Algorithm::Concurrency`] | at most `rate` at once; a request longer than `per_ms` may no longer count | 24 bytes |
//!
//! **When the clock is set back** by up to [`SET_BACK_MS_MAX`], states remain and time pauses. This happens when two
//! workers write in another order than they read the clock. A state from further in the future belongs to another clock
//! and is ignored.
//!
//! **When a slot is full:** a key's hash selects its slot, which has [`WAYS`] places. A new key evicts the state that
//! expires first. If that state was still in use, its key has its whole quota again. So the limit may admit too many
//! requests, but never refuses a key because of another one. An attacker who wants to exploit this needs many names or
//! addresses in the slot of the first, each of them limited itself. The attacker cannot find them, because the hash has
//! a secret seed.
//!
//! A key is evicted early if [`WAYS`] other keys arrive in its slot during its lifetime. If keys are evenly distributed
//! and a share `p` of all places is in use, the number of arrivals has a Poisson distribution with the mean `8p`. The
//! share of evicted keys is the probability of 8 or more:
//!
//! | places in use | 1/8 | 1/4 | 3/8 | 1/2 | 3/4 |
//! |---|---|---|---|---|---|
//! | keys evicted early | 0.001 % | 0.11 % | 1.2 % | 5.1 % | 26 % |
//!
//! The oldest state is evicted first, so most have little of their lifetime left. A table with four times as many
//! places as keys in use loses almost none. The tests of [`table`] verify this with a million keys.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod backlog;
pub mod engine;
mod in_flight;
mod log;
mod quota;
pub mod redis;
pub mod rules;
mod slot;
mod state;
pub mod table;
mod window;

pub use quota::{
    Algorithm, BURST_MAX, PER_MS_MAX, Quota, QuotaError, RATE_MAX, SLIDING_PER_MS_MAX,
};
pub use slot::{Fingerprint, Slot, WAYS};
pub use state::{Check, State};

/// How far the clock may go back, in milliseconds, before states are discarded. Two workers may read the clock in one
/// order and write in the other, and NTP makes small steps. Requests during this time may wait that much longer.
pub const SET_BACK_MS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests;
