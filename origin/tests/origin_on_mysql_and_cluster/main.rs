//! The origin's tests once more, over the MySQL protocol and a Redis Cluster of three. What is left
//! out has both databases already, or runs processes, whose stack has SQLite.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use support::Backing;

#[path = "../origin/access.rs"]
mod access;
#[path = "../origin/archive.rs"]
mod archive;
#[path = "../origin/attempts.rs"]
mod attempts;
#[path = "../origin/auth.rs"]
mod auth;
#[path = "../origin/clicks/mod.rs"]
mod clicks;
#[path = "../origin/desk.rs"]
mod desk;
#[path = "../origin/draws.rs"]
mod draws;
#[path = "../origin/events/mod.rs"]
mod events;
#[path = "../origin/fitment/mod.rs"]
mod fitment;
#[path = "../origin/groups.rs"]
mod groups;
#[path = "../origin/history/mod.rs"]
mod history;
#[path = "../origin/link_stats.rs"]
mod link_stats;
mod links;
#[path = "../origin/openapi.rs"]
mod openapi;
#[path = "../origin/orders.rs"]
mod orders;
#[path = "../origin/outbox.rs"]
mod outbox;
#[path = "../origin/payloads.rs"]
mod payloads;
#[path = "../origin/payments.rs"]
mod payments;
#[path = "../origin/reconcile.rs"]
mod reconcile;
#[path = "../origin/reservations.rs"]
mod reservations;
#[path = "../origin/risk.rs"]
mod risk;
#[path = "../origin/rooms.rs"]
mod rooms;
#[path = "../origin/sales.rs"]
mod sales;
#[path = "../origin/shop.rs"]
mod shop;
#[path = "../origin/stock_changes.rs"]
mod stock_changes;
#[allow(dead_code, reason = "some of it is for the tests that are left out")]
#[path = "../origin/support/mod.rs"]
mod support;
#[path = "../origin/switches.rs"]
mod switches;
#[path = "../origin/tenants/mod.rs"]
mod tenants;
#[path = "../origin/user_list.rs"]
mod user_list;
#[path = "../origin/warm.rs"]
mod warm;

/// What the tests of this binary stand on.
const BACKING: Backing = Backing::MySqlAndCluster;
