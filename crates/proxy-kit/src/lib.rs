//! Runs an engine of Weir as a Proxy-Wasm HTTP filter.
//!
//! A filter names its engine and says how to make it ([`Filter`]); [`filter!`] does the rest. The README has an example; a whole
//! filter that asks Redis is `docs/examples/api-key` in the repository.
//!
//! | module | |
//! |---|---|
//! | [`filter`](mod@filter) | what a filter is |
//! | [`root`], [`stream`] | the Proxy-Wasm contexts |
//! | [`worker`] | one VM: its engine, and the one place that applies effects |
//! | [`link`], `streams` | calls to Redis, on gRPC streams to the bridge that stay open |
//! | [`fetch`] | HTTP requests of the engine's own |
//! | [`request`] | the request, read from the host as far as the engine asks |
//! | [`bridge`] | in which words the bridge says that there are no replies |
//! | [`env`](mod@env), [`host`], [`metrics`], [`shared`] | secrets, the clock, counters, memory that all workers share |
//!
//! Every host call here is checked: whatever a client sends, no getter insists on UTF-8 and nothing unwraps.

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
pub mod metrics;
pub mod reply;
pub mod request;
pub mod root;
mod said;
pub mod shared;
pub mod stream;
mod streams;
pub mod worker;

pub use filter::{Filter, start};
pub use weir_engine::setup::ConfiguredEngine;

// For [`filter!`].
#[doc(hidden)]
pub use proxy_wasm;
