//! The route of limits, for operators.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;
use utoipa::ToSchema;
use utoipa_axum::routes;
use weir_limit::redis::keys;
use weir_scripts::tally::KEPT_S;

use super::refusals::Refusals;
use weir_origin_core::access::scope::Area;
use weir_origin_core::api::{Api, RouteRules};
use weir_origin_core::http::refusal::REDIS_UNAVAILABLE;
use weir_origin_core::http::{Problem, ReadQuery};
use weir_origin_core::redis::{CallError, Redis};

/// The rules of limits in Redis: what gateways read that reload their rules.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
struct LimitsView {
    /// The key in Redis.
    key: String,
    /// The document there, as it was written; null: there is none, and gateways use the rules of their configuration.
    #[schema(required)]
    document: Option<Value>,
    /// Why it cannot be read; null: it can.
    #[schema(required)]
    unreadable: Option<String>,
}

/// Which refusals.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Span {
    /// From how many of the last minutes; 5 unless set.
    #[param(minimum = 1, maximum = 60)]
    minutes: Option<u64>,
}

/// Refusals are told of so many minutes unless the query says otherwise.
const MINUTES: u64 = 5;

/// Gateways' counts are kept no longer.
const MINUTES_MAX: u64 = KEPT_S / 60;

/// The routes for operators.
pub fn admin() -> Api<Redis> {
    let rules = RouteRules::PLATFORM.refuses(&[REDIS_UNAVAILABLE]);
    Api::admin(Area::Limits)
        .route(routes!(show), rules)
        .route(routes!(refusals), rules)
}

/// What rules of limits have refused in the last minutes, and whom
///
/// Requests that rules have refused, or would have in shadow mode, by rule and by key, as gateways with `report` count them. The
/// counts are not exact: a gateway that dies loses those of its last seconds.
#[utoipa::path(
    get,
    path = "/limits/refusals",
    operation_id = "getLimitRefusals",
    params(Span),
    responses((status = 200, description = "Refusals per minute", body = Refusals))
)]
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

/// The rules of limits that gateways read from Redis
///
/// The document is shown as it was written.
#[utoipa::path(
    get,
    path = "/limits",
    operation_id = "getLimits",
    responses((status = 200, description = "The rate limit rules", body = LimitsView))
)]
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
    warn!(%error, "cannot read rate limit reports from Redis");
    Problem::redis()
}
