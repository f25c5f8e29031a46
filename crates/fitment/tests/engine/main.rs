//! The engine on a model of Redis: what questions are answered, and what becomes of them when something fails.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod failures;
mod host;
mod moves;
mod properties;
mod questions;
mod redis;
