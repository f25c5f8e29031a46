//! The routes of dead letters.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_event::envelope::Envelope;

use super::page_len;
use crate::Events;
use crate::admin::{self, RESEND_MAX, Resent};
use crate::collect::is_taken;
use crate::model::letter::Letter;
use crate::model::record::REFUSED_LEN_MAX;
use crate::store::{DeadFilter, DeadLetter};
use weir_origin_core::http::{JsonBody, Problem, ReadQuery};

/// The longest body: an event as it is kept, and what stands around it.
pub(super) const BODY_LEN_MAX: usize = REFUSED_LEN_MAX + 1_024;

/// How the group of what was refused when it came is called in queries.
const COLLECT: &str = "collect";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    group: Option<String>,
    reason: Option<String>,
    page: Option<String>,
    limit: Option<u32>,
}

/// `GET /events/dead-letters`, the latest first.
pub(super) async fn list(
    events: Events,
    ReadQuery(filter): ReadQuery<Filter>,
) -> Result<Json<Value>, Problem> {
    let limit = page_len(filter.limit)?;
    let after = filter.page.as_deref().map(place).transpose()?;
    let letters = events.store().dead_letters(DeadFilter {
        group: filter.group.as_deref().map(group_name),
        reason: filter.reason.as_deref(),
        after,
        limit,
    });
    let letters = letters.await?;
    let is_full = letters.len() == limit as usize;
    let last = letters.last().filter(|_| is_full);
    let next = last.map(|last| format!("{}-{}", last.dead_at_ms, last.id));
    let shown: Vec<Value> = letters.iter().map(shown).collect();
    Ok(Json(json!({ "dead_letters": shown, "next_page": next })))
}

/// `GET /events/dead-letters/{id}`.
pub(super) async fn get(events: Events, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let letter = events.store().dead_letter(&id).await?;
    Ok(Json(shown(&letter.ok_or_else(unknown)?)))
}

/// An event in the place of another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mended {
    event: Box<RawValue>,
}

/// `PUT /events/dead-letters/{id}`: mends what was refused. It is judged when it is sent again.
pub(super) async fn mend(
    events: Events,
    Path(id): Path<String>,
    JsonBody(mended): JsonBody<Mended>,
) -> Result<Json<Value>, Problem> {
    let letter = admin::mend(&events, &id, mended.event.get().to_owned()).await?;
    Ok(Json(shown(&letter)))
}

/// `DELETE /events/dead-letters/{id}`.
pub(super) async fn delete(events: Events, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    match events.store().delete_dead_letter(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

/// `POST /events/dead-letters/{id}/resend`: 202 with its verdict, or 422 if it is refused again.
pub(super) async fn resend(events: Events, Path(id): Path<String>) -> Result<Response, Problem> {
    let (status, body) = match admin::resend(&events, &id).await? {
        Resent::Retried => (StatusCode::ACCEPTED, json!({ "retried": true })),
        Resent::Judged(answer) if is_taken(&answer) => (StatusCode::ACCEPTED, json!(answer)),
        Resent::Judged(answer) => (StatusCode::UNPROCESSABLE_ENTITY, json!(answer)),
    };
    Ok((status, Json(body)).into_response())
}

/// Which ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    group: Option<String>,
    reason: Option<String>,
    limit: Option<u32>,
}

/// `POST /events/dead-letters/resend`: many, the latest first.
pub(super) async fn resend_many(
    events: Events,
    JsonBody(which): JsonBody<Which>,
) -> Result<Json<Value>, Problem> {
    let group = which.group.as_deref().map(group_name);
    let limit = which.limit.unwrap_or(RESEND_MAX);
    let resent = admin::resend_many(&events, group, which.reason.as_deref(), limit);
    let (taken, left) = resent.await?;
    Ok(Json(json!({ "taken": taken, "left": left })))
}

fn group_name(name: &str) -> &str {
    match name {
        COLLECT => "",
        name => name,
    }
}

/// Where a page ends, as the one before told it.
fn place(text: &str) -> Result<(u64, &str), Problem> {
    let place = text.split_once('-');
    let place = place.and_then(|(at_ms, id)| Some((at_ms.parse().ok()?, id)));
    place.ok_or_else(|| Problem::invalid_query("page: is not one that was told"))
}

fn shown(letter: &DeadLetter) -> Value {
    let group = match letter.group.as_str() {
        "" => COLLECT,
        group => group,
    };
    let mut shown = json!({
        "id": letter.id, "group": group, "reason": letter.reason, "message": letter.message,
        "dead_at_ms": letter.dead_at_ms, "edited_at_ms": letter.edited_at_ms,
    });
    let content = match Letter::from_json(&letter.letter) {
        Ok(Letter::Sent(sent)) => json!({ "sent": sent }),
        Ok(Letter::GivenUp { envelope, .. }) => {
            let bytes = hex::decode(envelope).unwrap_or_default();
            json!({ "event": Envelope::decode(&bytes).ok() })
        }
        Ok(Letter::Record { payload }) => json!({ "record": payload }),
        Err(_) => json!({}),
    };
    if let (Some(shown), Value::Object(content)) = (shown.as_object_mut(), content) {
        shown.extend(content);
    }
    shown
}

fn unknown() -> Problem {
    let detail = "there is no such dead letter";
    Problem::not_found("unknown_dead_letter", "Unknown dead letter", detail)
}
