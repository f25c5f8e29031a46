//! Waiting rooms on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_room::engine::WaitingRoom`], several workers each.
//! - Redis is the model that also tests the Lua ([`weir_room::model`]), behind the gateways' real calls.
//! - Visitors come and poll with their pass until they are inside. Some disconnect during a request, some give up. An
//!   operator pauses and reopens the room.
//!
//! `witness` contains the invariants and the derivation of their bounds; `finish` contains the final checks.

mod finish;
mod plan;
mod redis;
mod witness;
mod world;

pub use plan::Plan;
