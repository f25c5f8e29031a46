//! Weir's origin: sales, orders and short links, thin behind the gateways.
//!
//! | module | does |
//! |---|---|
//! | [`sales`] | flash sales: the admission ledger, orders, reservations |
//! | [`links`] | short links and their clicks |
//! | [`events`] | behaviour events: taken, kept, handled by groups |
//! | [`sql`], [`redis`], [`http`], [`background`] | shared parts, which know no domain |
//! | [`metrics`], [`secret`], [`clock`], [`unavailable`] | smaller ones |
//! | [`origin`], [`run`](mod@run), [`config`], [`migrations`] | start-up, where the domains meet |
//!
//! A domain has its own router, state, store, jobs, metrics and configuration. What is absent: no domain names
//! another, and no shared part names a domain. A test in `tests/origin/layers.rs` holds this.

#![forbid(unsafe_code)]

pub mod background;
pub mod clock;
pub mod config;
pub mod events;
pub mod http;
pub mod links;
pub mod metrics;
pub mod migrations;
pub mod origin;
pub mod redis;
pub mod run;
pub mod sales;
pub mod secret;
pub mod sql;
pub mod unavailable;

pub use origin::Origin;
