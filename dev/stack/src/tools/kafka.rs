//! Apache Kafka, for tests of the event log.

use super::java::{Jars, Server};
use crate::report::Reporter;
use anyhow::Result;

/// The tested version.
pub const KAFKA_VERSION: &str = "4.3.1";

const SERVER: Server = Server {
    name: "kafka",
    version: KAFKA_VERSION,
    artifacts: &[
        ["org.apache.kafka", "kafka_2.13", KAFKA_VERSION],
        // Kafka's own distribution includes it: without it there is no log output.
        ["org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"],
    ],
    java: 17..=25,
};

/// The last version that supports Kafka 0.10 clients, such as lua-resty-kafka.
const OLD: Server = Server {
    name: "kafka",
    version: "3.9.1",
    artifacts: &[["org.apache.kafka", "kafka_2.13", "3.9.1"]],
    java: 11..=23,
};

/// Kafka's jars and the Java that runs them.
#[derive(Debug, Clone)]
pub struct Kafka(pub(crate) Jars);

impl Kafka {
    /// Finds Java, and gets the jars from Maven Central.
    ///
    /// # Errors
    /// Java or Maven is missing, or the download fails; the error says what to do.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        SERVER.find_or_get(reporter).map(Self)
    }

    /// As [`Kafka::find_or_get`], for the last version before 4, which supports old clients. For comparisons.
    ///
    /// # Errors
    /// As for [`Kafka::find_or_get`].
    pub fn for_old_clients(reporter: &mut dyn Reporter) -> Result<Self> {
        OLD.find_or_get(reporter).map(Self)
    }
}
