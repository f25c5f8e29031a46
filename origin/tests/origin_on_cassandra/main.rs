//! The cold store of browse history in a real Apache Cassandra. `cargo xtask test` turns this on where Java and Maven are; by hand:
//! `cargo test -p weir-origin-tests --features cql --test origin_on_cassandra`.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[cfg(feature = "cql")]
mod cold;
#[cfg(feature = "cql")]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "most of it is for the tests of other binaries"
)]
#[path = "../origin/support/mod.rs"]
mod support;

/// What the tests of this binary stand on.
#[cfg(feature = "cql")]
const BACKING: support::Backing = support::Backing::SqliteAndSingle;

/// Stands for them where they are off, so that a run counts what it left out.
#[cfg(not(feature = "cql"))]
#[test]
#[ignore = "the feature cql is off: cargo xtask test turns it on where Java and Maven are"]
fn on_apache_cassandra() {}
