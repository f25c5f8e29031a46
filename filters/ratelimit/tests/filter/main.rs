//! The built filter in a Proxy-Wasm host.

#![allow(clippy::panic, clippy::unwrap_used)]

mod answers;
mod bounds;
mod failures;
mod local;
mod redis;
mod reload;
mod support;
