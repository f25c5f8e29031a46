//! The engine's own responses.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::check::CheckError;
use weir_engine::Answer;
use weir_engine::answer::{Refusal, retry_after_seconds};

/// Retry interval for clients during an outage, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// A successful JSON response.
pub(crate) fn found(json: Vec<u8>) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
    ];
    Answer::new(200, &headers, json).because("weir_fitment_answered")
}

/// Refuses an invalid query.
pub(crate) fn refused(error: &CheckError) -> Answer {
    let message = error.to_string();
    refusal(error.status(), Vec::new(), error.code(), &message)
}

/// Refuses a method.
pub(crate) fn wrong_method(allowed: &'static str) -> Answer {
    let message = String::from("use the method ") + allowed;
    let headers = Vec::from([("allow", allowed)]);
    refusal(405, headers, "method_not_allowed", &message)
}

/// Refuses a page request with a body.
pub(crate) fn body_not_wanted() -> Answer {
    let message = "a request for a page of SKUs must have no body";
    refusal(400, Vec::new(), "invalid_body", message)
}

/// Redis is unavailable or overloaded.
pub(crate) fn unavailable() -> Answer {
    let wait = retry_after_seconds(RETRY_MS).to_string();
    let headers = Vec::from([("retry-after", wait.as_str())]);
    let message = "fitment is temporarily unavailable; please try again";
    refusal(503, headers, "unavailable", message)
}

fn refusal(status: u16, headers: Vec<(&str, &str)>, error: &str, message: &str) -> Answer {
    let refusal = Refusal {
        status,
        error,
        message,
        order: None,
    };
    Answer::refusal(headers, &refusal)
}
