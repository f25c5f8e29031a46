//! Objects of an edge without Redis: one shard of a sale each, on the model of the claim protocol, or one short link with its
//! clicks.
//!
//! An object receives [commands](command) as an enum and answers as a Redis would, for engines, gateways and the origin parse replies
//! of a Redis. It has no clock and no I/O: the same commands at the same times give the same replies and leave the same state, so a
//! log of commands stores an object.
//!
//! | module | |
//! |---|---|
//! | [`command`] | commands, and their translation from what a Redis receives |
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
