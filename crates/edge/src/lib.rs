//! The decisions of an edge, on any host.
//!
//! The gateways' engines decide, unchanged: limits first, then sales, then links. The edge answers their Redis reads
//! from the origin's feeds ([`knowledge`]). A request that needs more passes to a gateway, with the edge's assertion,
//! and the gateway decides from the start. An edge therefore answers exactly like a gateway, or defers.
//!
//! ```text
//! client ─▶ host ─▶ Edge::decide ─▶ Decision::Answer                links, status, tokens, sold out, coarse limits
//!                      │        └─▶ Decision::Forward ─▶ gateway    claims, click limits, exact limits, unknown data
//!                      ▼ the engines' reads
//!                  Knowledge ◀─ Edge::due, Edge::take ◀─ feeds of the origin
//! ```
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | [`store`] | the store of an edge |
//! | [`knowledge`] | the edge's data: stores feeds, and answers the engines' reads |
//! | `engine_slot` | one engine, which is recreated after a call without a reply |
//! | [`edge`] | the processing of one request |
//! | [`object_calls`] | calls of engines to objects |
//! | [`stock`] | sales whose stock is in objects |
//! | `click_limits` | links with a click limit that objects count |
//! | [`exact`] | limits with one shared counter |
//! | [`host`] | shared code for hosts |
//! | [`shard`] | one shard of a sale, or one link, without Redis |
//!
//! # What an edge must not do
//!
//! - *Oversell*: it has no claim secret, and [`config`] refuses one. Every purchase that is not refused passes. With
//!   [stock in objects](stock) it has the secret, and calls the shard for each claim, which sells each unit once.
//! - *Admit too many clicks*: links with a click limit are [marked](weir_link::feed::State::AtGateway), and pass. With
//!   click limits in objects, it calls the link's object, which counts each click once.
//! - *Trust a client's claim*: headers that only gateways send, and assertions, are removed from every request.
//! - *Use outdated data*: its data expires if the origin does not respond, and is never replaced by older data.

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
