//! The route of limits, for operators.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;
use weir_limit::redis::keys;
use weir_scripts::tally::KEPT_S;

use super::refusals::Refusals;
use weir_origin_core::http::{Problem, ReadQuery};

use weir_origin_core::redis::{CallError, Redis};

/// What gateways read that reload their rules.
#[derive(Serialize)]
struct LimitsView {
    /// The key in Redis.
    key: String,
    /// The document there, as it was written; null: there is none, and gateways have the rules of their configuration.
    document: Option<Value>,
    /// Why it cannot be read; null: it can.
    unreadable: Option<String>,
}

/// Of how many minutes refusals are told.
#[derive(Deserialize)]
struct Span {
    minutes: Option<u64>,
}

/// Refusals are told of so many minutes unless the query says otherwise.
const MINUTES: u64 = 5;

/// Gateways' counts are kept no longer.
const MINUTES_MAX: u64 = KEPT_S / 60;

/// The routes for operators: `GET /limits`, `GET /limits/refusals`.
pub fn admin(redis: Redis) -> Router {
    Router::new()
        .route("/limits", get(show))
        .route("/limits/refusals", get(refusals))
        .with_state(redis)
}

async fn refusals(
    State(redis): State<Redis>,
    ReadQuery(span): ReadQuery<Span>,
) -> Result<Json<Refusals>, Problem> {
    let minutes = span.minutes.unwrap_or(MINUTES);
    if !(1..=MINUTES_MAX).contains(&minutes) {
        let detail = format!("minutes: must be 1 to {MINUTES_MAX}");
        return Err(Problem::invalid_query(detail));
    }
    let read = Refusals::read(&redis, minutes).await.map_err(no_redis)?;
    Ok(Json(read))
}

async fn show(State(redis): State<Redis>) -> Result<Json<LimitsView>, Problem> {
    let key = keys::limit_rules(redis.prefix());
    let mut read = ::redis::cmd("GET");
    let reply = redis.send(read.arg(&key)).await.map_err(no_redis)?;
    let text = match &reply {
        ::redis::Value::BulkString(text) => Some(text.as_slice()),
        _ => None,
    };
    let parsed = text.map(serde_json::from_slice).transpose();
    let (document, unreadable) = match parsed {
        Ok(document) => (document, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let key = String::from_utf8_lossy(&key).into_owned();
    Ok(Json(LimitsView {
        key,
        document,
        unreadable,
    }))
}

fn no_redis(error: CallError) -> Problem {
    warn!(%error, "cannot read what Redis has of limits");
    Problem::redis()
}
