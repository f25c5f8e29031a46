//! Events come in.

use axum::Json;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_event::answer::Answer;
use weir_event::consent::Consent;
use weir_event::limits::BODY_LEN_MAX;
use weir_event::name::{CustomerId, KeyName};
use weir_event::pixel;
use weir_event::stamps::{Kind, Stamps};

use super::too_large;
use crate::Events;
use crate::collect::{Sender, is_taken};
use weir_origin_core::http::{Problem, ReadQuery};

/// What an event's body may be.
const CONTENT_TYPES: [&str; 2] = ["application/json", "text/plain"];

/// The key that events of business systems have, unless they say another name.
const PUSH_KEY: &str = "push";

/// `POST /events` by a gateway.
pub(super) async fn collect(
    events: Events,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let sender = sender(&events, &headers)?;
    taken(events, sender, &headers, body).await
}

/// What a business system says of itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Push {
    /// Whose events these are: in the place of a write key's name.
    key: Option<String>,
}

/// `POST /events` by a business system.
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
    taken(events, sender, &headers, body).await
}

async fn taken(
    events: Events,
    sender: Sender,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    check_content(headers)?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            too_large(format!("the body may have {BODY_LEN_MAX} bytes"))
        }
        _ => Problem::invalid_body("the body could not be read"),
    })?;
    let answer = events.collector().collect(sender, body).await?;
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// `GET /events.gif` by a gateway. An image says nothing but whether it is one: of an event that was refused it is none.
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
        let reason = verdict.reason?.word();
        Some(format!("{reason}: {}", verdict.message.unwrap_or_default()))
    });
    let detail = detail.unwrap_or_default();
    Problem::unprocessable("event_rejected", "Event rejected", detail)
}

fn sender(events: &Events, headers: &HeaderMap) -> Result<Sender, Problem> {
    let value = |name: &'static str| headers.get(name).map(HeaderValue::as_bytes);
    let stamps = Stamps::read(value).map_err(|error| {
        let status = StatusCode::FORBIDDEN;
        Problem::new(
            status,
            "not_by_a_gateway",
            "Not by a gateway",
            error.to_string(),
        )
    })?;
    let name = events.user_header();
    let user = headers
        .get(name)
        .map(|user| CustomerId::new(user.as_bytes()));
    let user = user.transpose().map_err(|error| {
        let status = StatusCode::BAD_REQUEST;
        Problem::new(
            status,
            "invalid_user",
            "Invalid user",
            format!("{name}: {error}"),
        )
    })?;
    Ok(Sender { stamps, user })
}

/// The body is JSON, whatever a beacon has to call it; in UTF-8, and not compressed.
fn check_content(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let coding = text(header::CONTENT_ENCODING).unwrap_or("identity");
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let is_known = CONTENT_TYPES
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known));
    let is_utf8 = |part: &str| match part.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    if is_known && parts.all(is_utf8) && coding.eq_ignore_ascii_case("identity") {
        return Ok(());
    }
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let detail =
        "send events as application/json or text/plain, in UTF-8 and without content-encoding";
    Err(Problem::new(
        status,
        "content_type",
        "Unsupported media type",
        detail,
    ))
}
