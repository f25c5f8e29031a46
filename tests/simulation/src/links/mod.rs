//! Short links on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_link::engine::Links`], several workers each.
//! - Redis is a small model of strings and streams, and of the scripts of links, behind the real commands of gateways
//!   and origin.
//! - The origin follows `origin/links/src` function by function: lookups that warm Redis, edits that are published and
//!   followed up, domains, and click counts. SQL is a model of its transactions.
//! - Some links never change. Some are edited, disabled, deleted or created while clients request them. Some have a
//!   click limit, and one code is unknown.
//!
//! `witness` contains the invariants and the derivation of their bounds; `finish` contains the final checks.

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
