//! The cold store of browse history in a real Apache Cassandra. `cargo xtask test --all` enables these tests if Java
//! and Maven are installed; by hand: `cargo test -p weir-origin-tests --features cql --test origin --
//! origin_on_cassandra`.

#[cfg(feature = "cql")]
mod cold;
#[cfg(feature = "cql")]
mod server;

/// Represents the disabled tests, so that a run counts them as ignored.
#[cfg(not(feature = "cql"))]
#[test]
#[ignore = "the feature cql is off: cargo xtask test --all turns it on where Java and Maven are"]
fn on_apache_cassandra() {}
