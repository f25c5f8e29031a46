//! The tasks `cargo xtask up` and `demo`; benchmarks reuse them.

pub mod demo;
pub mod up;
