//! The origin's events on a real Apache Kafka. `cargo xtask test` turns this on where Java and Maven are; by hand:
//! `cargo test -p weir-origin-tests --features kafka --test origin_on_kafka`.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[cfg(feature = "kafka")]
mod events;
#[cfg(feature = "kafka")]
mod pull;
#[cfg(feature = "kafka")]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "most of it is for the tests of other binaries"
)]
#[path = "../origin/support/mod.rs"]
mod support;

/// What the tests of this binary stand on.
#[cfg(feature = "kafka")]
const BACKING: support::Backing = support::Backing::SqliteAndSingle;

/// Stands for them where they are off, so that a run counts what it left out.
#[cfg(not(feature = "kafka"))]
#[test]
#[ignore = "the feature kafka is off: cargo xtask test turns it on where Java and Maven are"]
fn on_apache_kafka() {}
