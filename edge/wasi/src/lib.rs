//! Weir's edge as a `wasi:http` component: for `wasmtime serve`, Spin, wasmCloud and whatever else runs the world
//! `wasi:http/proxy`.
//!
//! It applies what [`weir_edge`] decides, and decides nothing. Its environment:
//!
//! | variable | |
//! |---|---|
//! | `WEIR_EDGE_CONFIG` | the configuration, as JSON: see [`weir_edge::config`] |
//! | `WEIR_EDGE_ORIGIN` | where feeds are: `http://` or `https://`, host and port |
//! | `WEIR_EDGE_GATEWAY` | where requests go on: the same |
//! | `WEIR_EDGE_CLIENT_HEADER` | the header in which the platform tells the client's address; it must set it itself |
//! | what the configuration names | secrets |
//!
//! What it has read stays in the folder `/weir` if the host gives it one, and in memory otherwise: for hosts that keep an instance
//! for many requests.

mod folder;
mod host;
mod settings;

use wstd::http::{Body, Error, Request, Response};

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    Ok(host::serve(request).await)
}
