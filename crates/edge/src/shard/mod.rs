//! One shard of a sale without Redis: commands in, replies out, on the model of the claim protocol. And one short link, whose
//! clicks are counted the same way.
//!
//! Gateways and origin send a shard scripts and a few plain commands. This reads them as Redis reads them, asks the
//! [model](weir_sale::ledger::ShardLedger), and writes the replies that the scripts would write. It has no clock and no I/O: the
//! same commands at the same times give the same replies and leave the same shard, so a log of them is the shard.
//!
//! | module | |
//! |---|---|
//! | [`call`] | bytes → what is asked of the shard |
//! | [`reply`] | what the model answers → bytes |
//! | [`sale`] | one on the other |
//! | [`link`] | what Redis would hold of a short link |
//! | [`held`] | one of the two, as its key says |

pub mod call;
pub mod held;
pub mod link;
pub mod reply;
pub mod sale;

pub use call::Refused;
pub use held::Held;
pub use link::Link;
pub use sale::Shard;
