//! Weir's origin, put together: command line, wiring, console.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | flags and variables |
//! | [`run`](mod@run), [`origin`] | start-up and shutdown; routes and jobs of all domains |
//! | `domains` | what is compiled: one file per domain, and the lists of all |
//! | `console` | the operators' page, for all domains: static files |
//! | `views` | where events and history meet: a consumer group that stores product views |
//! | `conversions` | where links and sales meet: the click that led to an order |
//! | `product_changes` | where fitment and history meet: changes of products, by collectors and a signed webhook |
//! | `change_events` | where the outbox and events meet: changes as events |
//! | `rebuild_history` | the command that makes cold lists from the archive of events |
//! | `doctor`, `init` | the commands that check a set-up and write one |
//!
//! Each domain is a crate (`weir-origin-sales`, …) with its own router, state, store, jobs, metrics and configuration. No domain
//! depends on another; all depend on `weir-origin-core`, which knows no domain.

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
pub mod openapi;
pub mod origin;
#[cfg(any(feature = "fitment", feature = "history"))]
mod product_changes;
#[cfg(all(feature = "archive", feature = "history"))]
pub mod rebuild_history;
pub mod run;
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
