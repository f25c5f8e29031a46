//! The routes of event types.

use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use weir_event::name::EventType;

use super::refusals::{
    INVALID_IF_MATCH, INVALID_TYPE, TOO_MANY_TYPES, TYPES_BUSY, UNKNOWN_TYPE, VERSION_CONFLICT,
};
use crate::Events;
use crate::model::types::{RegisteredType, TypeSpec};
use crate::registry::ChangeError;
use weir_origin_core::http::{Problem, TypedBody};

/// List all registered event types
#[utoipa::path(
    get,
    path = "/events/types",
    operation_id = "listEventTypes",
    responses((status = 200, description = "All", body = EventTypes)),
)]
pub(super) async fn list(events: Events) -> Json<EventTypes> {
    let types = events.registry().types();
    let types = types.iter().map(|one| TypeView::from(&**one)).collect();
    Json(EventTypes { types })
}

/// Get an event type, with its version as ETag
#[utoipa::path(
    get,
    path = "/events/types/{name}",
    operation_id = "getEventType",
    params(("name" = String, Path, description = "The name of the type.", max_length = 64)),
    responses(
        (status = 200, description = "The current state", body = TypeView, headers(("ETag" = String, description = "The version of the type"))),
    ),
)]
pub(super) async fn get(events: Events, Path(name): Path<String>) -> Result<Response, Problem> {
    let types = events.registry().types();
    let existing = types
        .get(&name)
        .ok_or_else(|| not_changed(ChangeError::Unknown))?;
    Ok(with_etag(existing))
}

/// Create or change an event type
///
/// Events received before stay unchanged.
#[utoipa::path(
    put,
    path = "/events/types/{name}",
    operation_id = "setEventType",
    params(
        ("name" = String, Path, description = "The name of the type.", max_length = 64),
        ("If-Match" = Option<String>, Header, description = "Version that the type must have."),
    ),
    request_body = TypeSpec,
    responses(
        (status = 200, description = "The new state", body = TypeView, headers(("ETag" = String, description = "The version of the type"))),
        (status = 201, description = "Created", body = TypeView, headers(("ETag" = String, description = "The version of the type"))),
    ),
)]
pub(super) async fn put(
    events: Events,
    Path(name): Path<String>,
    headers: HeaderMap,
    TypedBody(spec): TypedBody<TypeSpec>,
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

/// Delete an event type; its events are refused from now on, and stored ones stay
#[utoipa::path(
    delete,
    path = "/events/types/{name}",
    operation_id = "deleteEventType",
    params(
        ("name" = String, Path, description = "The name of the type.", max_length = 64),
        ("If-Match" = Option<String>, Header, description = "Version that the type must have."),
    ),
    responses((status = 204, description = "Deleted")),
)]
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

/// An event type.
#[derive(Serialize, ToSchema)]
#[schema(as = EventType)]
struct TypeView {
    /// Its name.
    name: String,
    /// Increases with each change.
    #[schema(minimum = 1)]
    version: u64,
    /// Time of the last change, in milliseconds since the Unix epoch.
    changed_at_ms: u64,
    #[serde(flatten)]
    spec: TypeSpec,
}

/// All event types.
#[derive(Serialize, ToSchema)]
pub(super) struct EventTypes {
    /// All types.
    types: Vec<TypeView>,
}

impl From<&RegisteredType> for TypeView {
    fn from(existing: &RegisteredType) -> Self {
        Self {
            name: existing.name.as_str().to_owned(),
            version: existing.version,
            changed_at_ms: existing.changed_at_ms,
            spec: existing.spec.clone(),
        }
    }
}

fn with_etag(existing: &RegisteredType) -> Response {
    let etag = format!("\"{}\"", existing.version);
    ([(header::ETAG, etag)], Json(TypeView::from(existing))).into_response()
}

/// The version in `If-Match`, if any.
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
        let detail = "If-Match: must be an ETag from GET, such as \"3\"";
        INVALID_IF_MATCH.because(detail)
    })
}

fn invalid(detail: String) -> Problem {
    INVALID_TYPE.because(detail)
}

fn not_changed(failure: ChangeError) -> Problem {
    let detail = failure.to_string();
    match failure {
        ChangeError::Invalid(_) => invalid(detail),
        ChangeError::Unknown => UNKNOWN_TYPE.because(detail),
        ChangeError::Version => VERSION_CONFLICT.because(detail),
        ChangeError::TooMany => TOO_MANY_TYPES.because(detail),
        ChangeError::Busy => TYPES_BUSY.because(detail),
        ChangeError::Store(error) => error.into(),
    }
}
