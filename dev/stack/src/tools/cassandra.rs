//! Apache Cassandra, for tests of stores that speak CQL.

use super::java::{Jars, Server};
use crate::report::Reporter;
use anyhow::Result;

/// The version that everything here was tested on.
pub const CASSANDRA_VERSION: &str = "5.0.9";

const SERVER: Server = Server {
    name: "cassandra",
    version: CASSANDRA_VERSION,
    artifacts: &[["org.apache.cassandra", "cassandra-all", CASSANDRA_VERSION]],
    // It sets a security manager, which Java 24 has no more; between, it needs other flags.
    java: 17..=17,
};

/// Cassandra's jars, and what runs them.
#[derive(Debug, Clone)]
pub struct Cassandra(pub(crate) Jars);

impl Cassandra {
    /// Java on this machine, and the jars from Maven Central.
    ///
    /// # Errors
    /// When there is no Java or no Maven, or the jars cannot be got: with what to do.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        SERVER.find_or_get(reporter).map(Self)
    }
}
