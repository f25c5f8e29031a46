//! What the domains (`weir-sale`, `weir-limit`, `weir-link`) share.
//!
//! There is no host call, clock, I/O or randomness here or in the domains: time is an argument (`now_ms`,
//! milliseconds since the Unix epoch). `#![no_std]` holds them to that.
//!
//! | module | |
//! |---|---|
//! | [`address`] | which addresses count as one |
//! | [`breaker`] | the circuit breaker: whether what failed too often may be asked |
//! | [`hash`] | seeded hashes that all bits of are even |
//! | [`headers`] | the names of Weir's own headers |
//! | [`id`] | which sale ids and user ids are well formed |
//! | [`key`] | named secrets, what they sign, and their rotation |
//! | [`FieldError`] | why a configuration was refused |

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
pub mod breaker;
mod field_error;
pub mod hash;
pub mod headers;
pub mod id;
pub mod key;

pub use field_error::FieldError;
