//! Apache Kafka, for tests of the log on it.

use super::java::{Jars, Server};
use crate::report::Reporter;
use anyhow::Result;

/// The version that everything here was tested on.
pub const KAFKA_VERSION: &str = "4.3.1";

const SERVER: Server = Server {
    name: "kafka",
    version: KAFKA_VERSION,
    artifacts: &[
        ["org.apache.kafka", "kafka_2.13", KAFKA_VERSION],
        // Kafka's own distribution brings it, too: without it there is no log.
        ["org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"],
    ],
    java: 17..=25,
};

/// The last one that talks to clients of Kafka 0.10, as lua-resty-kafka is.
const OLD: Server = Server {
    name: "kafka",
    version: "3.9.1",
    artifacts: &[["org.apache.kafka", "kafka_2.13", "3.9.1"]],
    java: 11..=23,
};

/// Kafka's jars, and what runs them.
#[derive(Debug, Clone)]
pub struct Kafka(pub(crate) Jars);

impl Kafka {
    /// Java on this machine, and the jars from Maven Central.
    ///
    /// # Errors
    /// When there is no Java or no Maven, or the jars cannot be got: with what to do.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        SERVER.find_or_get(reporter).map(Self)
    }

    /// As [`Kafka::find_or_get`]: the last version before 4, which no longer talks to clients of old. For comparisons with them.
    ///
    /// # Errors
    /// The same.
    pub fn for_old_clients(reporter: &mut dyn Reporter) -> Result<Self> {
        OLD.find_or_get(reporter).map(Self)
    }
}
