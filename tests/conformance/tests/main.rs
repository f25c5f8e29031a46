//! The conformance suite on every host, and edges in their runtimes.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod conformance;
mod served;
#[path = "shard/main.rs"]
mod shard;
mod wasi;
