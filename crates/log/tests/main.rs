//! The log, in files and on Apache Kafka.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod files;
mod kafka;
