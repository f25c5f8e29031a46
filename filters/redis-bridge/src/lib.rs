//! `redis-bridge`: a network filter that makes Redis an HTTP/1.1 upstream for the gRPC streams of filters. It runs on
//! an internal listener, before Envoy's `tcp_proxy` to one Redis, or its `redis_proxy` to a Redis Cluster.
//!
//! A caller opens a stream and keeps it: one POST whose body never ends. Each message on it is a call with raw RESP
//! commands, and gets one message with the raw replies. A stream has one call at a time; a caller that needs more opens
//! more streams. The filter removes HTTP and gRPC framing on the way in, and adds it on the way out; see [`bridge`]. If
//! Redis has a password, the filter logs in first; see [`login`].
//!
//! It must run with its own `vm_id`, separate from the filters that call it: in the same VM the internal connection
//! would re-enter the VM within the host call.

pub mod bridge;
mod chunk;
pub mod config;
mod filter;
mod head;
pub mod login;
mod message;

/// Registers the filter; hosts call it after loading the module.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_proxy_kit::host::log_panics(filter::NAME);
    proxy_wasm::set_root_context(|_| Box::<filter::Root>::default());
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only a host calls
// it. Natively, two filters with this symbol could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
