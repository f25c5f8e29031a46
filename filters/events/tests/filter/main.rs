//! The built filter in a Proxy-Wasm host.

mod collect;
mod hostile;
mod observe;
mod support;
