//! The route of limits, for operators.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::Value;
use tracing::warn;
use weir_scripts::keys;

use crate::http::Problem;
use crate::redis::{CallError, Redis};

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

/// The route for operators: `GET /limits`.
pub fn admin(redis: Redis) -> Router {
    Router::new().route("/limits", get(show)).with_state(redis)
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
    warn!(%error, "cannot read the rules of limits");
    Problem::redis()
}
