//! Tests of the native module's own features, with real parts. `e2e` tests everything else with `WEIR_HOST=native`.

#![allow(clippy::indexing_slicing)]

mod abi;
mod fast_path;
mod filters;
mod idle;
mod panics;
mod refused;
mod reload;
mod sale;
mod shipped;
