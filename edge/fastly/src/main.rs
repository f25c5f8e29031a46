//! Weir's edge for Fastly Compute.
//!
//! It applies what [`weir_edge`] decides, and decides nothing. What it needs of a service:
//!
//! | resource | name | |
//! |---|---|---|
//! | config store | `weir` | `WEIR_EDGE_CONFIG`, as JSON: see [`weir_edge::config`] |
//! | secret store | `weir` | the secrets that the configuration names |
//! | KV store | `weir` | where links are kept |
//! | backends | `origin`, `gateway` | where feeds are, and where requests go on |
//!
//! An instance serves one request. What is to be known of the last one stands in the POP's cache, and links in the KV store behind
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
