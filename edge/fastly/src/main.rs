//! Weir's edge for Fastly Compute.
//!
//! It applies the decisions of [`weir_edge`], and makes none itself. Requirements of a service:
//!
//! | resource | name | |
//! |---|---|---|
//! | config store | `weir` | `WEIR_EDGE_CONFIG`, as JSON: see [`weir_edge::config`] |
//! | secret store | `weir` | the secrets that the configuration names |
//! | KV store | `weir` | the store of links |
//! | backends | `origin`, `gateway` | the servers of feeds, and of passed requests |
//!
//! An instance serves one request. Data for later instances is in the POP's cache, and links are in the KV store behind
//! it: see `store`.

mod client;
mod host;
mod settings;
mod shared;
mod store;

use fastly::Request;

fn main() {
    host::serve(Request::from_client());
}
