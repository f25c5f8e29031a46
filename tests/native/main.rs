//! What only the native module has, with real parts. Everything else is tested by `e2e`, which runs on it with
//! `WEIR_HOST=native`.

#![allow(clippy::indexing_slicing)]

mod abi;
mod filters;
mod idle;
mod panics;
mod refused;
mod reload;
mod sale;
mod shipped;
