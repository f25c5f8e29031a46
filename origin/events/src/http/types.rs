//! The routes of types.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use weir_event::name::EventType;

use crate::Events;
use crate::model::types::{RegisteredType, TypeSpec};
use crate::registry::ChangeError;
use weir_origin_core::http::{JsonBody, Problem};

/// `GET /events/types`: all of them.
pub(super) async fn list(events: Events) -> Json<Value> {
    let types = events.registry().types();
    let types: Vec<Value> = types.iter().map(|one| shown(one)).collect();
    Json(json!({ "types": types }))
}

/// `GET /events/types/{name}`.
pub(super) async fn get(events: Events, Path(name): Path<String>) -> Result<Response, Problem> {
    let types = events.registry().types();
    let known = types
        .get(&name)
        .ok_or_else(|| not_changed(ChangeError::Unknown))?;
    Ok(with_etag(known))
}

/// `PUT /events/types/{name}`: makes or replaces it; with `If-Match` only the version that the caller has read.
pub(super) async fn put(
    events: Events,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(spec): JsonBody<TypeSpec>,
) -> Result<Response, Problem> {
    let name = EventType::new(&name).map_err(|error| invalid(format!("name: {error}")))?;
    let put = events.registry().put(name, spec, if_match(&headers)?).await;
    let put = put.map_err(not_changed)?;
    let status = match put.version {
        1 => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    Ok((status, with_etag(&put)).into_response())
}

/// `DELETE /events/types/{name}`: from now on its events are refused. Those that came stay.
pub(super) async fn delete(
    events: Events,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let version = if_match(&headers)?;
    let deleted = events.registry().delete(&name, version).await;
    deleted.map_err(not_changed)?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(known: &RegisteredType) -> Value {
    let mut shown = json!({
        "name": known.name, "version": known.version, "changed_at_ms": known.changed_at_ms,
    });
    let spec = serde_json::to_value(&known.spec).unwrap_or_default();
    if let (Some(shown), Value::Object(spec)) = (shown.as_object_mut(), spec) {
        shown.extend(spec);
    }
    shown
}

fn with_etag(known: &RegisteredType) -> Response {
    let etag = format!("\"{}\"", known.version);
    ([(header::ETAG, etag)], Json(shown(known))).into_response()
}

/// The version in `If-Match`, if it names one.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let version = number.and_then(|number| number.parse().ok());
    version.map(Some).ok_or_else(|| {
        let detail = "If-Match: must be an ETag as GET gives it, such as \"3\"";
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_if_match",
            "Invalid If-Match",
            detail,
        )
    })
}

fn invalid(detail: String) -> Problem {
    Problem::unprocessable("invalid_type", "Invalid type", detail)
}

fn not_changed(failure: ChangeError) -> Problem {
    let detail = failure.to_string();
    match failure {
        ChangeError::Invalid(_) => invalid(detail),
        ChangeError::Unknown => Problem::not_found("unknown_type", "Unknown type", detail),
        ChangeError::Version => {
            let status = StatusCode::PRECONDITION_FAILED;
            Problem::new(status, "version_conflict", "Changed meanwhile", detail)
        }
        ChangeError::TooMany => Problem::conflict("too_many_types", "Too many types", detail),
        ChangeError::Busy => Problem::unavailable("types_busy", detail),
        ChangeError::Store(error) => error.into(),
    }
}
