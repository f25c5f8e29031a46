//! The built module in a Proxy-Wasm host, with a real Redis.

mod questions;
mod support;
