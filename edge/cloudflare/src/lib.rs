//! Weir's edge for Cloudflare Workers.
//!
//! It applies what [`weir_edge`] decides, and decides nothing. What it needs of a Worker:
//!
//! | binding | name | |
//! |---|---|---|
//! | variable | `WEIR_EDGE_CONFIG` | the configuration, as JSON: see [`weir_edge::config`] |
//! | variables | `WEIR_EDGE_ORIGIN`, `WEIR_EDGE_GATEWAY` | where feeds are, and where requests go on |
//! | secrets | as the configuration names them | |
//! | KV namespace | `WEIR_LINKS` | where links are kept |
//! | Durable Object | `WEIR_FEED`, class `Feed` | the one that reads the link feed and writes the namespace |
//! | Durable Object | `WEIR_LIMITS`, class `Limits` | where exact limits count |
//! | Durable Object | `WEIR_SHARDS`, class `ShardObject` | shards of sales, and links with a click limit, that are here and not in Redis |
//!
//! An isolate serves many requests. It reads the catalogue and the domains from the origin by itself; links come from the
//! namespace, which one object fills: see `feed`.

mod client;
mod feed;
mod front;
mod host;
mod limits;
mod sell;
mod settings;
mod shard;

use worker::{Context, Env, Request, Response, Result, event};

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> Result<Response> {
    host::serve(request, &env, &context).await
}
