//! Finds, builds and runs what Weir needs: the wasm toolchain, Envoy, Redis, the filters and
//! the origin.
//!
//! `cargo xtask` and the end-to-end tests use the same code, so what the tests prove is what
//! a person runs. Everything that this crate writes is under `<workspace>/target/weir/`.

pub mod command;
pub mod report;
pub mod tools;
pub mod wasm;
pub mod workspace;
