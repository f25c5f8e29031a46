//! The log on a real Apache Kafka: three brokers that are killed, frozen and started again, readers that join, leave and die.
//!
//! `cargo xtask test --all` turns these on where Java and Maven are; by hand:
//! `cargo test -p weir-log --features kafka`.

#[cfg(feature = "kafka")]
mod appends;
#[cfg(feature = "kafka")]
mod away;
#[cfg(feature = "kafka")]
mod groups;
#[cfg(feature = "kafka")]
mod killed;
#[cfg(feature = "kafka")]
mod store;
#[cfg(feature = "kafka")]
mod support;

/// Stands for them where they are off, so that a run counts what it left out.
#[cfg(not(feature = "kafka"))]
#[test]
#[ignore = "the feature kafka is off: cargo xtask test --all turns it on where Java and Maven are"]
fn on_apache_kafka() {}
