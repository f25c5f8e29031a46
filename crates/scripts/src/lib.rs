//! Building blocks for typed calls of Redis scripts.
//!
//! A domain's scripts, keys and replies are in its crate (`weir_sale::redis`, …), next to its decisions. Filters and
//! origin share these, so that keys, arguments and replies are defined once.
//!
//! - [`Script`], [`Call`]: a script, and one call of it, encoded with EVALSHA or EVAL.
//! - [`reply`]: parsers of replies. [`refusal`]: why Redis refuses, and whether the refusal is definite.
//! - [`scripts!`]: a table of small scripts: script, call and parser of each.
//! - [`keys`]: the key prefix, and the keys that belong to no domain.
//! - [`permissions`]: the commands that users in Redis' access control lists need.
//! - [`gateway_report`]: what the engines of gateways run.
//! - [`tally`]: decision counts of gateways, by the minute.
//! - [`write_check`]: whether Redis accepts writes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod call;
pub mod gateway_report;
pub mod keys;
pub mod permissions;
pub mod refusal;
pub mod reply;
mod table;
pub mod tally;
pub mod write_check;

pub use call::{Call, Script};
pub use refusal::RefusalKind;
pub use reply::ReplyError;
