//! How often may be asked, in memory that does not grow.
//!
//! - [`Quota`]: an [`Algorithm`] and its numbers. [`State`] is what is kept of one key, and knows what
//!   a request may do and what it leaves behind.
//! - [`Slot`]: the states of up to [`WAYS`] keys, as one value of a table with a fixed number of them.
//! - [`table`]: states of many keys, in memory that all workers share.
//! - [`engine`]: the engine of the filter; [`redis`]: Redis keys, and typed calls of the scripts in `lua/`.
//! - [`rules`]: which requests a rule concerns, by which key, and what it allows.
//!
//! The algorithms, for `rate` requests per `per_ms`:
//!
//! | | admits | what is kept |
//! |---|---|---|
//! | [`Algorithm::Gcra`] | never more than `burst + rate·t` in any time `t` | 24 bytes |
//! | [`Algorithm::SlidingWindow`] | never more than `rate` in any `per_ms`; a request may count for up to a seventh of `per_ms` longer | 80 bytes |
//! | [`Algorithm::FixedWindow`] | never more than `rate` in a window that begins at a multiple of `per_ms`; around its edge up to twice that | 16 bytes |
//! | [`Algorithm::Concurrency`] | never more than `rate` at once; a request that lasts longer than `per_ms` may no longer count | 24 bytes |
//!
//! **When the clock goes back** by up to [`SET_BACK_MS_MAX`], as between two workers that write in another
//! order than they read the clock, nothing is forgotten: time stands still meanwhile. A state from
//! further ahead is that of another clock, and counts as none.
//!
//! **What a crowded slot does:** a key's hash names its one slot, in which it has one of [`WAYS`]
//! places. A new key takes the place of the one whose state is of no more use, or soonest will be. Where
//! that one still was of use, its owner has its whole quota again: the limit errs on the side of
//! letting pass, and never refuses anyone for what another one did. Whoever wants to make use of it needs
//! many names or addresses that fall into the slot of the first, each of which is limited itself, and
//! does not know which do, as the hash has a secret seed.
//!
//! How many that are: a key is forgotten before its time if [`WAYS`] others come to its slot in that time. Where
//! keys come evenly and a part `p` of all places is in use at any time, so many come as a Poisson distribution of
//! the mean `8p` has it, and the share of keys that are forgotten is that of 8 and more:
//!
//! | places in use | 1/8 | 1/4 | 3/8 | 1/2 | 3/4 |
//! |---|---|---|---|---|---|
//! | keys forgotten before their time | 0.001 % | 0.11 % | 1.2 % | 5.1 % | 26 % |
//!
//! The oldest goes first, so most have little of their time left. A table that has four times as many places as
//! there are keys in use loses next to none. The tests of [`table`] hold a table to this with a million keys.

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

/// By how much the clock may go back, in milliseconds, without a state being forgotten for it: two
/// workers read the clock one after the other and write in the other order, and a clock that is kept
/// by NTP takes small steps. Who asks meanwhile may have to wait so much longer.
pub const SET_BACK_MS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests;
