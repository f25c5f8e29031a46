//! Admin routes of rate limits.

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
use weir_origin_core::clock::now_ms;
use weir_origin_core::gateways::{self, Difference, Gateway};
use weir_origin_core::http::refusal::REDIS_UNAVAILABLE;
use weir_origin_core::http::{Problem, ReadQuery};
use weir_origin_core::redis::{CallError, Redis};

/// The rate limit rules in Redis, for gateways with `reload`.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
struct LimitsView {
    /// The key in Redis.
    key: String,
    /// The document as written; null: none, and gateways use the rules of their configuration.
    #[schema(required)]
    document: Option<Value>,
    /// Why it is invalid; null: it is valid.
    #[schema(required)]
    unreadable: Option<String>,
}

/// Gateways, and how they differ.
#[derive(Serialize, ToSchema)]
#[schema(as = Gateways)]
struct GatewayList {
    /// The gateways that have reported in the last two minutes, by name.
    gateways: Vec<Gateway>,
    /// Different versions, rules, rooms, routes or configurations, at most 100.
    differences: Vec<Difference>,
}

/// Selects refusals.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Span {
    /// Number of past minutes. Default: 5.
    #[param(minimum = 1, maximum = 60)]
    minutes: Option<u64>,
}

/// Default number of minutes in a refusal report.
const MINUTES: u64 = 5;

/// Gateways delete older counts.
const MINUTES_MAX: u64 = KEPT_S / 60;

/// The admin routes.
pub fn admin() -> Api<Redis> {
    let rules = RouteRules::PLATFORM.refuses(&[REDIS_UNAVAILABLE]);
    Api::admin(Area::Limits)
        .route(routes!(show), rules)
        .route(routes!(refusals), rules)
        .route(routes!(list_gateways), rules)
}

/// Get refusals of the last minutes by rule, and the top-k refused keys
///
/// Requests that rules refused, or would have refused in a dry run (mode `shadow`), from gateways with `report`. Treat
/// the counts as estimates: a crashed gateway loses its last seconds.
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

/// List gateways with their versions, rules, rooms and routes, and what differs between them
///
/// A gateway reports every 45 seconds from its first request on, once per filter that uses Redis.
#[utoipa::path(
    get,
    path = "/gateways",
    operation_id = "listGateways",
    responses((status = 200, description = "The gateways", body = GatewayList))
)]
async fn list_gateways(State(redis): State<Redis>) -> Result<Json<GatewayList>, Problem> {
    let reports = gateways::read(&redis, now_ms()).await.map_err(no_redis)?;
    Ok(Json(GatewayList {
        differences: gateways::differences(&reports),
        gateways: gateways::gateways(reports),
    }))
}

/// Get the rate limit rules in Redis, as written
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
    warn!(%error, "cannot read reports of gateways from Redis");
    Problem::redis()
}
