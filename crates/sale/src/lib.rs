//! The decisions of flash sales.
//!
//! Facts come in as arguments, decisions go out as values. There is no host call, clock, I/O or
//! randomness here: time is an argument (`now_ms`, milliseconds since the Unix epoch), and what
//! should happen next is a returned value that the caller carries out. `#![no_std]` holds the
//! crate to that.
//!
//! | module | decides |
//! |---|---|
//! | [`sale`] | what gateways know of a sale, and whether its window is open |
//! | [`shard`] | where a user is at home, how stock is spread |
//! | [`sold_out`] | what a gateway remembers of empty shards |
//! | [`admission`] | the chain: reject at once, or claim on a shard |
//! | [`status`] | what a sale looks like to those who wait for it |
//! | [`verdict`] | the words and statuses that users see |
//! | [`message`] | what people are told, by code and language |
//! | [`claim`] | the signed ticket that a granted request carries to the origin |
//! | [`identity`] | the signed user of a request that carries no claim |
//! | [`token`] | the order token that the checkout gives and the order brings |
//! | [`challenge`] | the proof of work that a checkout may want first |
//! | [`ledger`] | the words of the claim protocol; with the feature `model`, the model that the Lua is checked against |
//! | [`mark`] | whether SQL has lost commits that Redis was told of |
//! | [`rebalance`] | how stock comes to a shard that has none while others have some |
//! | [`repair`] | whether the books add up, and what would make them |
//! | [`feed`] | the sold-out feed, for edges |
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
