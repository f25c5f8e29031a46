//! Drives the engine by events alone, without a host, and checks its effects.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod collect;
mod host;
mod limits;
mod observe;
mod properties;
