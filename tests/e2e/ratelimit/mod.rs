//! The rate limiter alone, in real Envoys and with a real Redis.

mod cluster;
mod failures;
mod hostile;
mod local;
mod metrics;
mod overload;
mod refused;
mod reload;
mod stores;

use std::time::Duration;

use anyhow::{Context, Result};
use weir_stack::http::Response;

/// A Redis deadline that a busy machine can meet, for tests that are not about a slow Redis.
const PATIENT: &str = r#""redis": { "deadline_ms": 5000 }"#;

/// A configuration of these rules. `more`: further fields.
fn config(rules: &[String], more: &str) -> String {
    let rules = format!("\"rules\": [\n{}\n]", rules.join(",\n"));
    let fields = ["\"user_header\": \"x-user-id\"", more, &rules];
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|field| !field.is_empty())
        .collect();
    format!("{{ {} }}", fields.join(", "))
}

/// The wait in a refusal.
fn told_to_wait(answer: &Response) -> Result<Duration> {
    let seconds = answer.header("retry-after").context("no Retry-After")?;
    Ok(Duration::from_secs(seconds.parse()?))
}
