//! Health probes, metrics, and the OpenAPI document.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use utoipa::ToSchema;
use utoipa_axum::routes;
use weir_base::accept::prefers;

use super::traffic::Traffic;
use super::{Problem, Refusal};
use crate::api::{Api, RouteRules};
use crate::background::Heartbeat;
use crate::disk::Disks;
use crate::metrics::Metrics;
use crate::redis::refusals::Refusal as RedisRefusal;
use crate::redis::{CallError, Redis};
use crate::sql::{Database, SqlError};

/// Media type of OpenMetrics, without and with a version.
const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_1_0: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Timeout of SQL and Redis in a probe.
const PING_LIMIT: Duration = Duration::from_secs(3);

/// A component whose state `/readyz` reports. Its state does not affect readiness.
#[derive(Clone)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// Returns the label of its state.
    pub state: Arc<dyn Fn() -> &'static str + Send + Sync>,
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Component({:?})", self.name)
    }
}

/// A loop without which the origin is not ready.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Its name.
    pub name: &'static str,
    /// Its heartbeat. A loop without a first heartbeat is not monitored.
    pub heartbeat: Heartbeat,
    /// Its heartbeat timeout.
    pub silence_max: Duration,
}

/// State of the probe handlers.
#[derive(Clone, Debug)]
pub struct Health {
    /// Must answer.
    pub database: Database,
    /// Must accept writes.
    pub redis: Redis,
    /// The metrics to scrape.
    pub metrics: Metrics,
    /// Their sums over the last 24 hours.
    pub traffic: Traffic,
    /// Further components to report.
    pub parts: Vec<Component>,
    /// Disks that the origin writes to.
    pub disks: Disks,
    /// Loops that must keep running.
    pub loops: Vec<Loop>,
    /// Cancelled when the origin starts to drain.
    pub draining: CancellationToken,
    /// The OpenAPI document.
    pub document: &'static str,
}

/// Refusal of `/readyz` while the origin is not ready.
const NOT_READY: Refusal = Refusal::unavailable(
    "not_ready",
    "SQL or Redis does not answer, Redis refuses writes, the database disk is full, or the reconciler is stuck",
);

/// Refusal of probes while the origin drains.
const DRAINING: Refusal = Refusal::unavailable(
    "draining",
    "the origin is stopping: it still answers requests, but gateways and load balancers must send no new ones",
);

/// Health of the origin. `sales` is `paused` while SQL has lost orders of a sale and no operator has decided. With
/// `--events-log`, `events` is `ok`, `full` or `failing`. `links_disk`, `events_disk` and `fitment_disk` appear if less
/// than 1 MiB is free on that disk (`full`), or its folder is gone (`gone`). `redis` appears if Redis refused a command
/// in the last minute; its value is the kind of the last refusal, such as `noperm`.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
struct HealthView {
    /// `ok`.
    status: &'static str,
    /// Other components, if any.
    #[serde(flatten)]
    parts: BTreeMap<String, &'static str>,
}

/// An OpenAPI document.
#[derive(ToSchema)]
#[schema(as = Document)]
struct DocumentView(#[expect(dead_code, reason = "describes a body")] serde_json::Value);

/// `GET /healthz`, which depends on nothing else.
pub fn alive() -> Api<()> {
    Api::open_admin().route(routes!(is_alive), RouteRules::OPEN)
}

/// `GET /healthz` and `GET /readyz` of an origin that waits for its database.
pub fn starting() -> Router {
    let away = || async { NOT_READY.because("the database does not answer") };
    alive().into_router(()).route("/readyz", get(away))
}

/// `GET /serving` of the public port, for the health checks of gateways. `draining` is cancelled when the origin starts to
/// drain.
pub fn serving() -> Api<CancellationToken> {
    Api::public().route(routes!(is_serving), RouteRules::OPEN.refuses(&[DRAINING]))
}

/// `GET /readyz`, `/metrics`, `/traffic` and `/openapi.json`.
pub fn probes() -> Api<Health> {
    let not_ready = RouteRules::OPEN.refuses(&[NOT_READY, DRAINING]);
    Api::open_admin()
        .route(routes!(ready), not_ready)
        .route(routes!(metrics), RouteRules::OPEN)
        .route(routes!(super::traffic::traffic), RouteRules::OPEN)
        .route(routes!(openapi), RouteRules::OPEN)
}

/// Liveness probe
///
/// Answers while the process runs, without using SQL or Redis.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "isAlive",
    responses((status = 200, description = "Alive", body = HealthView)),
)]
async fn is_alive() -> Json<HealthView> {
    Json(HealthView {
        status: "ok",
        parts: BTreeMap::new(),
    })
}

/// Health check of gateways
///
/// Answers 200 until the origin starts to drain, without using SQL or Redis.
#[utoipa::path(
    get,
    path = "/serving",
    operation_id = "isServing",
    responses((status = 200, description = "Accepts requests", body = HealthView)),
)]
async fn is_serving(
    State(draining): State<CancellationToken>,
) -> Result<Json<HealthView>, Problem> {
    match draining.is_cancelled() {
        true => Err(DRAINING.because("the origin is stopping")),
        false => Ok(is_alive().await),
    }
}

/// Readiness probe: SQL answers, Redis accepts writes, the database disk has space, the reconciler runs
///
/// Answers 200 if SQL answers and Redis accepts a write. The body has the state of the other components.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "isReady",
    responses((status = 200, description = "It can", body = HealthView)),
)]
async fn ready(State(health): State<Health>) -> Result<Json<HealthView>, Problem> {
    if health.draining.is_cancelled() {
        return Err(DRAINING.because("the origin is stopping"));
    }
    let (sql, redis) = tokio::join!(
        in_time(health.database.ping()),
        in_time(health.redis.check_write())
    );
    let refusal = redis.as_ref().err().and_then(|away| away.refusal.clone());
    let detail = match (&sql, &redis) {
        (Ok(()), Ok(())) => match health.unready_reason() {
            None => return Ok(Json(health.view())),
            Some(trouble) => trouble,
        },
        (Err(_), Ok(())) => "the database does not answer".to_owned(),
        (Ok(()), Err(_)) => match refusal {
            Some(refusal) => format!("Redis refuses writes: {refusal}"),
            None => "Redis does not answer".to_owned(),
        },
        (Err(_), Err(_)) => match refusal {
            Some(refusal) => {
                format!("the database does not answer, and Redis refuses writes: {refusal}")
            }
            None => "neither the database nor Redis answers".to_owned(),
        },
    };
    let error_of = |part: Result<(), ProbeFailure>| part.err().map(|away| away.error);
    let (sql, redis) = (error_of(sql), error_of(redis));
    warn!(detail, sql, redis, "not ready");
    Err(NOT_READY.because(detail))
}

/// Why SQL or Redis fails the probe.
struct ProbeFailure {
    error: String,
    refusal: Option<RedisRefusal>,
}

impl From<SqlError> for ProbeFailure {
    fn from(error: SqlError) -> Self {
        Self {
            error: error.to_string(),
            refusal: None,
        }
    }
}

impl From<CallError> for ProbeFailure {
    fn from(error: CallError) -> Self {
        Self {
            error: error.to_string(),
            refusal: error.refusal(),
        }
    }
}

/// Runs a check with a timeout.
async fn in_time<E: Into<ProbeFailure>>(
    requested: impl Future<Output = Result<(), E>>,
) -> Result<(), ProbeFailure> {
    match tokio::time::timeout(PING_LIMIT, requested).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(ProbeFailure {
            error: format!("no answer within {PING_LIMIT:?}"),
            refusal: None,
        }),
    }
}

impl Health {
    /// Why the origin is not ready although SQL and Redis answer; `None` if it is ready.
    fn unready_reason(&self) -> Option<String> {
        let disks = self.disks.all();
        let mut vital = disks.iter().filter(|disk| disk.is_vital);
        let disk = vital.find_map(|disk| {
            let trouble = disk.problem()?;
            Some(format!("the disk of the {} is {trouble}", disk.name))
        });
        disk.or_else(|| {
            let mut loops = self.loops.iter();
            let late = |watched: &&Loop| {
                let silence = watched.heartbeat.silence();
                silence.is_some_and(|silence| silence > watched.silence_max)
            };
            let stuck = loops.find(late)?;
            Some(format!("the {} is stuck", stuck.name))
        })
    }

    fn view(&self) -> HealthView {
        let parts = self.parts.iter();
        let states = parts.map(|part| (part.name.to_owned(), (part.state)()));
        // Report only disks with a problem; most of them do not affect readiness.
        let disks = self.disks.all();
        let disks = disks.iter().filter_map(|disk| {
            let trouble = disk.problem()?;
            Some((format!("{}_disk", disk.name), trouble))
        });
        let recent = self.redis.refusals().recent();
        let redis = recent
            .first()
            .map(|kind| ("redis".to_owned(), kind.label()));
        HealthView {
            status: "ok",
            parts: states.chain(disks).chain(redis).collect(),
        }
    }
}

/// Collector of the time since each loop's last heartbeat, read at each scrape.
#[derive(Debug)]
pub struct HeartbeatTimeouts(pub Vec<Loop>);

impl Collector for HeartbeatTimeouts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time since the last run of a background loop, in seconds";
        let mut metric =
            encoder.encode_descriptor("silent_seconds", help, None, MetricType::Gauge)?;
        for watched in &self.0 {
            // Report 0 for a loop without a first heartbeat.
            let silence = watched.heartbeat.silence().unwrap_or_default();
            let labels = [("loop", watched.name)];
            ConstGauge::new(silence.as_secs_f64()).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Metrics in OpenMetrics format
///
/// Metrics in OpenMetrics 1.0 text format, or in Prometheus text format 0.0.4 for clients that prefer `text/plain`. See
/// docs/metrics.md.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    responses((status = 200, description = "Text", content((String = "application/openmetrics-text"), (String = "text/plain")))),
)]
async fn metrics(State(health): State<Health>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    let is_plain = accept.is_some_and(|accept| prefers(accept, "text/plain", &[OPEN_METRICS]));
    let (kind, text) = match is_plain {
        true => ("text/plain; version=0.0.4", health.metrics.plain_text()),
        false => (OPEN_METRICS_1_0, health.metrics.text()),
    };
    (
        [(header::CONTENT_TYPE, kind), (header::VARY, "accept")],
        text,
    )
}

/// This document
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "getOpenApi",
    responses((status = 200, description = "The document", body = DocumentView)),
)]
async fn openapi(State(health): State<Health>) -> impl IntoResponse {
    let json = "application/json";
    ([(header::CONTENT_TYPE, json)], health.document)
}
