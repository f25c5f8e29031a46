//! Weir's origin, put together: command line, wiring, console.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | flags and variables |
//! | [`run`](mod@run), [`origin`] | start-up and shutdown: domains, routes, background jobs |
//! | [`migrations`] | the database's schema |
//! | [`console`] | the operators' page, for all domains: static files |
//! | [`tenant_rules`] | the tenant rule of each admin route |
//! | [`views`] | where events and history meet: a consumer group that stores product views |
//! | [`conversions`] | where links and sales meet: the click that led to an order |
//! | [`change_events`] | where the outbox and events meet: changes as events |
//! | [`doctor`], [`init`] | the commands that check a set-up and write one |
//!
//! Each domain is a crate (`weir-origin-sales`, …) with its own router, state, store, jobs, metrics and configuration. No domain
//! depends on another; all depend on `weir-origin-core`, which knows no domain.

#![forbid(unsafe_code)]

pub mod change_events;
pub mod config;
pub mod console;
pub mod conversions;
pub mod doctor;
pub mod init;
pub mod migrations;
pub mod openapi;
pub mod origin;
pub mod run;
pub mod tenant_rules;
pub mod views;

pub use origin::Origin;
pub use weir_origin_core::{
    access, api, background, clock, disk, http, metrics, outbox, redis, secret, sql, tenants,
    traces, unavailable,
};
pub use weir_origin_events as events;
pub use weir_origin_fitment as fitment;
pub use weir_origin_history as history;
pub use weir_origin_limits as limits;
pub use weir_origin_links as links;
pub use weir_origin_rooms as rooms;
pub use weir_origin_sales as sales;
pub use weir_shard_proxy as shard_proxy;
