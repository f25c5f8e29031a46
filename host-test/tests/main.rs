//! The host, with small modules written as text.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod calls;
mod common;
mod failures;
mod grpc;
mod http;
mod lifecycle;
mod network;
mod shared;
mod wasi;
