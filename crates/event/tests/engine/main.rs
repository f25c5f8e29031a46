//! The engine without a host: it is given events, and its effects are looked at.

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
