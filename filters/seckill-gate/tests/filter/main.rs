//! The built filter in a Proxy-Wasm host.

mod failures;
mod gate;
mod redis;
mod status;
mod support;
mod switches;
