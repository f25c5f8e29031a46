//! The engine on a model of Redis: responses to queries, and behaviour on failures.

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
