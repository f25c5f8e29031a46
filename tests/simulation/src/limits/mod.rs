//! Limits on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_limit::engine::Limiter`], several workers each, which share memory.
//! - Redis is the model of limits that also tests the Lua ([`weir_limit::State`]), behind the gateways' real commands,
//!   and a document with rules, which changes.
//! - A rule of any algorithm counts in Redis, with or without leases, and defines a mode without Redis. A second rule,
//!   in this gateway or in Redis, refuses some requests that the first lets pass. Few clients send many requests.
//!
//! `witness` contains the invariants and the derivation of their bounds; `finish` contains the final checks.

mod finish;
mod plan;
mod redis;
mod witness;
mod world;

pub use plan::Plan;
