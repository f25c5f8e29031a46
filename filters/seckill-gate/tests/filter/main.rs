//! The built filter in a Proxy-Wasm host.

mod gate;
mod redis;
mod support;
