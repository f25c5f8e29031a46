//! Proxy-Wasm glue shared by Weir's filters.
//!
//! - [`pump`]: group commit. Requests that need Redis wait; the root context sends them together.
//! - [`redis`]: one call through the bridge, and what its failure tells: [`redis::Failure`].
//! - [`bridge`]: in which words the bridge says that there are no replies.
//! - [`link`]: how a VM sends calls and wakes its root context.
//! - [`root`]: the root context of an HTTP filter.
//! - [`schedule`]: when to poll for what stands in Redis.
//! - [`table`]: limits that hold for all workers, in Envoy's shared data.
//! - [`http`]: headers as bytes, answers as JSON.
//! - [`config`]: JSON configuration, refused with the path of the field that is wrong.
//! - [`redis_config`]: how Redis is reached, as it is written.
//! - [`mod@env`]: secrets, from the environment that Envoy gives the VM.
//! - [`metrics`], [`host`]: counters, the clock, panics that say where.
//!
//! Every host call here is checked: whatever a client sends, no getter insists on UTF-8 and no
//! `unwrap` waits.

#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod bridge;
pub mod config;
pub mod env;
pub mod host;
pub mod http;
pub mod link;
pub mod metrics;
pub mod pump;
pub mod redis;
pub mod redis_config;
pub mod root;
pub mod schedule;
mod streams;
pub mod table;
