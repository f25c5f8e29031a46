//! All Weir filters as one Envoy dynamic module.
//!
//! ```text
//! worker threads ──▶ EngineHost: an engine behind a lock ◀── its own thread: ticks, connections to Redis
//!       ▲                        │
//!       └─ Envoy's scheduler ◀───┴── effects for streams that wait
//! main thread: HTTP requests of the engine, metrics
//! ```
//!
//! | module | |
//! |---|---|
//! | [`settings`] | the object `native` of a filter's configuration: Redis servers and secrets |
//! | [`engine_host`] | an engine, and the only place that applies effects |
//! | [`fast_path`] | a network filter that answers before Envoy's HTTP stack |
//! | [`slot`] | pending effects of one stream, applied by the stream's thread |
//! | [`service`] | the thread of an engine host: ticks and calls to Redis |
//! | [`redis`] | connections to Redis: one server, or a cluster; with TLS and a password |
//! | [`fetches`] | HTTP requests, which only the main thread can send |
//! | [`metrics`] | counters in Envoy's own stats |
//! | [`shared`] | memory shared by all engines of this process |
//! | [`request`] | the request, read from Envoy on demand |
//! | [`filters`] | handlers of Envoy's hooks |
//!
//! A panic answers the current request, and all requests that wait at its engine host, with 503. The engine host then
//! gets a new engine.

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
pub mod worker_redis;

weir_envoy_abi::module!(crate::filters::Filters);
