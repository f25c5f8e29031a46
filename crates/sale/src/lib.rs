//! The domain logic of flash sales.
//!
//! Inputs are arguments and decisions are return values. The caller carries out the returned next step. There is no
//! host call, clock, I/O or randomness: time is an argument (`now_ms`, milliseconds since the Unix epoch). `#![no_std]`
//! enforces this.
//!
//! | module | content |
//! |---|---|
//! | [`sale`] | the gateways' catalogue of sales, and their time windows |
//! | [`shard`] | users' home shards, and the distribution of stock |
//! | [`site`] | sites: fences, and the distribution of stock over several Redis |
//! | [`sold_out`] | a gateway's memory of empty shards |
//! | [`admission`] | the chain: reject at once, or claim on a shard |
//! | [`status`] | the public status of a sale |
//! | [`verdict`] | the verdicts' labels and HTTP statuses |
//! | [`message`] | messages for users, by code and language |
//! | [`claim`] | the signed ticket of a granted request |
//! | [`identity`] | the signed user of a request without a claim |
//! | [`token`] | the order token, issued at the checkout and required by the order |
//! | [`challenge`] | the proof of work before a checkout |
//! | [`ledger`] | the types of the claim protocol; with the feature `model`, the model for tests of the Lua |
//! | [`mark`] | detects commits that SQL has lost |
//! | [`rebalance`] | transfers stock to an empty shard |
//! | [`repair`] | checks the stock balance and computes repairs |
//! | [`feed`] | the sold-out feed for edges |
//! | [`engine`] | the engine of its filter: events in, effects out |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![cfg_attr(not(feature = "openapi"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod admission;
pub mod challenge;
pub mod claim;
pub mod engine;
pub mod feed;
pub mod idempotency;
pub mod identity;
pub mod ledger;
pub mod mark;
pub mod message;
pub mod rebalance;
pub mod redis;
pub mod repair;
pub mod sale;
pub mod shard;
pub mod site;
pub mod sold_out;
pub mod status;
pub mod token;
pub mod verdict;

/// Keys for tests.
#[cfg(test)]
pub(crate) mod keys {
    use weir_base::key::{KeyRing, SigningKey};

    pub(crate) fn key(id: &str, byte: u8) -> SigningKey {
        SigningKey::new(id, &[byte; 32]).unwrap()
    }

    pub(crate) fn ring(keys: &[(&str, u8)]) -> KeyRing {
        KeyRing::new(keys.iter().map(|&(id, byte)| key(id, byte)).collect()).unwrap()
    }
}
