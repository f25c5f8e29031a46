//! Probes, metrics, and the description of all routes.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tracing::warn;

use super::{Problem, shape};
use crate::metrics::Metrics;
use crate::redis::Redis;
use crate::sql::Database;

/// A part whose state is told, whatever it is: the rest of the origin does not need it.
#[derive(Clone)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its state, in a word.
    pub state: Arc<dyn Fn() -> &'static str + Send + Sync>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({:?})", self.name)
    }
}

/// What the probes ask.
#[derive(Clone, Debug)]
pub struct Health {
    /// Must answer for the origin to be ready.
    pub database: Database,
    /// Must answer, too.
    pub redis: Redis,
    /// What Prometheus scrapes.
    pub metrics: Metrics,
    /// What else is told.
    pub parts: Vec<Part>,
}

/// `GET /healthz`, which asks for nothing.
pub fn alive() -> Router {
    Router::new().route("/healthz", get(is_alive))
}

/// `GET /healthz` and `GET /readyz` of an origin that waits for its database.
pub fn starting() -> Router {
    let away = || async { Problem::unavailable("not_ready", "the database does not answer") };
    alive().route("/readyz", get(away))
}

/// `GET /readyz`, `/metrics` and `/openapi.json`.
pub fn probes(health: Health) -> Router {
    Router::new()
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .with_state(health)
}

/// The process is alive.
async fn is_alive() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Whether SQL and Redis answer; if not, which of them. The reasons are in the log.
async fn ready(State(health): State<Health>) -> Result<Json<Value>, Problem> {
    let (sql, redis) = tokio::join!(health.database.ping(), health.redis.ping());
    let detail = match (&sql, &redis) {
        (Ok(()), Ok(())) => return Ok(Json(health.told())),
        (Err(_), Ok(())) => "the database does not answer",
        (Ok(()), Err(_)) => "Redis does not answer",
        (Err(_), Err(_)) => "neither the database nor Redis answers",
    };
    warn!(sql = ?sql.err(), redis = ?redis.err(), "not ready");
    Err(Problem::unavailable("not_ready", detail))
}

impl Health {
    fn told(&self) -> Value {
        let mut told = json!({ "status": "ok" });
        let states = self.parts.iter().map(|part| (part.name, (part.state)()));
        if let Some(told) = told.as_object_mut() {
            told.extend(states.map(|(name, state)| (name.to_owned(), state.into())));
        }
        told
    }
}

/// What the origin has counted, for Prometheus.
async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], health.metrics.text())
}

/// All routes, as OpenAPI 3.1.
async fn openapi() -> impl IntoResponse {
    let json = "application/json";
    ([(header::CONTENT_TYPE, json)], shape::TEXT)
}
