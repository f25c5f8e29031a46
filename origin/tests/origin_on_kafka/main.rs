//! The origin's events on a real Apache Kafka. `cargo xtask test --all` enables these tests if Java and Maven are
//! installed; by hand: `cargo test -p weir-origin-tests --features kafka --test origin -- origin_on_kafka`.

#[cfg(feature = "kafka")]
mod events;
#[cfg(feature = "kafka")]
mod pull;

/// Represents the disabled tests, so that a run counts them as ignored.
#[cfg(not(feature = "kafka"))]
#[test]
#[ignore = "the feature kafka is off: cargo xtask test --all turns it on where Java and Maven are"]
fn on_apache_kafka() {}
