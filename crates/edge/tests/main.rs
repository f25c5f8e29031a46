//! Tests of edges, and of shards in objects.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod click_limits;
mod commands;
mod edge;
mod stock;
