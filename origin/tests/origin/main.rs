//! The origin's tests: real SQLite files, a real Redis, real processes. One binary, so that all
//! share one Redis. `origin_on_mysql_and_cluster` runs most of them on other ground.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use support::Backing;

// First: the others use its macro.
#[macro_use]
mod support;

mod access;
mod archive;
mod attempts;
mod auth;
mod challenges;
mod clicks;
mod clients;
mod desk;
mod doctor;
mod draws;
mod events;
#[path = "events/process.rs"]
mod events_process;
#[path = "events/store.rs"]
mod events_store;
mod feeds;
mod fitment;
#[path = "fitment/process.rs"]
mod fitment_process;
mod groups;
mod history;
#[path = "history/process.rs"]
mod history_process;
mod limits;
mod link_stats;
mod links;
mod observe;
mod openapi;
mod orders;
mod outbox;
mod outbox_process;
mod page;
mod payloads;
mod payments;
mod prices;
mod probes;
mod process;
mod reconcile;
mod reservations;
mod risk;
mod rooms;
mod sales;
mod settings;
mod shard_proxy;
mod shop;
mod silent_cluster;
mod stock_changes;
mod store;
mod switches;
mod tenants;
mod traces;
mod user_list;
mod warm;

/// What the tests of this binary stand on.
const BACKING: Backing = Backing::SqliteAndSingle;
