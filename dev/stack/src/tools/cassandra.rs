//! Apache Cassandra, for tests of CQL stores.

use super::java::{Jars, Server};
use crate::report::Reporter;
use anyhow::Result;

/// The tested version.
pub const CASSANDRA_VERSION: &str = "5.0.9";

const SERVER: Server = Server {
    name: "cassandra",
    version: CASSANDRA_VERSION,
    artifacts: &[["org.apache.cassandra", "cassandra-all", CASSANDRA_VERSION]],
    // It sets a security manager, which Java 24 removed; versions in between need other flags.
    java: 17..=17,
};

/// Cassandra's jars and the Java that runs them.
#[derive(Debug, Clone)]
pub struct Cassandra(pub(crate) Jars);

impl Cassandra {
    /// Finds Java, and gets the jars from Maven Central.
    ///
    /// # Errors
    /// Java or Maven is missing, or the download fails; the error says what to do.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        SERVER.find_or_get(reporter).map(Self)
    }
}
