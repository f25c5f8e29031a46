//! `shortlink-redirect`: short links, answered at the gateway.
//!
//! A link is looked up in this VM's memory, then in Redis, many requests a call, then at the origin, which has
//! them all. What was found is remembered, within bounds; what does not exist, too.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `request` | the request, read at once |
//! | `domains` | the domains that this gateway answers for |
//! | `links` | the state of one VM, and what it answers to a request |
//! | `completed` | what comes of Redis' replies |
//! | `job` | what waits in the pump, and how it is grouped into script calls |
//! | `redis` | the way to Redis, and what is known of it |
//! | `poll` | edits and domains, read from Redis on ticks |
//! | `origin_lookups` | look-ups at the origin: one a link, and not too many |
//! | `relay` | the origin's answer, passed on |
//! | `answer` | the filter's own answers |
//! | `metrics` | what it counts |
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
mod completed;
pub mod config;
mod domains;
mod job;
mod links;
mod metrics;
mod origin_lookups;
mod plugin;
mod poll;
mod redis;
mod relay;
pub mod request;
mod stream;

use weir_filter_kit::root::Root;

/// The filter's name, in logs and metrics.
pub const NAME: &str = "shortlink-redirect";

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_filter_kit::host::log_panics(NAME);
    proxy_wasm::set_root_context(|id| Box::new(Root::<links::Links>::new(id)));
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only
// a host calls it, and natively two filters could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
