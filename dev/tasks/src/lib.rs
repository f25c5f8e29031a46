//! What `cargo xtask up` and `demo` do; benchmarks start the same things.

pub mod demo;
pub mod up;
