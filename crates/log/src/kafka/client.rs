//! Logging for all Kafka clients.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::{debug, warn};

/// Writes librdkafka's lines to the origin's log at debug level. librdkafka repeats itself every second during a broker
/// outage; failed appends and waiting readers log the outage once.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, line: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            warn!(facility, line, "librdkafka");
        }
        _ => debug!(facility, line, "librdkafka"),
    }
}

/// The same for errors.
pub(crate) fn error(error: &KafkaError, reason: &str) {
    debug!(%error, reason, "librdkafka");
}

/// A client without callbacks other than logging.
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        log(level, facility, line);
    }

    fn error(&self, cause: KafkaError, reason: &str) {
        error(&cause, reason);
    }
}

impl ConsumerContext for Quiet {}
