//! Probes.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tracing::warn;

use crate::Origin;
use crate::problem::Problem;

/// The process is alive.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// SQL and Redis answer; else which of them does not. The reasons are in the log.
pub(super) async fn ready(State(origin): State<Origin>) -> Result<Json<Value>, Problem> {
    let (sql, redis) = tokio::join!(origin.store.ping(), origin.ledger.ping());
    let detail = match (&sql, &redis) {
        (Ok(()), Ok(())) => return Ok(Json(json!({ "status": "ok" }))),
        (Err(_), Ok(())) => "the database does not answer",
        (Ok(()), Err(_)) => "Redis does not answer",
        (Err(_), Err(_)) => "neither the database nor Redis answers",
    };
    warn!(sql = ?sql.err(), redis = ?redis.err(), "not ready");
    Err(Problem::unavailable("not_ready", detail))
}

/// What the origin has counted, for Prometheus.
pub(super) async fn metrics(State(origin): State<Origin>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], origin.metrics.text())
}

/// All routes, as OpenAPI 3.1.
pub(super) async fn openapi() -> impl IntoResponse {
    let json = "application/json";
    (
        [(header::CONTENT_TYPE, json)],
        include_str!("../../openapi.json"),
    )
}
