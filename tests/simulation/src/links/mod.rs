//! Short links on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_link::engine::Links`], several workers each.
//! - Redis is a small model of strings and streams, and of the scripts of links, behind the commands that gateways and the
//!   origin really send.
//! - The origin follows `origin/links/src` function by function: look-ups that warm Redis, edits that are published and
//!   followed up, domains, and the count of clicks. SQL is a model of its transactions.
//! - Some links never change, some are edited, disabled, deleted or made while clients ask, some have only so many clicks,
//!   and one code names nothing.
//!
//! What must hold, and why so much and no more, is in `witness`; what at the end, in `finish`.

mod finish;
mod io;
mod origin;
mod plan;
mod redis;
mod sql;
mod tasks;
mod witness;
mod world;

pub use plan::Plan;
