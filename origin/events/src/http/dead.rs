//! The routes of dead letters.

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use weir_event::answer::Answer;
use weir_event::envelope::Envelope;
use weir_event::event::Event;

use super::page_len;
use super::refusals::UNKNOWN_DEAD_LETTER;
use crate::Events;
use crate::admin::{self, RESEND_MAX, ResendOutcome};
use crate::collect::is_taken;
use crate::model::dead_letter::DeadLetterContent;
use crate::model::record::{REFUSED_LEN_MAX, SentEvent};
use crate::store::{DeadFilter, DeadLetter};
use weir_origin_core::http::{Problem, ReadQuery, TypedBody};

/// Maximum body length: an event of maximum length plus the surrounding JSON.
pub(super) const BODY_LEN_MAX: usize = REFUSED_LEN_MAX + 1_024;

/// Name in queries for the group of events refused on arrival.
const COLLECT: &str = "collect";

/// Selects dead letters.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// The consumer group; `collect`: refused on arrival.
    group: Option<String>,
    /// Only this reason.
    reason: Option<String>,
    /// The `next_page` of the previous answer.
    page: Option<String>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List dead letters, newest first
///
/// Pages of events refused on arrival, or given up by a consumer group, newest first.
#[utoipa::path(
    get,
    path = "/events/dead-letters",
    operation_id = "listDeadLetters",
    params(Filter),
    responses((status = 200, description = "A page", body = DeadLetters)),
)]
pub(super) async fn list(
    events: Events,
    ReadQuery(filter): ReadQuery<Filter>,
) -> Result<Json<DeadLetters>, Problem> {
    let limit = page_len(filter.limit)?;
    let after = filter.page.as_deref().map(parse_cursor).transpose()?;
    let letters = events.store().letters().dead_letters(DeadFilter {
        group: filter.group.as_deref().map(group_name),
        reason: filter.reason.as_deref(),
        after,
        limit,
    });
    let letters = letters.await?;
    let is_full = letters.len() == limit as usize;
    let last = letters.last().filter(|_| is_full);
    Ok(Json(DeadLetters {
        next_page: last.map(|last| format!("{}-{}", last.dead_at_ms, last.id)),
        dead_letters: letters.iter().map(LetterView::from).collect(),
    }))
}

/// Get a dead letter with its event
#[utoipa::path(
    get,
    path = "/events/dead-letters/{id}",
    operation_id = "getDeadLetter",
    params(("id" = String, Path, description = "The dead letter's id.", max_length = 128)),
    responses((status = 200, description = "The current state", body = LetterView)),
)]
pub(super) async fn get(
    events: Events,
    Path(id): Path<String>,
) -> Result<Json<LetterView>, Problem> {
    let letter = events.store().letters().dead_letter(&id).await?;
    Ok(Json(LetterView::from(&letter.ok_or_else(unknown)?)))
}

/// A corrected event.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplacementEvent)]
pub(super) struct ReplacementEvent {
    /// The event.
    #[schema(value_type = Event)]
    event: Box<RawValue>,
}

/// Correct an event that was refused on arrival
///
/// Resend it afterwards to validate it again.
#[utoipa::path(
    put,
    path = "/events/dead-letters/{id}",
    operation_id = "correctDeadLetter",
    params(("id" = String, Path, description = "The dead letter's id.", max_length = 128)),
    request_body = ReplacementEvent,
    responses((status = 200, description = "The new state", body = LetterView)),
)]
pub(super) async fn replace_event(
    events: Events,
    Path(id): Path<String>,
    TypedBody(repaired): TypedBody<ReplacementEvent>,
) -> Result<Json<LetterView>, Problem> {
    let letter = admin::replace_refused(&events, &id, repaired.event.get().to_owned()).await?;
    Ok(Json(LetterView::from(&letter)))
}

/// Delete a dead letter permanently
#[utoipa::path(
    delete,
    path = "/events/dead-letters/{id}",
    operation_id = "deleteDeadLetter",
    params(("id" = String, Path, description = "The dead letter's id.", max_length = 128)),
    responses((status = 204, description = "Deleted")),
)]
pub(super) async fn delete(events: Events, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    match events.store().letters().delete_dead_letter(&id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

/// Resend a dead letter
///
/// Validates a refused event again, or returns the event to its consumer group.
#[utoipa::path(
    post,
    path = "/events/dead-letters/{id}/resend",
    operation_id = "resendDeadLetter",
    params(("id" = String, Path, description = "The dead letter's id.", max_length = 128)),
    responses((status = 202, description = "Accepted; the dead letter is removed", body = ResentView)),
)]
pub(super) async fn resend(events: Events, Path(id): Path<String>) -> Result<Response, Problem> {
    let (status, body) = match admin::resend(&events, &id).await? {
        ResendOutcome::Retried => (StatusCode::ACCEPTED, ResentView::Retried { retried: true }),
        ResendOutcome::Judged(answer) if is_taken(&answer) => {
            (StatusCode::ACCEPTED, ResentView::Judged(answer))
        }
        ResendOutcome::Judged(answer) => {
            (StatusCode::UNPROCESSABLE_ENTITY, ResentView::Judged(answer))
        }
    };
    Ok((status, Json(body)).into_response())
}

/// Selects dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeadLetterQuery)]
pub(super) struct DeadLetterQuery {
    /// The consumer group's name.
    #[schema(nullable = false)]
    group: Option<String>,
    /// Reason code.
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Maximum number of entries.
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Resend many dead letters, newest first
///
/// Validates up to `limit` refused events again, or returns events to their consumer group, newest first.
#[utoipa::path(
    post,
    path = "/events/dead-letters/resend",
    operation_id = "resendDeadLetters",
    request_body = DeadLetterQuery,
    responses((status = 200, description = "Number of accepted events", body = ResentMany)),
)]
pub(super) async fn resend_many(
    events: Events,
    TypedBody(which): TypedBody<DeadLetterQuery>,
) -> Result<Json<ResentMany>, Problem> {
    let group = which.group.as_deref().map(group_name);
    let limit = which.limit.unwrap_or(RESEND_MAX);
    let resent = admin::resend_many(&events, group, which.reason.as_deref(), limit);
    let (accepted, remaining) = resent.await?;
    Ok(Json(ResentMany {
        accepted,
        remaining,
    }))
}

fn group_name(name: &str) -> &str {
    match name {
        COLLECT => "",
        name => name,
    }
}

/// Parses the cursor of a page.
fn parse_cursor(text: &str) -> Result<(u64, &str), Problem> {
    let place = text.split_once('-');
    let place = place.and_then(|(at_ms, id)| Some((at_ms.parse().ok()?, id)));
    place.ok_or_else(|| Problem::invalid_query("page: must be the `next` of an earlier page"))
}

/// A dead letter.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(super) struct LetterView {
    /// Its id.
    id: String,
    /// The consumer group that gave it up; `collect`: refused on arrival.
    group: String,
    /// Reason code.
    reason: String,
    /// Reason in a sentence.
    message: String,
    /// Time, in milliseconds since the Unix epoch.
    dead_at_ms: u64,
    /// Time of the correction, in milliseconds since the Unix epoch; null: never.
    #[schema(required)]
    edited_at_ms: Option<u64>,
    /// The refused event and its gateway metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    sent: Option<SentEvent>,
    /// The event; null: unsupported version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Envelope>)]
    event: Option<Option<Envelope>>,
    /// A payload that could not be parsed, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    record: Option<String>,
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
pub(super) struct DeadLetters {
    /// The dead letters of this page.
    dead_letters: Vec<LetterView>,
    /// `page` of the next page; null: this is the last page.
    #[schema(required)]
    next_page: Option<String>,
}

/// Outcome of a resend: a verdict, or a retry by the consumer group.
#[derive(Serialize, ToSchema)]
#[schema(as = ResentLetter)]
#[serde(untagged)]
enum ResentView {
    Judged(Answer),
    Retried { retried: bool },
}

/// Result of a resend.
#[derive(Serialize, ToSchema)]
#[schema(as = Resent)]
pub(super) struct ResentMany {
    /// Number accepted.
    accepted: u64,
    /// Number not accepted.
    remaining: u64,
}

impl From<&DeadLetter> for LetterView {
    fn from(letter: &DeadLetter) -> Self {
        let group = match letter.group.as_str() {
            "" => COLLECT,
            group => group,
        };
        let mut view = Self {
            id: letter.id.clone(),
            group: group.to_owned(),
            reason: letter.reason.clone(),
            message: letter.message.clone(),
            dead_at_ms: letter.dead_at_ms,
            edited_at_ms: letter.edited_at_ms,
            sent: None,
            event: None,
            record: None,
        };
        match DeadLetterContent::from_json(&letter.content) {
            Ok(DeadLetterContent::Sent(sent)) => view.sent = Some(sent),
            Ok(DeadLetterContent::GivenUp { envelope, .. }) => {
                let bytes = hex::decode(envelope).unwrap_or_default();
                view.event = Some(Envelope::decode(&bytes).ok());
            }
            Ok(DeadLetterContent::Record { payload }) => view.record = Some(payload),
            Err(_) => {}
        }
        view
    }
}

fn unknown() -> Problem {
    let detail = "dead letter not found";
    UNKNOWN_DEAD_LETTER.because(detail)
}
