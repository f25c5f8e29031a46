//! What `cargo xtask up` and `demo` do; benchmarks start the same things.

#![allow(clippy::indexing_slicing)]

pub mod demo;
pub mod up;
