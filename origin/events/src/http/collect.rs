//! Routes that ingest events.

use axum::Json;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use weir_event::answer::Answer;
use weir_event::consent::Consent;
use weir_event::event::Event;
use weir_event::limits::BODY_LEN_MAX;
use weir_event::name::{CustomerId, KeyName};
use weir_event::pixel;
use weir_event::stamps::{Kind, Stamps};

use super::decode::{Encoding, decode};
use super::refusals::{CONTENT_TYPE, EVENT_REJECTED, INVALID_USER, NOT_BY_A_GATEWAY};
use super::too_large;
use crate::Events;
use crate::collect::{Sender, is_taken};
use weir_origin_core::http::{Problem, ReadQuery};

/// Accepted content types of an event body.
const CONTENT_TYPES: [&str; 2] = ["application/json", "text/plain"];

/// Default key name for events of business systems.
const PUSH_KEY: &str = "push";

/// One event, a list, or a list with its sender's time. Each event is validated separately.
#[derive(ToSchema, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a body")]
enum EventBody {
    #[schema(value_type = Event)]
    One(Value),
    List(EventList),
    Batch(EventBodyBatch),
}

/// Events.
#[derive(ToSchema, Deserialize)]
#[schema(value_type = Vec<Event>, min_items = 1, max_items = 1000)]
#[expect(dead_code, reason = "describes a body")]
struct EventList(Vec<Value>);

/// Events with their sender's time.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes a body")]
struct EventBodyBatch {
    /// Send time by the sender's clock, in milliseconds since the Unix epoch.
    #[schema(nullable = false)]
    sent_at_ms: Option<u64>,
    /// The events in their order.
    #[schema(value_type = Vec<Event>, min_items = 1, max_items = 1000)]
    events: Vec<Value>,
}

/// An event in the query of a tracking pixel. `a.NAME` is the attribute NAME.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes parameters")]
struct PixelQuery {
    /// Its registered type.
    #[param(rename = "type")]
    event_type: String,
    /// The visitor id, from a cookie.
    visitor: Option<String>,
    /// The event id; default: generated.
    id: Option<String>,
    /// Event time, in milliseconds since the Unix epoch.
    at_ms: Option<u64>,
    /// An attribute.
    #[param(rename = "a.NAME")]
    attribute: Option<String>,
}

/// Store events from a gateway, or from a business system with the admin token
///
/// Stores up to 1,000 events and answers when all are durable, with one verdict per event.
#[utoipa::path(
    post,
    path = "/events",
    operation_id = "collectEvents",
    request_body = EventBody,
    responses(
        (status = 202, description = "One verdict per event; all are stored, in the log or as dead letters", body = Answer),
    ),
)]
pub(super) async fn collect(
    events: Events,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let sender = sender(&events, &headers)?;
    accept_events(events, sender, &headers, body).await
}

/// Query of a business system.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Push {
    /// Source name, used instead of a write key's name.
    #[param(max_length = 64)]
    key: Option<String>,
}

/// Store events from a gateway, or from a business system with the admin token
///
/// Stores up to 1,000 events and answers when all are durable, with one verdict per event.
#[utoipa::path(
    post,
    path = "/events",
    operation_id = "collectEvents",
    params(Push),
    request_body = EventBody,
    responses(
        (status = 202, description = "One verdict per event; all are stored, in the log or as dead letters", body = Answer),
    ),
)]
pub(super) async fn push(
    events: Events,
    ReadQuery(push): ReadQuery<Push>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let key = push.key.as_deref().unwrap_or(PUSH_KEY);
    let key = KeyName::new(key);
    let stamps = Stamps {
        key: key.map_err(|error| Problem::invalid_query(format!("key: {error}")))?,
        kind: Kind::Server,
        received_ms: events.now_ms(),
        address: None,
        consent: Consent::Full,
    };
    let sender = Sender { stamps, user: None };
    accept_events(events, sender, &headers, body).await
}

async fn accept_events(
    events: Events,
    sender: Sender,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let encoding = check_content(headers)?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            too_large(format!("the body is longer than {BODY_LEN_MAX} bytes"))
        }
        _ => Problem::invalid_body("cannot read the body"),
    })?;
    let body = decode(encoding, body).await?;
    let answer = events.collector().collect(sender, body).await?;
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// Store one event from a tracking pixel
///
/// The query has the event; for mail and pages without scripts.
#[utoipa::path(
    get,
    path = "/events.gif",
    operation_id = "collectEventByImage",
    params(PixelQuery),
    responses((status = 200, description = "The event is in the log", body = String, content_type = "image/gif")),
)]
pub(super) async fn pixel(
    events: Events,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let sender = sender(&events, &headers)?;
    let query = query.unwrap_or_default();
    let collector = events.collector();
    let answer = collector.collect_pixel(&sender, query.as_bytes()).await?;
    if !is_taken(&answer) {
        return Err(refused(answer));
    }
    let headers = [
        (header::CONTENT_TYPE, pixel::CONTENT_TYPE),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, pixel::GIF).into_response())
}

fn refused(answer: Answer) -> Problem {
    let verdict = answer.verdicts.into_iter().next();
    let detail = verdict.and_then(|verdict| {
        let reason = verdict.reason?.label();
        Some(format!("{reason}: {}", verdict.message.unwrap_or_default()))
    });
    let detail = detail.unwrap_or_default();
    EVENT_REJECTED.because(detail)
}

fn sender(events: &Events, headers: &HeaderMap) -> Result<Sender, Problem> {
    let value = |name: &'static str| headers.get(name).map(HeaderValue::as_bytes);
    let stamps =
        Stamps::read(value).map_err(|error| NOT_BY_A_GATEWAY.because(error.to_string()))?;
    let name = events.user_header();
    let user = headers
        .get(name)
        .map(|user| CustomerId::new(user.as_bytes()));
    let user = user
        .transpose()
        .map_err(|error| INVALID_USER.because(format!("{name}: {error}")))?;
    Ok(Sender { stamps, user })
}

/// Checks that the body is JSON in UTF-8, under any content type that a beacon can send. Returns its encoding.
fn check_content(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let encoding = match headers.get(header::CONTENT_ENCODING) {
        None => Some(Encoding::Identity),
        Some(name) => Encoding::named(name.as_bytes()),
    };
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let is_known = CONTENT_TYPES
        .iter()
        .any(|existing| essence.eq_ignore_ascii_case(existing));
    let is_utf8 = |part: &str| match part.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    match encoding {
        Some(encoding) if is_known && parts.all(is_utf8) => Ok(encoding),
        _ => Err(CONTENT_TYPE.because(
            "send events as application/json or text/plain in UTF-8, optionally with content-encoding gzip or zstd",
        )),
    }
}
