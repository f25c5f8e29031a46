//! Weir's Redis scripts, with typed keys, arguments and replies.
//!
//! The Lua is in `lua/`, one file a script, each with its KEYS, ARGV and replies documented at its
//! top. Filters and origin both call it through this crate, so that neither spells a key, counts an
//! argument or reads a reply by itself.
//!
//! - [`keys`]: every key Weir has in Redis.
//! - [`Call`]: one script call, ready to be sent with EVALSHA or EVAL.
//! - [`claim`], [`release`], [`settle`], [`warm`], [`audit`]: build a call, read its reply.

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

pub mod audit;
mod call;
pub mod claim;
pub mod keys;
pub mod release;
mod reply;
pub mod settle;
pub mod warm;

pub use call::{Call, Script};
pub use reply::ReplyError;

/// Every script, for checks over all of them.
pub const SCRIPTS: [&Script; 5] = [
    &audit::SCRIPT,
    &claim::SCRIPT,
    &release::SCRIPT,
    &settle::SCRIPT,
    &warm::SCRIPT,
];
