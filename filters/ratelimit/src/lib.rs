//! `ratelimit`: rate limits at the gateway.
//!
//! Each request is held against the rules that concern it ([`weir_limit::rules`]). Rules that count here are
//! decided at once, in Envoy's shared data; those that count in Redis wait in the pump, many requests a
//! call. A request is charged to all its rules or to none.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `request` | the request, read as far as rules ask for it |
//! | `ruleset` | the rules that count now, with their tables and counters |
//! | `evaluation` | one request on its way through the rules |
//! | `lease` | slices of limits in Redis that are spent here |
//! | `refusal` | what Redis has refused, for as long as it would refuse it again |
//! | `job` | what waits in the pump, and how it is grouped into script calls |
//! | `redis` | the way to Redis, and what is known of it |
//! | `poll`, `reload` | rules that stand in Redis, and how they come to count |
//! | `limiter` | the state of one VM, and what its callbacks do with it |
//! | `answer` | the filter's own answers |
//! | `plugin`, `stream` | the Proxy-Wasm contexts |

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

mod answer;
pub mod config;
mod evaluation;
mod job;
mod lease;
mod limiter;
mod metrics;
mod plugin;
mod poll;
mod redis;
mod refusal;
mod reload;
mod request;
mod ruleset;
mod stream;

use weir_filter_kit::root::Root;

/// The filter's name, in logs and metrics.
pub const NAME: &str = "ratelimit";

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_filter_kit::host::log_panics(NAME);
    proxy_wasm::set_root_context(|id| Box::new(Root::<limiter::Limiter>::new(id)));
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only
// a host calls it, and natively two filters could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
