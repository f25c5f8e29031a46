//! Weir's edge for Cloudflare Workers.
//!
//! It applies the decisions of [`weir_edge`], and makes none itself. Requirements of a Worker:
//!
//! | binding | name | |
//! |---|---|---|
//! | variable | `WEIR_EDGE_CONFIG` | the configuration, as JSON: see [`weir_edge::config`] |
//! | variables | `WEIR_EDGE_ORIGIN`, `WEIR_EDGE_GATEWAY` | the servers of feeds, and of passed requests |
//! | secrets | as the configuration names them | |
//! | KV namespace | `WEIR_LINKS` | the store of links |
//! | Durable Object | `WEIR_FEED`, class `Feed` | reads the link feed and writes the namespace |
//! | Durable Object | `WEIR_LIMITS`, class `Limits` | counts exact limits |
//! | Durable Object | `WEIR_SHARDS`, class `ShardObject` | shards of sales, and links with a click limit, instead of Redis |
//!
//! An isolate serves many requests. It reads the catalogue and the domains from the origin itself. Links come from the
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
