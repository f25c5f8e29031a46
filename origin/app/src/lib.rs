//! Weir's origin: command line, wiring, console.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | flags and variables |
//! | [`run`](mod@run), [`origin`] | start-up and shutdown; routes and jobs of all domains |
//! | `domains` | the compiled domains: one file per domain, and the lists of all |
//! | `console` | the operators' page for all domains: static files |
//! | `views` | events to history: a consumer group that stores product views |
//! | `conversions` | links to sales: the click that led to an order |
//! | `product_changes` | product changes for fitment and history, by collectors and a signed webhook |
//! | `change_events` | outbox to events: changes as events |
//! | `rebuild_history` | the command that rebuilds cold lists from the event archive |
//! | `doctor`, `init`, `up` | the commands that check a setup, write one, and run one on this machine |
//! | `kubernetes_secret` | the command that creates secrets in a cluster |
//!
//! Each domain is a crate (`weir-origin-sales`, …) with its own router, state, store, jobs, metrics and configuration.
//! Domains do not depend on each other. All depend on `weir-origin-core`, which is independent of domains.

#![forbid(unsafe_code)]

#[cfg(all(feature = "events", any(feature = "links", feature = "sales")))]
mod change_events;
pub mod config;
mod console;
#[cfg(all(feature = "links", feature = "sales"))]
mod conversions;
#[cfg(feature = "doctor")]
pub mod doctor;
mod domains;
#[cfg(feature = "init")]
pub mod init;
#[cfg(feature = "init")]
pub mod kubernetes_secret;
pub mod openapi;
pub mod origin;
#[cfg(any(feature = "fitment", feature = "history"))]
mod product_changes;
#[cfg(all(feature = "archive", feature = "history"))]
pub mod rebuild_history;
pub mod run;
#[cfg(feature = "up")]
pub mod up;
mod variables;
#[cfg(all(feature = "events", feature = "history"))]
pub mod views;

pub use origin::Origin;
pub use weir_origin_core::{
    access, api, background, clock, disk, failure, http, metrics, outbox, redis, secret, sql,
    tenants, traces, unavailable,
};
#[cfg(feature = "events")]
pub use weir_origin_events as events;
#[cfg(feature = "fitment")]
pub use weir_origin_fitment as fitment;
#[cfg(feature = "history")]
pub use weir_origin_history as history;
#[cfg(feature = "limits")]
pub use weir_origin_limits as limits;
#[cfg(feature = "links")]
pub use weir_origin_links as links;
#[cfg(feature = "rooms")]
pub use weir_origin_rooms as rooms;
#[cfg(feature = "sales")]
pub use weir_origin_sales as sales;
#[cfg(feature = "shard-proxy")]
pub use weir_shard_proxy as shard_proxy;
