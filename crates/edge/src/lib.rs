//! What an edge answers by itself, on any host.
//!
//! The engines of gateways decide, unchanged: limits first, then sales, then links. In the place of Redis they ask what the edge
//! [knows](knowledge) from the origin's feeds. What that does not answer is not decided here: the request goes on to a gateway,
//! with the edge's stamp, and the gateway decides it from the beginning. So an edge says what a gateway would say, or nothing.
//!
//! ```text
//! client ─▶ host ─▶ Edge::decide ─▶ Decision::Answer                links, status, tokens, sold out, coarse limits
//!                      │        └─▶ Decision::Forward ─▶ gateway    claims, exact limits, click limits, the unknown
//!                      ▼ what the engines ask
//!                  Knowledge ◀─ Edge::due, Edge::take ◀─ feeds of the origin
//! ```
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | [`store`] | where an edge keeps what it has read |
//! | [`knowledge`] | feeds into the store, and out of it the replies that engines wait for |
//! | `part` | one engine: asked, and made anew when its question had no answer |
//! | [`edge`] | all of it for one request |
//! | [`object_calls`] | engines whose questions go to objects, step by step |
//! | [`stock`] | sales whose stock stands in objects: the gate |
//! | `click_limits` | links whose clicks are counted in objects |
//! | [`exact`] | limits that one place counts |
//! | [`host`] | what hosts share |
//! | [`shard`] | one shard of a sale, or one link, without Redis |
//!
//! # What an edge must not do
//!
//! - *Oversell*: it has no claim secret, and [`config`] refuses one. Every request to buy that is not refused goes on. With
//!   [stock in objects](stock) it has the secret, and asks the shard of each claim, which gives each unit once.
//! - *Admit too many clicks*: links with a click limit are [marked](weir_link::feed::State::AtGateway), and go on. With
//!   click limits in objects it asks the link's object, which counts each click once.
//! - *Trust a client's claim*: headers that only a gateway sends, and stamps, are taken from every request.
//! - *Know better*: what it knows ends by itself if the origin is silent, and never goes back.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
// For one-time initialization; none of it uses a clock or a file.
extern crate std;

mod click_limits;
pub mod config;
pub mod edge;
mod engine_slot;
pub mod exact;
pub mod host;
pub mod knowledge;
pub mod object_calls;
pub mod shard;
pub mod stock;
pub mod store;

pub use edge::{Decision, Edge, FirstOutcome, RequestOutcome};
pub use store::Store;
pub use weir_base::headers::{EDGE, EDGE_SIGNATURE};
