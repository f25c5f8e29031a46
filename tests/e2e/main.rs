//! End-to-end tests with real parts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod bridge;
mod bytes;
mod challenges;
mod config;
mod conversions;
mod cors;
mod disconnect;
mod draws;
mod events;
mod faults;
mod fitment;
mod gateways;
mod held;
mod history_limits;
mod isolation;
mod jwt;
mod kubernetes;
mod large_sales;
mod limits;
mod links;
mod lost_orders;
mod markdown;
mod metrics;
mod misrouted;
mod orders;
mod outage;
mod pages;
mod pasted;
mod payloads;
mod problems;
mod product_page;
mod quantity;
mod ratelimit;
mod redis_kinds;
mod refusals;
mod retries;
mod sale_start;
mod set_ups;
mod stock_changes;
mod storm;
mod streams;
mod switches;
mod tenants;
mod tokens;
mod waiting_room;
mod whole_sale;
