//! The built filter in a Proxy-Wasm host.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod failures;
mod gate;
mod identify;
mod limits;
mod overload;
mod redis;
mod status;
mod streams;
mod support;
mod switches;
mod tokens;
