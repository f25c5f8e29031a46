//! The built module in a Proxy-Wasm host, with a real Redis.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod support;
mod visits;
