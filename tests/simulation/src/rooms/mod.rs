//! Waiting rooms on one virtual clock, under random faults.
//!
//! - Gateways are real: [`weir_room::engine::WaitingRoom`], several workers each.
//! - Redis is the model that the Lua is tested against ([`weir_room::model`]), behind the calls that gateways really send.
//! - Visitors come, and ask again and again with the pass that they have, until they are inside; some leave in the middle of
//!   a request, some give up. An operator pauses the room and opens it again.
//!
//! What must hold, and why so much and no more, is in `witness`; what at the end, in `finish`.

mod finish;
mod plan;
mod redis;
mod witness;
mod world;

pub use plan::Plan;
