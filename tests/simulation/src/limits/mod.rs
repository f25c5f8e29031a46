//! Limits on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_limit::engine::Limiter`], several workers each, which share memory.
//! - Redis is the model of limits that the Lua is tested against ([`weir_limit::State`]), behind the commands that gateways
//!   really send; and a document with rules, which changes.
//! - A rule of any algorithm counts in Redis, with or without leases, and says what holds without Redis; a second one, on
//!   this gateway or in Redis, refuses some of what the first lets pass. Clients are few and come often.
//!
//! What must hold, and why so much and no more, is in `witness`; what at the end, in `finish`.

mod finish;
mod plan;
mod redis;
mod witness;
mod world;

pub use plan::Plan;
