//! The built filter in a Proxy-Wasm host.

mod answers;
mod bounds;
mod failures;
mod local;
mod redis;
mod reload;
mod support;
