//! Shared parts of the domain crates (`weir-sale`, `weir-limit`, `weir-link`).
//!
//! Neither this crate nor the domains make host calls or use a clock, I/O or randomness. Time is an argument (`now_ms`,
//! milliseconds since the Unix epoch). `#![no_std]` enforces this.
//!
//! | module | |
//! |---|---|
//! | [`accept`] | the media type that a client prefers |
//! | [`address`] | groups of client addresses |
//! | [`agent`] | detects crawlers and prefetches |
//! | [`breaker`] | a circuit breaker |
//! | [`bytes`] | comparisons of short byte strings |
//! | [`duration`] | durations as text |
//! | [`feed`], [`stamp`] | documents that the origin signs for edges; requests that edges sign |
//! | [`hash`] | stable and seeded hashes |
//! | [`headers`] | the names of Weir's own headers |
//! | [`id`] | validated sale ids and user ids |
//! | [`key`] | named secrets, their signatures and their rotation |
//! | [`language`] | the language of messages to users |
//! | [`method`] | the methods of HTTP |
//! | [`permutation`] | keyed permutations of ranges of numbers |
//! | [`resp`] | RESP2, the protocol of Redis |
//! | [`problem`] | refusals as problem details (RFC 9457) |
//! | [`shared_data`] | memory shared by the workers of a gateway |
//! | [`FieldError`] | a rejected field of a configuration |

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
