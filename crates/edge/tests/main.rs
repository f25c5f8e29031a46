//! What an edge answers by itself, and a shard that is an object.

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
