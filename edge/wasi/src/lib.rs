//! Weir's edge as a `wasi:http` component: for `wasmtime serve`, Spin, wasmCloud and other hosts of the world
//! `wasi:http/proxy`.
//!
//! It applies the decisions of [`weir_edge`], and makes none itself. Its environment:
//!
//! | variable | |
//! |---|---|
//! | `WEIR_EDGE_CONFIG` | the configuration, as JSON: see [`weir_edge::config`] |
//! | `WEIR_EDGE_ORIGIN` | the server of feeds: `http://` or `https://`, host and port |
//! | `WEIR_EDGE_GATEWAY` | the server of passed requests: the same |
//! | `WEIR_EDGE_CLIENT_HEADER` | the header with the client's address; the platform must set it |
//! | names in the configuration | secrets |
//!
//! Data is stored in the folder `/weir` if the host provides it, and otherwise in memory, for hosts whose instances
//! serve many requests.

mod folder;
mod host;
mod settings;

use wstd::http::{Body, Error, Request, Response};

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    Ok(host::serve(request).await)
}
