//! The log on a real Apache Kafka: three brokers that are killed, frozen and started again, readers that join, leave and die.
//!
//! `cargo xtask test` turns these on where Java and Maven are; by hand:
//! `cargo test -p weir-kafkalog --features librdkafka`.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[cfg(feature = "librdkafka")]
mod appends;
#[cfg(feature = "librdkafka")]
mod away;
#[cfg(feature = "librdkafka")]
mod groups;
#[cfg(feature = "librdkafka")]
mod killed;
#[cfg(feature = "librdkafka")]
mod store;
#[cfg(feature = "librdkafka")]
mod support;

/// Stands for them where they are off, so that a run counts what it left out.
#[cfg(not(feature = "librdkafka"))]
#[test]
#[ignore = "the feature librdkafka is off: cargo xtask test turns it on where Java and Maven are"]
fn on_apache_kafka() {}
