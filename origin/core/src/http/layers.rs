//! Layers around each request: metrics, access log, trace span, timeout.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{Instrument, field, info, info_span};

use super::refusal::TIMEOUT;
use super::trace::{request_id, trace_id};
use super::{AccessLog, TimeLimit};
use crate::metrics::RequestMetrics;
use crate::traces::{self, SpanRequest};

/// Counts and times each request, logs it if the access log selects it, and runs it in a trace span.
///
/// Logs only the ids of trace and request from the headers, because others contain claims, signatures and tokens. Omits
/// the query too.
pub(super) async fn log(
    State((metrics, log)): State<(RequestMetrics, AccessLog)>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let span = info_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        trace_id = field::Empty,
        request_id = field::Empty,
    );
    if let Some(id) = trace_id(request.headers()) {
        span.record("trace_id", id);
    }
    if let Some(id) = request_id(request.headers()) {
        span.record("request_id", id);
    }
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let requested = SpanRequest {
        method: request.method().clone(),
        route: route.to_owned(),
    };
    let headers = request.headers().clone();
    let answer = traces::request(&headers, requested, next.run(request), status);
    async {
        let start = Instant::now();
        let response = answer.await;
        let elapsed = start.elapsed();
        let latency_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let status = response.status().as_u16();
        metrics.count(route, status, elapsed);
        if log.includes(status) {
            info!(status, latency_us, "answered");
        }
        response
    }
    .instrument(span)
    .await
}

fn status(response: &Response) -> u16 {
    response.status().as_u16()
}

/// Answers with a timeout after `limit`. Tasks that the route has spawned continue.
pub(super) async fn limit_time(
    State(limit): State<TimeLimit>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let is_endless = route.is_some_and(|route| limit.none_for.contains(&route.as_str()));
    if is_endless && request.method() == Method::POST {
        return next.run(request).await;
    }
    let answer = tokio::time::timeout(limit.usual, next.run(request)).await;
    answer.unwrap_or_else(|_| {
        let detail = "timeout, the outcome is unknown; please try again";
        TIMEOUT.because(detail).into_response()
    })
}
