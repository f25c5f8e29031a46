//! Short links as an engine: a link is looked up in memory, then in Redis, then at the origin.
//!
//! Requests for Redis go in batches. The origin has all links and is asked once for each, however many clients wait
//! for it. What was found is remembered, within bounds, and so is what does not exist.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `links` | the engine: its events, and what a request is answered |
//! | `completed` | what follows from the replies of Redis and of the origin |
//! | [`request`] | the request, read at once |
//! | `visitor` | what is kept of a request that waits |
//! | `domains` | the domains that this gateway answers for |
//! | `redis`, `job` | calls to Redis, batched, behind a circuit breaker |
//! | `lookups` | look-ups at the origin: one for each link, and not too many |
//! | `origin` | one look-up: its request, its response |
//! | `poll` | edits and domains, read from Redis on ticks |
//! | `clicks` | clicks, counted and sent in batches |
//! | `unused` | clicks that led nowhere, given back |
//! | `answer` | the engine's own answers |
//! | `metrics` | what it counts |

#![no_std]
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answer;
mod clicks;
mod completed;
pub mod config;
mod crawlers;
mod domains;
mod job;
mod links;
mod lookups;
mod metrics;
mod origin;
mod poll;
mod redis;
pub mod request;
mod unused;
mod visitor;

pub use links::Links;

/// The engine's name, in logs.
pub const NAME: &str = "shortlink-redirect";
