//! Weir as a whole, with real parts.

mod bridge;
mod bytes;
mod config;
mod disconnect;
mod events;
mod faults;
mod fitment;
mod gateways;
mod history_limits;
mod jwt;
mod large_sales;
mod limits;
mod links;
mod markdown;
mod metrics;
mod outage;
mod pages;
mod problems;
mod ratelimit;
mod redis_kinds;
mod retries;
mod storm;
mod streams;
mod switches;
mod tokens;
mod whole_sale;
