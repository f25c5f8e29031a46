//! What typed calls of Redis scripts are made of.
//!
//! A domain's scripts, keys and replies are in its crate (`weir_sale::redis`, …), beside its decisions. Filters and origin call
//! them through it, so that neither spells a key, counts an argument or reads a reply by itself.
//!
//! - [`Script`], [`Call`]: a script, and one call of it, ready to be sent with EVALSHA or EVAL.
//! - [`reply`]: reading replies. [`refusal`]: why Redis refuses, and what that proves.
//! - [`scripts!`]: a table of small scripts: script, call and parser of each.
//! - [`keys`]: every key that Weir has in Redis, and the keys that no domain owns.
//! - [`permissions`]: the commands that users of Redis' access control lists need.
//! - [`tally`]: what gateways have decided, counted by the minute.
//! - [`write_check`]: whether Redis takes writes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod call;
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
