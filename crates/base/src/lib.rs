//! What the domains (`weir-sale`, `weir-limit`, `weir-link`) share.
//!
//! There is no host call, clock, I/O or randomness here or in the domains: time is an argument (`now_ms`,
//! milliseconds since the Unix epoch). `#![no_std]` holds them to that.
//!
//! | module | |
//! |---|---|
//! | [`accept`] | the media type that a client prefers |
//! | [`address`] | which addresses count as one |
//! | [`agent`] | who asks: crawlers, prefetches |
//! | [`breaker`] | the circuit breaker: whether what failed too often may be asked |
//! | [`bytes`] | comparisons of short byte strings |
//! | [`duration`] | durations as people write them |
//! | [`feed`], [`stamp`] | documents that the origin signs for edges; requests that edges sign |
//! | [`hash`] | seeded hashes that all bits of are even |
//! | [`headers`] | the names of Weir's own headers |
//! | [`id`] | which sale ids and user ids are well formed |
//! | [`key`] | named secrets, what they sign, and their rotation |
//! | [`language`] | the language in which somebody is told something |
//! | [`method`] | the methods of HTTP |
//! | [`permutation`] | keyed permutations of ranges of numbers |
//! | [`resp`] | RESP2, the protocol of Redis |
//! | [`problem`] | refusals as problem details (RFC 9457) |
//! | [`shared_data`] | memory that the workers of a gateway share |
//! | [`FieldError`] | why a configuration was refused |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accept;
pub mod address;
pub mod agent;
pub mod breaker;
pub mod bytes;
pub mod duration;
pub mod feed;
mod field_error;
pub mod hash;
pub mod headers;
pub mod id;
pub mod key;
pub mod language;
pub mod method;
pub mod permutation;
pub mod resp;
pub mod stamp;

pub mod problem;
pub mod shared_data;

pub use field_error::FieldError;
