//! The routes of groups.

use axum::Json;
use axum::extract::Path;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_event::envelope::Envelope;

use super::page_len;
use crate::admin::{self, standing};
use crate::log::Target;
use crate::store::Retry;
use crate::{Events, GroupHandle};
use weir_origin_core::http::{JsonBody, Problem, ReadQuery};

/// `GET /groups`.
pub(super) async fn list(events: Events) -> Result<Json<Value>, Problem> {
    let mut groups = Vec::new();
    for group in events.groups() {
        groups.push(shown(&events, group).await?);
    }
    Ok(Json(json!({ "groups": groups })))
}

/// `GET /groups/{group}`.
pub(super) async fn get(events: Events, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let group = find(&events, &name)?;
    Ok(Json(shown(&events, group).await?))
}

/// Where to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seek {
    /// `start` or `end`.
    to: Option<Edge>,
    /// The first event that was appended then or later.
    time_ms: Option<u64>,
    /// A place that `GET /groups/{group}` has told.
    position: Option<u64>,
    /// Only tell what it would do.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Edge {
    Start,
    End,
}

/// `POST /groups/{group}/seek`.
pub(super) async fn seek(
    events: Events,
    Path(name): Path<String>,
    JsonBody(seek): JsonBody<Seek>,
) -> Result<Json<Value>, Problem> {
    let group = find(&events, &name)?;
    let target = match (seek.to, seek.time_ms, seek.position) {
        (Some(Edge::Start), None, None) => Target::Start,
        (Some(Edge::End), None, None) => Target::End,
        (None, Some(time_ms), None) => Target::Time(time_ms),
        (None, None, Some(position)) => Target::Position(position),
        _ => {
            let detail = "name one of `to` (start or end), `time_ms` and `position`";
            return Err(Problem::unprocessable(
                "invalid_seek",
                "Invalid seek",
                detail,
            ));
        }
    };
    let sought = admin::seek(&events, group, target, seek.dry_run).await?;
    Ok(Json(
        json!({ "group": name, "dry_run": seek.dry_run, "sources": sought }),
    ))
}

/// `POST /groups/{group}/pause`: in all origins.
pub(super) async fn pause(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    set_paused(&events, &name, true).await
}

/// `POST /groups/{group}/resume`: in all origins.
pub(super) async fn resume(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    set_paused(&events, &name, false).await
}

async fn set_paused(events: &Events, name: &str, is_paused: bool) -> Result<Json<Value>, Problem> {
    let group = find(events, name)?;
    admin::set_paused(events, group, is_paused).await?;
    Ok(Json(json!({ "group": name, "paused": is_paused })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryPage {
    after: Option<u64>,
    limit: Option<u32>,
}

/// `GET /groups/{group}/retries`: what is tried again, and what waits behind it.
pub(super) async fn retries(
    events: Events,
    Path(name): Path<String>,
    ReadQuery(page): ReadQuery<RetryPage>,
) -> Result<Json<Value>, Problem> {
    let group = find(&events, &name)?;
    let limit = page_len(page.limit)?;
    let mut all = Vec::new();
    for source in events.log().sources() {
        let store = events.store();
        let retries = store
            .retries(&group.name, &source, page.after, limit)
            .await?;
        all.extend(retries.iter().map(retry));
    }
    Ok(Json(json!({ "retries": all })))
}

/// `POST /groups/{group}/retries/now`.
pub(super) async fn retry_now(
    events: Events,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let group = find(&events, &name)?;
    let due = admin::retry_now(&events, group).await?;
    Ok(Json(json!({ "group": name, "due": due })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnitPage {
    after: Option<String>,
    limit: Option<u32>,
}

/// `GET /groups/{group}/compensations`: who is to be computed anew.
pub(super) async fn compensations(
    events: Events,
    Path(name): Path<String>,
    ReadQuery(page): ReadQuery<UnitPage>,
) -> Result<Json<Value>, Problem> {
    let group = find(&events, &name)?;
    let (store, limit) = (events.store(), page_len(page.limit)?);
    let after = page.after.unwrap_or_default();
    let all = store.compensations(&group.name, &after, limit).await?;
    let shown = all.iter().map(|one| {
        json!({ "unit": one.unit, "tries": one.tries, "due_ms": one.due_ms, "error": one.error })
    });
    Ok(Json(json!({ "compensations": shown.collect::<Vec<_>>() })))
}

fn find<'a>(events: &'a Events, name: &str) -> Result<&'a GroupHandle, Problem> {
    events.group(name).ok_or_else(|| {
        Problem::not_found("unknown_group", "Unknown group", "there is no such group")
    })
}

async fn shown(events: &Events, group: &GroupHandle) -> Result<Value, Problem> {
    let standing = standing(events, group).await?;
    let (store, now_ms) = (events.store(), events.now_ms());
    let oldest_ms = standing.lag.oldest_ms.into_iter();
    let oldest_ms = oldest_ms.chain(standing.retries.oldest_ms).min();
    let positions: Vec<Value> = standing
        .positions
        .iter()
        .map(|(source, position)| json!({ "source": **source, "position": position }))
        .collect();
    Ok(json!({
        "name": group.name,
        "state": standing.said.state,
        "error": standing.said.error,
        "topics": group.topics,
        "positions": positions,
        "lag_bytes": standing.lag.bytes,
        "lag_records": standing.lag.records,
        "oldest_age_ms": oldest_ms.map(|oldest_ms| now_ms.saturating_sub(oldest_ms)),
        "retries": standing.retries.count,
        "dead_letters": store.dead_letter_count(&group.name).await?,
        "compensations": store.compensation_count(&group.name).await?,
    }))
}

fn retry(retry: &Retry) -> Value {
    let event = Envelope::decode(&retry.envelope).ok();
    json!({
        "position": retry.position, "tries": retry.tries, "due_ms": retry.due_ms,
        "error": retry.error, "event": event,
    })
}
