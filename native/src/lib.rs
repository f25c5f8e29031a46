//! All of Weir's filters as one dynamic module of Envoy.
//!
//! ```text
//! worker threads ──▶ EngineHost: an engine behind a lock ◀── its own thread: ticks, connections to Redis
//!       ▲                        │
//!       └─ Envoy's scheduler ◀───┴── effects for streams that wait
//! main thread: HTTP requests of the engine's own, metrics
//! ```
//!
//! | module | |
//! |---|---|
//! | [`settings`] | the object `native` of a filter's configuration: where Redis is, and its secrets |
//! | [`engine_host`] | an engine, and the one place that applies effects |
//! | [`fast_path`] | a network filter that answers before Envoy's HTTP stack |
//! | [`slot`] | what waits to be done with one stream by the stream's own thread |
//! | [`service`] | the thread of an engine host: ticks and calls to Redis |
//! | [`redis`] | connections to Redis: one server, or a cluster; with TLS and a password |
//! | [`fetches`] | HTTP requests, which only the main thread sends |
//! | [`metrics`] | counters in Envoy's own stats |
//! | [`shared`] | memory that all engines of this process share |
//! | [`request`] | the request, read from Envoy as far as the engine asks |
//! | [`filters`] | what Envoy's hooks do |
//!
//! A panic answers the request that it came with, and all that waited at its engine host, with 503; the engine host gets a fresh engine.

#![deny(unsafe_code)]

pub mod engine_host;
pub mod fast_path;
pub mod fetches;
pub mod filters;
pub mod metrics;
pub mod redis;
pub mod request;
pub mod service;
pub mod settings;
pub mod shared;
pub mod slot;

weir_envoy_abi::module!(crate::filters::Filters);
