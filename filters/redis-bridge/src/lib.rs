//! `redis-bridge`: a network filter that stands in front of Envoy's `redis_proxy` on an internal
//! listener, and makes it an HTTP/1.1 upstream that `dispatch_http_call` can reach.
//!
//! A call is a POST whose body is RESP commands; its response's body is their replies. The filter
//! takes the HTTP head off on the way in and puts one on on the way out; see [`bridge`].
//!
//! It must run with a `vm_id` of its own, apart from the filters that call it: in the same VM the
//! internal connection would re-enter the VM inside the host call.

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
mod filter;
mod head;

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_filter_kit::host::log_panics(filter::NAME);
    proxy_wasm::set_root_context(|_| Box::<filter::Root>::default());
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only
// a host calls it, and natively two filters could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
