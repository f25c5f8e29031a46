//! `redis-bridge`: a network filter on an internal listener, in front of Envoy's `tcp_proxy` to one Redis or of its
//! `redis_proxy` to a Redis Cluster, which makes Redis an HTTP/1.1 upstream that a gRPC stream of a filter can reach.
//!
//! A caller opens a stream and keeps it: one POST whose body never ends. Each message on it is a
//! call, RESP commands as they are, and is answered by one message, their replies as they are. One
//! call at a time is under way on a stream; who needs more opens more. The filter takes HTTP and
//! gRPC off on the way in and puts them on on the way out; see [`bridge`]. If Redis has a password, it says that first;
//! see [`login`].
//!
//! It must run with a `vm_id` of its own, apart from the filters that call it: in the same VM the
//! internal connection would re-enter the VM inside the host call.

pub mod bridge;
mod chunk;
pub mod config;
mod filter;
mod head;
pub mod login;
mod message;

/// What the module does when a host has loaded it.
pub fn start() {
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    weir_proxy_kit::host::log_panics(filter::NAME);
    proxy_wasm::set_root_context(|_| Box::<filter::Root>::default());
}

// `main!` defines the module's `_initialize`, an unmangled symbol, which the lint counts as unsafe. Only
// a host calls it, and natively two filters could not be linked into one program.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs)]
mod entry {
    proxy_wasm::main! {{ crate::start() }}
}
