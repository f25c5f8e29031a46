//! The built filter in a Proxy-Wasm host.

#![allow(clippy::panic, clippy::unwrap_used)]

mod collect;
mod hostile;
mod observe;
mod support;
