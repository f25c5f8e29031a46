//! The built filter in a Proxy-Wasm host, against a real Redis, with a virtual clock and two workers.

mod clicks;
mod cost;
mod failures;
mod hostile;
mod links;
mod origin_lookups;
mod support;
