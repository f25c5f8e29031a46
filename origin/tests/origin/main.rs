//! Tests of the origin: real SQLite files, a real Redis, real processes. They are one binary, so that all share one
//! Redis. With `WEIR_TEST_BACKING=mysql-and-cluster` most of them use the MySQL protocol and a Redis Cluster: `cargo
//! xtask test --all`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

// Comes first, because the other modules use its macro.
#[macro_use]
mod support;

mod access;
mod archive;
mod attempts;
mod auth;
mod challenges;
mod clicks;
mod clients;
mod doctor;
mod draws;
mod events;
#[path = "events/process.rs"]
mod events_process;
#[path = "events/store.rs"]
mod events_store;
mod features;
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
mod lost_orders;
mod observe;
mod openapi;
mod order_admin;
mod orders;
#[path = "../origin_archive/main.rs"]
mod origin_archive;
#[path = "../origin_on_cassandra/main.rs"]
mod origin_on_cassandra;
#[path = "../origin_on_kafka/main.rs"]
mod origin_on_kafka;
#[path = "../origin_on_mysql_and_cluster/links.rs"]
mod origin_on_mysql_and_cluster;
mod outbox;
mod outbox_process;
mod page;
mod payloads;
mod payments;
mod prices;
mod probes;
mod process;
mod products;
mod reconcile;
mod refusals;
mod reservations;
mod risk;
mod rooms;
mod sales;
mod settings;
mod shard_proxy;
mod shop;
mod silent_cluster;
mod sites;
mod stock_changes;
mod store;
mod switches;
mod tenants;
mod traces;
mod user_list;
mod warm;
