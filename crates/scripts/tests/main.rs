//! The scripts of all domains, against their models and against a real Redis.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod challenges;
mod fitment;
mod gateway_report;
mod history;
mod limit;
mod link_uniques;
mod links;
mod model;
mod permissions;
mod protocol;
mod refusals;
mod room;
mod support;
mod tally;
