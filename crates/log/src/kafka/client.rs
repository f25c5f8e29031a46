//! What all clients do with what librdkafka says of itself.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use tracing::{debug, warn};

/// Hands librdkafka's lines to the origin's log. It repeats itself every second while a broker is away; whoever notices by
/// a failed append or a reader that waits says so once, so these are for debugging.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, line: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            warn!(facility, line, "librdkafka");
        }
        _ => debug!(facility, line, "librdkafka"),
    }
}

/// Likewise.
pub(crate) fn error(error: &KafkaError, reason: &str) {
    debug!(%error, reason, "librdkafka");
}

/// A client that is asked, and has nothing else to say.
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
