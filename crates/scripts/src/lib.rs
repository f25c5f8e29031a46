//! Weir's Redis scripts, with typed keys, arguments and replies.
//!
//! The Lua is in `lua/`, one file a script, each with its KEYS, ARGV and replies documented at its
//! top. Filters and origin both call it through this crate, so that neither spells a key, counts an
//! argument or reads a reply by itself.
//!
//! - [`keys`]: every key Weir has in Redis.
//! - [`documents`], [`streams`], [`routes`]: what else two processes must agree on, writer beside reader.
//! - [`Call`]: one script call, ready to be sent with EVALSHA or EVAL.
//! - One module a script: builds a call, reads its reply. Of users: [`claim`], [`release`], [`settle`],
//!   [`charge`], [`cancel`], [`overdue`]. Of stock: [`warm`], [`lend`], [`deposit`],
//!   [`settle_transfer`], [`probe`], [`audit`], [`restock`]. After a loss: [`wipe`], [`restore`].
//!   Of rate limits: [`limit`], [`limit_back`]. Of short links: [`link_read`], [`link_clicks`],
//!   [`link_uniques`].

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

/// A script's source, after the file of what it shares with others.
macro_rules! after {
    ($prelude:literal, $name:literal) => {
        concat!(
            include_str!(concat!("../lua/", $prelude, ".lua")),
            include_str!(concat!("../lua/", $name, ".lua"))
        )
    };
}

/// A script's source, after the reading and writing of records that it needs.
macro_rules! with_records {
    ($name:literal) => {
        after!("record", $name)
    };
}

/// A script's source, after the counting of rate limits that it needs.
macro_rules! with_limit_states {
    ($name:literal) => {
        after!("limit_state", $name)
    };
}

pub mod audit;
mod call;
pub mod cancel;
pub mod charge;
pub mod claim;
pub mod deposit;
pub mod documents;
pub mod keys;
pub mod lend;
pub mod limit;
pub mod limit_back;
pub mod link_clicks;
pub mod link_read;
pub mod link_segment;
pub mod link_uniques;
pub mod overdue;
pub mod probe;
pub mod release;
mod reply;
pub mod restock;
pub mod restore;
pub mod routes;
pub mod settle;
pub mod settle_transfer;
pub mod streams;
pub mod warm;
pub mod wipe;

pub use call::{Call, Script};
pub use reply::ReplyError;

/// Every script, for checks over all of them.
pub const SCRIPTS: [&Script; 21] = [
    &audit::SCRIPT,
    &cancel::SCRIPT,
    &charge::SCRIPT,
    &claim::SCRIPT,
    &deposit::SCRIPT,
    &lend::SCRIPT,
    &limit::SCRIPT,
    &limit_back::SCRIPT,
    &link_clicks::SCRIPT,
    &link_read::SCRIPT,
    &link_segment::SCRIPT,
    &link_uniques::SCRIPT,
    &overdue::SCRIPT,
    &release::SCRIPT,
    &restock::SCRIPT,
    &restore::SCRIPT,
    &settle::SCRIPT,
    &settle_transfer::SCRIPT,
    &probe::SCRIPT,
    &warm::SCRIPT,
    &wipe::SCRIPT,
];
