//! Weir's origin: sales, orders and short links, thin behind the gateways.
//!
//! | module | does |
//! |---|---|
//! | [`sales`] | flash sales: the admission ledger, orders, reservations |
//! | [`links`] | short links and their clicks |
//! | [`events`] | behaviour events: taken, kept, handled by groups |
//! | [`fitment`] | vehicle fitment: which parts fit which vehicles |
//! | [`history`] | browse history: the products that a user has seen last |
//! | [`rooms`] | waiting rooms: what operators set, and how the queues are |
//! | [`limits`] | the rules that gateways read |
//! | [`console`] | the page for operators, of all domains: files alone |
//! | [`access`] | who may use the admin routes, and who has changed what |
//! | [`tenants`] | who shares the origin, and how much each may have |
//! | [`sql`], [`redis`], [`http`], [`background`] | shared parts, which know no domain |
//! | [`metrics`], [`traces`], [`disk`], [`secret`], [`clock`], [`unavailable`] | smaller ones |
//! | [`views`] | the group of events that notes views: where events and history meet |
//! | [`doctor`] | the command that finds what is wrong with a set-up |
//! | [`shard_proxy`] | the command that reaches shards of sales in objects of an edge |
//! | [`init`] | the command that writes a set-up to begin with |
//! | [`tenant_rules`] | what each admin route is to tenants' keys |
//! | [`origin`], [`run`](mod@run), [`config`], [`migrations`] | start-up, where the domains meet |
//!
//! A domain has its own router, state, store, jobs, metrics and configuration. What is absent: no domain names
//! another, and no shared part names a domain. A test in `tests/origin/layers.rs` holds this.

#![forbid(unsafe_code)]

pub mod access;
pub mod background;
pub mod change_events;
pub mod clock;
pub mod config;
pub mod console;
pub mod conversions;
pub mod disk;
pub mod doctor;
pub mod events;
pub mod fitment;
pub mod history;
pub mod http;
pub mod init;
pub(crate) mod json_schema;
pub mod limits;
pub mod links;
pub mod metrics;
pub mod migrations;
pub mod origin;
pub mod outbox;
mod process;
pub mod redis;
pub mod rooms;
pub mod run;
pub mod sales;
pub mod secret;
pub mod shard_proxy;
pub mod sql;
pub mod tenant_rules;
pub mod tenants;
pub mod traces;
pub mod unavailable;
pub mod views;

pub use origin::Origin;
