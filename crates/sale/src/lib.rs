//! Weir's decisions.
//!
//! Facts come in as arguments, decisions go out as values. There is no host call, clock, I/O or
//! randomness here: time is an argument (`now_ms`, milliseconds since the Unix epoch), and what
//! should happen next is a returned value that the caller carries out. `#![no_std]` holds the
//! crate to that.
//!
//! | module | decides |
//! |---|---|
//! | [`id`] | which sale ids and user ids are well formed |
//! | [`sale`] | what gateways know of a sale, and whether its window is open |
//! | [`shard`] | where a user is at home, how stock is spread |
//! | [`sold_out`] | what a gateway remembers of empty shards |
//! | [`admission`] | the chain: reject at once, or claim on a shard |
//! | [`status`] | what a sale looks like to those who wait for it |
//! | [`verdict`] | the words, statuses and messages that users see |
//! | [`claim`] | the signed ticket that a granted request carries to the origin |
//! | [`identity`] | the signed user of a request that carries no claim |
//! | [`token`] | the order token that the checkout gives and the order brings |
//! | [`limit`] | whether a user or an address asks more often than it may |
//! | [`rules`] | which requests a rule of the rate limiter concerns, by which key, and what it allows |
//! | [`address`] | which addresses count as one |
//! | [`breaker`] | whether what failed too often may be asked |
//! | [`key`] | named secrets, what they sign, and their rotation |
//! | [`ledger`] | the claim protocol itself, as the model that the Lua is checked against |
//! | [`rebalance`] | how stock comes to a shard that has none while others have some |
//! | [`repair`] | whether the books add up, and what would make them |
//! | [`link`] | which codes short links have, where they may lead, and how they are answered |
//! | [`headers`] | the names of Weir's own headers |

#![no_std]
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod admission;
pub mod breaker;
pub mod claim;
pub mod headers;
pub mod id;
pub mod identity;
pub mod key;
pub mod ledger;
pub mod limit;
pub mod link;
pub mod rebalance;
pub mod repair;
pub mod rules;
pub mod sale;
pub mod shard;
pub mod sold_out;
pub mod status;
pub mod token;
pub mod verdict;
