//! Objects of an edge that replace Redis: each is one shard of a sale, on the model of the claim protocol, or one short
//! link with its clicks.
//!
//! An object receives [commands](command) as an enum and replies like a Redis, because engines, gateways and the origin
//! parse Redis replies. It has no clock and no I/O: the same commands at the same times give the same replies and
//! state, so a log of commands stores an object.
//!
//! | module | |
//! |---|---|
//! | [`command`] | commands, and their translation from Redis commands |
//! | [`reply`] | results of the model → bytes |
//! | [`sale`] | a shard of a sale |
//! | [`link`] | a short link |
//! | [`object`] | one of the two, by its key |

pub mod command;
pub mod link;
pub mod object;
pub mod reply;
pub mod sale;

pub use command::{ObjectCommands, ShardCommand, UnexpectedCommand};
pub use link::{Link, LinkCommand};
pub use object::EdgeObject;
pub use sale::Shard;
