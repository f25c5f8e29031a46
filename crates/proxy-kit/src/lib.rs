//! Runs a Weir engine as a Proxy-Wasm HTTP filter.
//!
//! A filter names its engine and its constructor ([`Filter`]); [`filter!`] generates the rest. The README has an
//! example; `docs/examples/api-key` in the repository is a complete filter with Redis.
//!
//! | module | |
//! |---|---|
//! | [`filter`](mod@filter) | the definition of a filter |
//! | [`root`], [`stream`] | the Proxy-Wasm contexts |
//! | [`worker`] | one VM: its engine, and the code that applies effects |
//! | [`link`], `streams` | calls to Redis, on persistent gRPC streams to the bridge |
//! | [`fetch`] | the engine's own HTTP requests |
//! | [`request`] | the request, read lazily from the host |
//! | [`bridge`] | the bridge's error messages |
//! | [`env`](mod@env), [`host`], [`metrics`], [`shared`] | secrets, the clock, counters, memory shared by all workers |
//!
//! Every host call here is checked: clients may send any bytes, so no getter requires UTF-8 and no code unwraps.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bridge;
mod cause;
pub mod env;
pub mod fetch;
pub mod filter;
pub mod host;
pub mod link;
mod logged_once;
pub mod metrics;
pub mod reply;
pub mod request;
pub mod root;
pub mod shared;
pub mod stream;
mod streams;
pub mod worker;

pub use filter::{Filter, start};
pub use weir_engine::setup::ConfiguredEngine;

// For [`filter!`].
#[doc(hidden)]
pub use proxy_wasm;
