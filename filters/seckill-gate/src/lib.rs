//! `seckill-gate`: flash-sale admission at the gateway.
//!
//! A request that buys is matched by its path, decided by [`weir_sale::admission`], and, if there is
//! anything to be had, waits for its claim in the pump. A granted one goes on to the origin with a
//! signed claim ticket; every other is answered here.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | [`route`] | which requests buy, and from which sale |
//! | [`job`] | what waits in the pump, and how it is grouped into script calls |
//! | [`request_outcome`] | what becomes of a stream's request |
//! | `checkout` | order tokens: given, and asked for |
//! | `identify` | who a request comes from that buys nothing, for the origin |
//! | `limits` | how often one user and one address may ask |
//! | `overload` | when Redis or the origin is to be left in peace |
//! | `answer` | the gate's own answers |
//! | `poll` | the catalogue and the epochs of empty shards, from Redis |
//! | `rebalance` | requests that wait while units move to their shard |
//! | `gate` | the state of one VM, and what its callbacks do with it |
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
mod checkout;
pub mod config;
mod gate;
mod identify;
pub mod job;
mod limits;
mod metrics;
mod overload;
mod plugin;
mod poll;
mod rebalance;
pub mod request_outcome;
pub mod route;
mod stream;

use weir_filter_kit::root::Root;

/// The filter's name, in logs and metrics.
pub const NAME: &str = "seckill-gate";

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_filter_kit::host::log_panics(NAME);
    proxy_wasm::set_root_context(|id| Box::new(Root::<gate::Gate>::new(id)));
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only
// a host calls it, and natively two filters could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
